"""The state of a shard as a snapshot keeps it: what it holds, that it goes on as the shard would, what it refuses."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from memcon import ids
from memcon.errors import InvariantError, NotFoundError
from memcon.learning.shard import PolicyShard
from memcon.testing.policy import cancel_request, decide_request, outcome_request, state_keys, table_import
from support.key_chains import POOLED, chain
from support.shards import SECRET, SETTINGS, decided, new_shard

KEPT = dataclasses.replace(SETTINGS, closed_kept=1000)


def lived() -> PolicyShard:
    """Two tables with a decision of every kind, one of them warm and frozen on the way."""
    shard = new_shard(KEPT)
    for n in range(12):
        reply = decided(shard, n, key=f"key {n % 2}")
        if n < 4:
            shard.outcome(outcome_request(reply, n / 3))
        elif n == 4:
            shard.cancel(cancel_request(reply))
        elif n < 7:
            shard.expire("table", reply.decision_id, None if n == 5 else 0.5)
    shard.cancel_episode("table", "episode-7")
    shard.open_table("warm", SETTINGS)
    shard.import_table(table_import(state_keys(3), table="warm"))
    shard.decide(decide_request(1, table="warm"))
    shard.freeze_table("warm", True)
    return shard


def loaded(state: dict[str, Any], shard: int = 0, num_shards: int = 1) -> PolicyShard:
    fresh = PolicyShard(shard, num_shards, SECRET)
    fresh.load(state)
    return fresh


def through_msgpack(state: dict[str, Any]) -> dict[str, Any]:
    packed: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(state))
    return packed


@pytest.mark.parametrize("form", [lambda state: state, through_msgpack])
def test_loaded_state_is_the_shard_again(form: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    shard = lived()

    again = loaded(form(shard.state()))

    assert again.tables() == ["table", "warm"]
    for table in again.tables():
        assert json.dumps(again.dump(table)) == json.dumps(shard.dump(table))
        assert again.counts(table) == shard.counts(table)
        assert again.settings(table) == shard.settings(table)
        assert again.open_ids(table) == shard.open_ids(table)
    assert again.state() == shard.state()


def test_what_was_captured_is_the_state_of_that_moment_whenever_it_is_written_out() -> None:
    shard = lived()
    before, captured = shard.state(), shard.captured()

    for n in range(20, 40):
        shard.outcome(outcome_request(decided(shard, n, key="key 0"), 1.0))
    shard.freeze_table("table", True)

    assert shard.state() != before
    assert loaded(captured).state() == before


def test_loaded_shard_repeats_its_answers_whole() -> None:
    shard = lived()
    before = {n: shard.decide(decide_request(n, key=f"key {n % 2}")).reply for n in (8, 9, 10, 11)}
    for n in range(20, 40):
        decided(shard, n, key="key 0")

    again = loaded(through_msgpack(shard.state()))

    for n, reply in before.items():
        handled = again.decide(decide_request(n, key=f"key {n % 2}"))
        assert (handled.reply, handled.events) == (reply, ())
        assert reply.per_arm is not None
    assert again.decide(decide_request(50, key="key 0")) == shard.decide(decide_request(50, key="key 0"))


def test_state_is_a_picture_of_one_moment() -> None:
    shard = lived()
    state = shard.state()
    kept = copy.deepcopy(state)

    for n in range(20, 40):
        reply = decided(shard, n)
        shard.outcome(outcome_request(reply, 1.0))
    shard.cancel_episode("table", "episode-8")

    assert state == kept
    assert loaded(state).counts("table")["open"] == 4


def test_state_of_a_chained_table_is_loaded() -> None:
    shard = new_shard(POOLED)
    requests = [
        dataclasses.replace(decide_request(n), keys=chain(f"b{n % 3}", "put"), allowed=("noop", "retrieve_deep"))
        for n in range(9)
    ]
    replies = [shard.decide(request).reply for request in requests]

    again = loaded(through_msgpack(shard.state()))

    assert [again.decide(request).reply for request in requests] == replies


def test_state_before_any_table_is_loaded() -> None:
    assert loaded(through_msgpack(PolicyShard(0, 1, SECRET).state())).tables() == []


# --- what is refused -------------------------------------------------------------------------------------------------


def test_state_of_another_shard_is_refused() -> None:
    state = lived().state()

    with pytest.raises(InvariantError, match=r"got \(1, 0, 1, 0\), expected \(1, 1, 2, 0\)"):
        loaded(state, 1, 2)


def test_state_is_loaded_into_a_fresh_shard_only() -> None:
    shard = lived()

    with pytest.raises(InvariantError, match="tables already here"):
        shard.load(shard.state())


def _table(state: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = state["tables"]["table"]
    return table


def _damage(state: dict[str, Any], what: str) -> None:
    table = _table(state)
    if what == "version":
        state["version"] = 2
    elif what == "missing":
        del table["numbers"]
    elif what == "settings":
        table["created"]["gamma"] = 2.0
    elif what == "choice":
        table["open"][0][6] = "noop"
    elif what == "short":
        table["open"][0] = table["open"][0][:4]
    elif what == "rows":
        table["numbers"]["rows"] = table["numbers"]["rows"][:-8]
    elif what == "end":
        table["closed"]["ends"][0][0] = "ended"
    elif what == "terms":
        table["closed"]["ends"][0][1] = "1.0"
    elif what == "ends":
        table["closed"]["ends"].pop()
    else:
        state["tables"] = [table]


@pytest.mark.parametrize(
    "what", ["version", "missing", "settings", "choice", "short", "rows", "end", "terms", "ends", "tables"]
)
def test_damaged_state_is_refused_and_leaves_the_shard_fresh(what: str) -> None:
    good = through_msgpack(lived().state())
    bad = copy.deepcopy(good)
    _damage(bad, what)
    fresh = PolicyShard(0, 1, SECRET)

    with pytest.raises(InvariantError, match="loading"):
        fresh.load(bad)

    assert fresh.tables() == []
    fresh.load(good)
    assert fresh.state() == lived().state()


# --- questions of the owner ------------------------------------------------------------------------------------------


def test_keys_are_counted_when_they_are_first_decided_at() -> None:
    shard = new_shard()
    assert shard.num_keys("table") == 0

    first, second = decided(shard), decided(shard, 2, key="other")

    assert shard.num_keys("table") == 2
    # A key stays when its decisions are taken back.
    shard.cancel(cancel_request(first))
    shard.expire("table", second.decision_id, None)
    assert shard.num_keys("table") == 2


def test_open_ids_are_oldest_first() -> None:
    shard = new_shard()
    for n in (3, 1, 2):
        decided(shard, n)
    shard.decide(decide_request(3, key="elsewhere"))

    assert shard.open_ids("table") == ["decision-1", "decision-2", "decision-3"]
    assert shard.counts("table") == {"keys": 2, "open": 3, "closed": 0, "version": 6}


def test_questions_about_a_missing_table_are_refused() -> None:
    shard = new_shard()

    for ask in (shard.num_keys, shard.open_ids, shard.counts, shard.settings):
        with pytest.raises(NotFoundError, match="tabel"):
            ask("tabel")
    with pytest.raises(NotFoundError, match="tabel"):
        shard.expire("tabel", "decision-1", None)


def test_cancel_at_a_shard_that_does_not_own_the_key_is_refused() -> None:
    owner = ids.shard_of("table", "key", 4)
    mine, other = PolicyShard(owner, 4, SECRET), PolicyShard((owner + 1) % 4, 4, SECRET)
    for shard in (mine, other):
        shard.open_table("table", SETTINGS)
    reply = decided(mine)

    with pytest.raises(NotFoundError, match=f"ask shard {owner}"):
        other.cancel(cancel_request(reply))
    assert mine.cancel(cancel_request(reply)).reply is True
