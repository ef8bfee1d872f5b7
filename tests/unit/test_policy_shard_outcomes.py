"""Outcomes and cancels at a shard: credited, duplicate, recovered, refused (architecture: "Rules")."""

from __future__ import annotations

import dataclasses
import math

import pytest

from memcon.errors import ConflictError, NotFoundError
from memcon.learning.credit import InvalidOutcomeError
from memcon.learning.events import Cancelled, Created, Credited, EpisodeClosed, Event, RecoveredDecision
from memcon.learning.exploration import FixedConfig
from memcon.learning.shard import PolicyShard
from memcon.testing.policy import cancel_request, decide_request, outcome_request
from support.shards import SECRET, SETTINGS, decided, new_shard, numbers


def test_outcome_moves_q_towards_the_return() -> None:
    shard = new_shard()
    reply = decided(shard)

    handled = shard.outcome(outcome_request(reply, 1.15, num_decisions=3, cost=0.1))

    assert (handled.reply.status, handled.reply.credit) == ("credited", 0.9**2 * 1.15 - 0.1)
    assert shard.inspect("table")["key"]["retrieve_shallow"]["q"] == 0.5 + 0.15 * (0.9**2 * 1.15 - 0.1 - 0.5)
    assert numbers(shard) == (1, 1)


def test_repeated_pair_in_an_episode_is_updated_in_order_of_time() -> None:
    # Reading A-5: the latest decision, undiscounted, comes last.
    shard = new_shard(FixedConfig(action_id="noop").learning_settings())
    replies = [shard.decide(decide_request(n, episode_id="e", position=n)).reply for n in range(3)]

    for n, reply in enumerate(replies):
        shard.outcome(outcome_request(reply, 1.0, position=n, num_decisions=3))

    expected = -0.2
    for target in (0.9**2 * 1.0, 0.9**1 * 1.0, 1.0):
        expected = expected + 0.15 * (target - expected)
    assert shard.inspect("table")["key"]["noop"]["q"] == expected


@pytest.mark.parametrize("change", [{"reward": 0.9}, {"num_decisions": 2}, {"cost": 0.1}])
def test_same_outcome_means_same_reward_length_and_cost(change: dict[str, float]) -> None:
    shard = new_shard()
    request = outcome_request(decided(shard), 1.0)
    shard.outcome(request)

    again = shard.outcome(request)

    assert (again.reply.status, again.events) == ("duplicate", ())
    with pytest.raises(ConflictError, match=r"already credited with reward 1\.0"):
        shard.outcome(dataclasses.replace(request, **change))  # type: ignore[arg-type]
    assert numbers(shard) == (1, 1)


@pytest.mark.parametrize("change", [{"reward": math.nan}, {"cost": math.inf}, {"num_decisions": 0}, {"reward": 2e6}])
def test_impossible_outcome_changes_nothing(change: dict[str, float]) -> None:
    shard = new_shard()
    request = outcome_request(decided(shard), 1.0)
    before = shard.dump("table")

    with pytest.raises(InvalidOutcomeError):
        shard.outcome(dataclasses.replace(request, **change))  # type: ignore[arg-type]

    assert shard.dump("table") == before


def test_outcome_at_another_position_than_the_token_says_is_a_conflict() -> None:
    shard = new_shard()
    request = outcome_request(decided(shard), 1.0, num_decisions=2)

    with pytest.raises(ConflictError, match="position 1"):
        shard.outcome(dataclasses.replace(request, position=1))


def test_decision_that_died_with_its_process_is_recovered_from_its_token() -> None:
    dead, alive = new_shard(), new_shard()
    reply = decided(dead)

    handled = alive.outcome(outcome_request(reply, 1.0))

    assert handled.reply.status == "recovered"
    assert handled.events == (
        Credited(
            table="table",
            decision_id="decision-1",
            reward=1.0,
            position=0,
            num_decisions=1,
            cost=0.0,
            recovered=RecoveredDecision(episode_id="episode-1", keys=("key",), action_id="retrieve_shallow"),
        ),
    )
    assert numbers(alive) == (1, 1)
    assert alive.outcome(outcome_request(reply, 1.0)).reply.status == "duplicate"
    with pytest.raises(ConflictError, match="already credited"):
        alive.decide(decide_request(1))


def test_unknown_decision_of_a_cancelled_episode_is_not_recovered() -> None:
    dead, alive = new_shard(), new_shard()
    reply = decided(dead)
    alive.cancel_episode("table", "episode-1")

    with pytest.raises(ConflictError, match="cancelled"):
        alive.outcome(outcome_request(reply, 1.0))


def test_token_of_an_arm_that_the_table_does_not_have_is_a_conflict() -> None:
    reply = decided(new_shard())
    fewer = PolicyShard(0, 1, SECRET)
    fewer.open_table("table", dataclasses.replace(SETTINGS, action_ids=("noop",), priors=(0.0,)))

    with pytest.raises(ConflictError, match="retrieve_shallow"):
        fewer.outcome(outcome_request(reply, 1.0))


def test_outcome_of_a_table_that_is_not_open_is_not_found() -> None:
    reply = decided(new_shard())

    with pytest.raises(NotFoundError, match="'table' does not exist"):
        PolicyShard(0, 1, SECRET).outcome(outcome_request(reply, 1.0))


def test_cancel_takes_the_count_back_and_closes_the_id() -> None:
    shard = new_shard()
    reply = decided(shard)

    assert shard.cancel(cancel_request(reply)).reply is True

    assert numbers(shard) == (0, 0)
    again = shard.cancel(cancel_request(reply))
    assert (again.reply, again.events) == (False, ())
    with pytest.raises(ConflictError, match="already cancelled"):
        shard.outcome(outcome_request(reply, 1.0))
    with pytest.raises(ConflictError, match="already cancelled"):
        shard.decide(decide_request(1))


def test_cancel_of_a_credited_decision_is_a_conflict() -> None:
    shard = new_shard()
    reply = decided(shard)
    shard.outcome(outcome_request(reply, 1.0))

    with pytest.raises(ConflictError, match="already credited"):
        shard.cancel(cancel_request(reply))


def test_cancelled_first_visit_is_due_again() -> None:
    shard = new_shard()
    shard.cancel(cancel_request(decided(shard)))

    assert decided(shard, 2).action_id == "retrieve_shallow"


def test_cancelled_episode_refuses_later_decides_also_after_a_fold() -> None:
    shard = new_shard()
    journal: list[Event] = [Created(table="table", settings=SETTINGS)]
    journal.extend(shard.decide(decide_request(1, episode_id="e")).events)
    handled = shard.cancel_episode("table", "e")
    journal.extend(handled.events)

    assert handled.reply == 1
    assert [type(event) for event in handled.events] == [Cancelled, EpisodeClosed]
    folded = PolicyShard(0, 1, SECRET)
    for event in journal:
        folded.apply(event)
    for owner in (shard, folded):
        with pytest.raises(ConflictError, match="'e' was cancelled"):
            owner.decide(decide_request(2, episode_id="e", position=1))
        assert owner.cancel_episode("table", "e").events == ()
