"""How many ended decisions and episodes a table remembers, and what becomes of one that it has forgotten."""

from __future__ import annotations

import dataclasses

import pytest

from memcon.errors import ConfigError, ConflictError
from memcon.learning.closed import ClosedDecisions, choice_mark
from memcon.learning.settings import encode_settings
from memcon.learning.shard import PolicyShard
from memcon.testing.policy import cancel_request, outcome_request, state_keys, table_import
from support.shards import SECRET, SETTINGS, decided, new_shard, numbers

THREE = dataclasses.replace(SETTINGS, closed_kept=3)


def test_table_without_a_bound_remembers_every_end() -> None:
    shard = new_shard()
    for n in range(100):
        shard.outcome(outcome_request(decided(shard, n), 1.0))

    assert shard.counts("table")["closed"] == 100


def test_table_forgets_the_oldest_end_first() -> None:
    shard = new_shard(THREE)
    replies = [decided(shard, n) for n in range(5)]
    # They end in another order than they were decided.
    shard.outcome(outcome_request(replies[4], 1.0))
    shard.cancel(cancel_request(replies[0]))
    shard.expire("table", "decision-1", None)
    shard.outcome(outcome_request(replies[2], 1.0))

    assert list(shard.dump("table")["closed"]) == ["decision-0", "decision-1", "decision-2"]
    assert shard.open_ids("table") == ["decision-3"]


def test_forgotten_decision_is_an_unknown_one() -> None:
    # Why the bound must be far above what a client may still repeat.
    shard = new_shard(THREE)
    first = outcome_request(decided(shard), 1.0)
    shard.outcome(first)
    for n in range(2, 5):
        shard.outcome(outcome_request(decided(shard, n), 1.0))

    assert shard.outcome(first).reply.status == "recovered"
    assert numbers(shard) == (2, 2)


def test_decision_that_ends_twice_is_remembered_from_its_second_end() -> None:
    shard = new_shard(THREE)
    late, recorded = decided(shard, 1), decided(shard, 2)
    shard.expire("table", "decision-1", None)
    shard.expire("table", "decision-2", 0.0)
    shard.cancel(cancel_request(decided(shard, 3)))
    shard.outcome(outcome_request(late, 1.0))
    shard.outcome(outcome_request(recorded, 1.0))

    # 3 is the oldest now, then 1, then 2.
    for n, kept in ((4, {1, 2, 4}), (5, {2, 4, 5}), (6, {4, 5, 6})):
        shard.cancel(cancel_request(decided(shard, n)))
        assert set(shard.dump("table")["closed"]) == {f"decision-{number}" for number in kept}


def test_table_forgets_the_oldest_cancelled_episode_first() -> None:
    shard = new_shard(THREE)
    for n in range(4):
        shard.cancel_episode("table", f"episode-{n}")
        # Again is without effect on their order.
        shard.cancel_episode("table", "episode-1")

    assert shard.dump("table")["closed_episodes"] == ["episode-1", "episode-2", "episode-3"]
    decided(shard, 0)
    with pytest.raises(ConflictError, match="cancelled"):
        decided(shard, 1)


def test_episode_that_several_shards_closed_is_one() -> None:
    # Their journals may be folded together, and each has the event.
    closed = ClosedDecisions(2)

    for episode_id in ("a", "a", "b", "c"):
        closed.close_episode(episode_id)

    assert [closed.has_episode(episode_id) for episode_id in "abc"] == [False, True, True]


def test_bound_holds_over_many_ends() -> None:
    # As many as a scan for the oldest one would take 5 s for.
    closed = ClosedDecisions(50_000)

    for n in range(200_000):
        closed.cancel(str(n))

    assert len(closed) == 50_000
    assert ("149999" in closed, "150000" in closed) == (False, True)


@pytest.mark.parametrize("kept", [0, -1, 2.0, True])
def test_impossible_bound_is_refused(kept: int) -> None:
    with pytest.raises(ConfigError, match="closed_kept"):
        PolicyShard(0, 1, SECRET).open_table("table", dataclasses.replace(SETTINGS, closed_kept=kept))


def test_bound_stands_in_the_settings_only_where_there_is_one() -> None:
    assert "closed_kept" not in encode_settings(SETTINGS)
    assert encode_settings(THREE)["closed_kept"] == 3


def test_mark_tells_choices_apart() -> None:
    choices = [(("a",), "noop"), (("b",), "noop"), (("a",), "forget"), (("a", "noop"), ""), ((), "a")]

    assert len({choice_mark(*choice) for choice in choices}) == len(choices)


def test_table_that_has_forgotten_its_decisions_still_refuses_an_import() -> None:
    shard = new_shard(dataclasses.replace(SETTINGS, closed_kept=1))
    for n in range(3):
        decided(shard, n, key="k")
        shard.expire("table", f"decision-{n}", None)

    assert shard.counts("table") == {"keys": 1, "open": 0, "closed": 1, "version": 7}
    with pytest.raises(ConflictError, match="decisions already"):
        shard.import_table(table_import(state_keys(1)))
