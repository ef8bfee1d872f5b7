"""A table that starts from the numbers of another one: what is kept, what is refused, and the fold."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from memcon import ids
from memcon.errors import ConfigError, ConflictError, InvariantError, NotFoundError
from memcon.learning.events import Created, Event, Imported, decode_event, encode_event
from memcon.learning.exploration import UcbConfig
from memcon.learning.exploration.bayes_ucb import BayesUcbConfig
from memcon.learning.exploration.greedy import EpsilonGreedyConfig
from memcon.learning.exploration.learned import LearnedConfig
from memcon.learning.exploration.thompson import ThompsonConfig
from memcon.learning.shard import PolicyShard
from memcon.policy_types import DecideRequest, TableImport
from memcon.testing.policy import cancel_request, outcome_request, state_keys
from support.key_chains import POOLED, chain
from support.shards import SECRET, SETTINGS, new_shard

CHAINS = [chain(benchmark, goal_type) for benchmark in ("b1", "b2", "b3", "b4", "b5") for goal_type in ("put", "heat")]
NUM_SHARDS = 4


def _request(number: int, keys: tuple[str, ...]) -> DecideRequest:
    return DecideRequest(
        table="table", decision_id=f"d{number}", episode_id=f"e{number}", position=0, keys=keys, draw=number
    )


def _play(shard: PolicyShard, number: int = 40) -> None:
    for n in range(number):
        reply = shard.decide(_request(n, CHAINS[n % len(CHAINS)])).reply
        shard.outcome(outcome_request(reply, 1.15 if n % 3 else -0.5))


def _learned() -> dict[str, Any]:
    shard = new_shard(POOLED)
    _play(shard)
    keys: dict[str, Any] = shard.dump("table")["numbers"]["keys"]
    return keys


def _import(source: str = "run A, cell 1", numbers: dict[str, Any] | None = None) -> TableImport:
    return TableImport(table="table", source=source, numbers=_learned() if numbers is None else numbers)


def _shards() -> list[PolicyShard]:
    shards = [PolicyShard(i, NUM_SHARDS, SECRET) for i in range(NUM_SHARDS)]
    for shard in shards:
        shard.open_table("table", POOLED)
    return shards


def test_imported_numbers_are_exported_as_they_came() -> None:
    shard = new_shard(POOLED)

    shard.import_table(_import())

    dump = shard.dump("table")
    assert dump["numbers"]["keys"] == _learned()
    assert dump["imported"] == "run A, cell 1"


def test_warm_table_decides_as_its_source_would() -> None:
    source, warm = new_shard(POOLED), new_shard(POOLED)
    _play(source)
    warm.import_table(_import())

    for n in range(100, 120):
        request = dataclasses.replace(_request(n, CHAINS[n % len(CHAINS)]), explain=True)
        here, there = warm.decide(request).reply, source.decide(request).reply
        assert (here.action_id, here.tie_set, here.per_arm) == (there.action_id, there.tie_set, there.per_arm)


def test_each_shard_keeps_what_it_owns_and_all_keep_everything() -> None:
    shards = _shards()
    for shard in shards:
        shard.import_table(_import())

    kept = [shard.dump("table")["numbers"]["keys"] for shard in shards]

    assert sum(len(keys) for keys in kept) == len(_learned())
    assert sum(1 for keys in kept if keys) > 1
    assert {key: arms for keys in kept for key, arms in keys.items()} == _learned()
    for i, keys in enumerate(kept):
        coarsest = {key for key in keys if key.startswith("benchmark/1|")}
        assert all(ids.shard_of("table", key, NUM_SHARDS) == i for key in coarsest)


@pytest.mark.parametrize("config", [UcbConfig, EpsilonGreedyConfig, BayesUcbConfig, ThompsonConfig])
def test_the_most_extreme_numbers_that_are_taken_can_be_decided_on(config: type[LearnedConfig]) -> None:
    # Such a table is journaled: an owner that fails at it would fail again after each restart.
    shard = new_shard(config(estimator="mean").learning_settings())
    (key,) = state_keys(1)
    most = {"taken": 2**52, "credited": 2**52, "squares": (4e12 * 2**52).hex()}
    arms = {arm: {"q": (2e6 if i % 2 else -2e6).hex(), **most} for i, arm in enumerate(SETTINGS.action_ids)}
    shard.import_table(_import(numbers={key: arms}))

    for n in range(20):
        reply = shard.decide(dataclasses.replace(_request(n, (key,)), explain=True)).reply
        assert 0.0 <= reply.propensity <= 1.0
        assert shard.outcome(outcome_request(reply, -1e6 if n % 2 else 1e6)).reply.status == "credited"


def test_import_of_the_same_source_again_has_no_effect_even_after_decisions() -> None:
    shard = new_shard(POOLED)
    assert len(shard.import_table(_import()).events) == 1
    _play(shard, 3)
    before = shard.dump("table")

    assert shard.import_table(_import()).events == ()
    assert shard.dump("table") == before


def test_other_source_is_a_conflict_at_every_shard() -> None:
    for shard in _shards():
        shard.import_table(_import(numbers={}))

        with pytest.raises(ConflictError, match=r"started from 'run A, cell 1', asked 'run B'"):
            shard.import_table(_import("run B"))


@pytest.mark.parametrize("ending", ["open", "credited", "cancelled"])
def test_table_with_decisions_takes_no_numbers_over(ending: str) -> None:
    shard = new_shard(POOLED)
    reply = shard.decide(_request(1, CHAINS[0])).reply
    if ending == "credited":
        shard.outcome(outcome_request(reply, 1.0))
    elif ending == "cancelled":
        shard.cancel(cancel_request(reply))
    before = shard.dump("table")

    with pytest.raises(ConflictError, match="has decisions already"):
        shard.import_table(_import())
    assert shard.dump("table") == before


@pytest.mark.parametrize(
    "numbers",
    [
        {"paper/1|goal_type=put": {}},
        {"key": {}},
        {CHAINS[0][0]: {"nope": {"q": "0x0p+0", "taken": 0, "credited": 0, "squares": "0x0p+0"}}},
        {CHAINS[0][0]: {"noop": {"q": "0x0p+0", "taken": 0, "credited": 1, "squares": "0x0p+0"}}},
    ],
)
def test_numbers_that_the_table_cannot_have_are_refused_and_change_nothing(numbers: dict[str, Any]) -> None:
    shard = new_shard(POOLED)
    before = shard.dump("table")

    with pytest.raises(ConfigError):
        shard.import_table(_import(numbers=numbers))

    assert shard.dump("table") == before


def test_import_needs_a_source_and_a_table() -> None:
    shard = new_shard(POOLED)

    with pytest.raises(ConfigError, match="source is empty"):
        shard.import_table(_import(""))
    with pytest.raises(NotFoundError, match="tabel"):
        shard.import_table(dataclasses.replace(_import(), table="tabel"))


def test_frozen_table_starts_warm_and_stays_as_it_came() -> None:
    shard = new_shard(dataclasses.replace(POOLED, frozen=True))
    shard.import_table(_import())

    _play(shard)

    assert shard.dump("table")["numbers"]["keys"] == _learned()


# --- the fold --------------------------------------------------------------------------------------------------------


def _journal() -> tuple[list[Event], PolicyShard]:
    shard = new_shard(POOLED)
    events: list[Event] = [Created(table="table", settings=POOLED), *shard.import_table(_import()).events]
    for n in range(20):
        events += shard.decide(_request(n, CHAINS[n % 3])).events
    return events, shard


def test_fold_of_a_warm_table_gives_the_same_bits_through_the_journals_text() -> None:
    events, shard = _journal()
    folded = PolicyShard(0, 1, SECRET)

    for event in events:
        folded.apply(decode_event(*encode_event(event)))

    assert folded.dump("table") == shard.dump("table")


@pytest.mark.parametrize(
    "event",
    [
        Imported(table="table", source="run A, cell 1", numbers={CHAINS[0][0]: {}}),
        Imported(table="table", source="run B", numbers={}),
        Imported(table="table", source="run A, cell 1", numbers={"key": {}}),
        Imported(table="nowhere", source="run A, cell 1", numbers={}),
    ],
)
def test_fold_refuses_an_import_that_cannot_follow(event: Imported) -> None:
    shard = _journal()[1]

    with pytest.raises(InvariantError):
        shard.apply(event)


@pytest.mark.parametrize(
    "cells",
    [
        {"nope": {"q": "0x0.0p+0", "taken": 0, "credited": 0, "squares": "0x0.0p+0"}},
        {"noop": {"q": "0x0.0p+0", "taken": 0, "credited": 1, "squares": "0x0.0p+0"}},
    ],
)
def test_fold_refuses_imported_numbers_that_no_table_has(cells: dict[str, Any]) -> None:
    with pytest.raises(InvariantError, match="imported"):
        new_shard(POOLED).apply(Imported(table="table", source="s", numbers={CHAINS[0][0]: cells}))


def test_fold_refuses_imported_keys_of_another_shard() -> None:
    owner = ids.shard_of("table", CHAINS[0][-1], NUM_SHARDS)
    shard = _shards()[(owner + 1) % NUM_SHARDS]

    with pytest.raises(InvariantError, match=r"does not own 'benchmark/1\|benchmark=b1'"):
        shard.apply(Imported(table="table", source="s", numbers={CHAINS[0][0]: {}}))
