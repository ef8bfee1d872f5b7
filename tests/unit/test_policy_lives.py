"""What becomes of a decision without an outcome in time, and of the outcomes and cancels that still come for it."""

from __future__ import annotations

import dataclasses
import math

import pytest

from memcon.errors import ConflictError, InvariantError, NotFoundError
from memcon.learning import decision_token
from memcon.learning.credit import InvalidOutcomeError
from memcon.learning.events import Cancelled, Credited, Event, Expired, Recorded, RecoveredDecision
from memcon.learning.shard import PolicyShard
from memcon.policy_types import CancelRequest
from memcon.seeds import SeedTree
from memcon.testing.policy import cancel_request, decide_request, outcome_request
from support.shards import SECRET, SETTINGS, decided, new_shard, numbers

SHALLOW = RecoveredDecision(episode_id="episode-1", keys=("key",), action_id="retrieve_shallow")


def q(shard: PolicyShard, arm: str = "retrieve_shallow") -> float:
    value = shard.inspect("table")["key"][arm]["q"]
    assert isinstance(value, float)
    return value


# --- expired ---------------------------------------------------------------------------------------------------------


def test_expired_decision_gives_its_count_back_and_its_arm_is_due_again() -> None:
    shard = new_shard()
    decided(shard)

    handled = shard.expire("table", "decision-1", None)

    assert handled.reply is True
    assert handled.events == (Expired(table="table", decision_id="decision-1", default_reward=None),)
    assert numbers(shard) == (0, 0)
    assert shard.open_ids("table") == []
    assert decided(shard, 2).action_id == "retrieve_shallow"


def test_outcome_of_an_expired_decision_is_late_and_credited_with_its_count() -> None:
    shard = new_shard()
    reply = decided(shard)
    shard.expire("table", "decision-1", None)

    handled = shard.outcome(outcome_request(reply, 1.0))

    assert (handled.reply.status, handled.reply.credit) == ("late", 1.0)
    assert handled.events == (
        Credited(
            table="table",
            decision_id="decision-1",
            reward=1.0,
            position=0,
            num_decisions=1,
            cost=0.0,
            recovered=SHALLOW,
            late=True,
        ),
    )
    assert numbers(shard) == (1, 1)
    assert q(shard) == 0.5 + 0.15 * (1.0 - 0.5)


def test_late_outcome_counts_once() -> None:
    shard = new_shard()
    reply = decided(shard)
    shard.expire("table", "decision-1", None)
    shard.outcome(outcome_request(reply, 1.0))

    again = shard.outcome(outcome_request(reply, 1.0))

    assert (again.reply.status, again.events) == ("duplicate", ())
    with pytest.raises(ConflictError, match=r"already credited with reward 1\.0"):
        shard.outcome(outcome_request(reply, 0.5))
    with pytest.raises(ConflictError, match="already credited"):
        shard.cancel(cancel_request(reply))
    assert numbers(shard) == (1, 1)


def test_expired_decision_that_was_decided_again_elsewhere_takes_only_the_last_token() -> None:
    shard = new_shard()
    earlier, later = decided(shard), decided(shard, key="elsewhere")
    shard.expire("table", "decision-1", None)

    with pytest.raises(ConflictError, match="another key"):
        shard.outcome(outcome_request(earlier, 1.0))
    assert shard.outcome(outcome_request(later, 1.0)).reply.status == "late"
    assert numbers(shard) == (0, 0)
    assert numbers(shard, key="elsewhere") == (1, 1)


def test_expired_decision_of_an_episode_that_was_cancelled_takes_no_outcome() -> None:
    shard = new_shard()
    reply = decided(shard, episode_id="e")
    shard.expire("table", "decision-1", None)
    shard.cancel_episode("table", "e")

    with pytest.raises(ConflictError, match="'e' was cancelled"):
        shard.outcome(outcome_request(reply, 1.0))
    assert numbers(shard) == (0, 0)


# --- expired with a default outcome ----------------------------------------------------------------------------------


def test_default_outcome_is_learned_undiscounted_when_a_decision_expires() -> None:
    shard = new_shard()
    shard.decide(decide_request(1, position=3))

    handled = shard.expire("table", "decision-1", -0.25)

    assert handled.events == (Expired(table="table", decision_id="decision-1", default_reward=-0.25),)
    assert numbers(shard) == (1, 1)
    assert q(shard) == 0.5 + 0.15 * (-0.25 - 0.5)


def test_outcome_after_the_default_one_is_recorded_and_not_applied() -> None:
    shard = new_shard()
    reply = decided(shard)
    shard.expire("table", "decision-1", -0.25)
    value = q(shard)

    handled = shard.outcome(outcome_request(reply, 1.0))

    # The credit is what the decision did teach.
    assert (handled.reply.status, handled.reply.credit) == ("not_applied", -0.25)
    assert handled.events == (
        Recorded(table="table", decision_id="decision-1", reward=1.0, position=0, num_decisions=1, cost=0.0),
    )
    assert (numbers(shard), q(shard)) == ((1, 1), value)
    assert shard.cancel(cancel_request(reply)).reply is False


@pytest.mark.parametrize("change", [{"reward": 0.9}, {"num_decisions": 2}, {"cost": 0.1}])
def test_recorded_outcome_may_be_repeated_and_not_changed(change: dict[str, float]) -> None:
    shard = new_shard()
    request = outcome_request(decided(shard), 1.0)
    shard.expire("table", "decision-1", -0.25)
    shard.outcome(request)

    again = shard.outcome(request)

    assert (again.reply.status, again.reply.credit, again.events) == ("duplicate", -0.25, ())
    with pytest.raises(ConflictError, match=r"already defaulted with reward 1\.0"):
        shard.outcome(dataclasses.replace(request, **change))  # type: ignore[arg-type]


def test_outcome_with_the_token_of_an_earlier_choice_is_not_recorded() -> None:
    shard = new_shard()
    earlier = decided(shard)
    decided(shard, key="elsewhere")
    shard.expire("table", "decision-1", 0.0)

    with pytest.raises(ConflictError, match="another key"):
        shard.outcome(outcome_request(earlier, 1.0))


@pytest.mark.parametrize("default", [math.nan, math.inf, 2e6])
def test_impossible_default_outcome_changes_nothing(default: float) -> None:
    shard = new_shard()
    decided(shard)
    before = shard.dump("table")

    with pytest.raises(InvalidOutcomeError):
        shard.expire("table", "decision-1", default)

    assert shard.dump("table") == before


# --- what has no effect ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("default", [None, 0.5])
def test_cancel_of_an_expired_decision_has_no_effect(default: float | None) -> None:
    shard = new_shard()
    reply = decided(shard)
    shard.expire("table", "decision-1", default)
    before = shard.dump("table")

    handled = shard.cancel(cancel_request(reply))

    assert (handled.reply, handled.events) == (False, ())
    assert shard.dump("table") == before
    assert shard.outcome(outcome_request(reply, 1.0)).reply.status == ("late" if default is None else "not_applied")


def test_cancel_of_an_unknown_decision_has_no_effect_and_forbids_nothing() -> None:
    dead, alive = new_shard(), new_shard()
    reply = decided(dead)

    handled = alive.cancel(cancel_request(reply))

    assert (handled.reply, handled.events) == (False, ())
    assert alive.outcome(outcome_request(reply, 1.0)).reply.status == "recovered"


def test_cancel_with_the_token_of_an_earlier_choice_leaves_the_last_one_open() -> None:
    shard = new_shard()
    earlier, later = decided(shard), decided(shard, key="elsewhere")

    assert shard.cancel(cancel_request(earlier)).events == ()

    assert shard.outcome(outcome_request(later, 1.0)).reply.status == "credited"


@pytest.mark.parametrize("end", ["credited", "cancelled", "expired", "unknown"])
def test_only_an_open_decision_expires(end: str) -> None:
    shard = new_shard()
    reply = decided(shard)
    if end == "credited":
        shard.outcome(outcome_request(reply, 1.0))
    elif end == "cancelled":
        shard.cancel(cancel_request(reply))
    elif end == "expired":
        shard.expire("table", "decision-1", None)
    before = shard.dump("table")

    handled = shard.expire("table", "decision-9" if end == "unknown" else "decision-1", 0.5)

    assert (handled.reply, handled.events) == (False, ())
    assert shard.dump("table") == before


@pytest.mark.parametrize(("default", "state"), [(None, "expired"), (0.0, "defaulted")])
def test_id_of_an_expired_decision_is_not_decided_again(default: float | None, state: str) -> None:
    shard = new_shard()
    decided(shard)
    shard.expire("table", "decision-1", default)

    with pytest.raises(ConflictError, match=f"already {state}"):
        shard.decide(decide_request(1))


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_cancel_needs_a_valid_token_of_its_own_decision() -> None:
    shard = new_shard()
    reply, other = decided(shard), decided(shard, 2)
    forged = decision_token.sign(b"some other secret than theirs", decision_token.read(reply.token))
    before = shard.dump("table")

    for token in (forged, "", "no token", reply.token[:-2]):
        with pytest.raises(NotFoundError, match="token"):
            shard.cancel(CancelRequest(decision_id=reply.decision_id, token=token))
    with pytest.raises(ConflictError, match="its own token"):
        shard.cancel(CancelRequest(decision_id=reply.decision_id, token=other.token))

    assert shard.dump("table") == before


def test_outcomes_that_come_in_any_order_and_twice_count_once_each() -> None:
    chance = SeedTree(("shuffled",)).generator()
    shard, expected = new_shard(), new_shard()
    # One key an outcome: order matters within a key only.
    requests = [outcome_request(decided(shard, n, key=f"key {n}"), n / 7) for n in range(40)]
    for n in range(40):
        expected.outcome(outcome_request(decided(expected, n, key=f"key {n}"), n / 7))
    twice = [*requests, *requests]
    chance.shuffle(twice)

    statuses = [shard.outcome(request).reply.status for request in twice]

    assert (statuses.count("credited"), statuses.count("duplicate")) == (40, 40)
    assert shard.dump("table") == expected.dump("table")


# --- the fold --------------------------------------------------------------------------------------------------------


def _credited(**changes: object) -> Credited:
    late = Credited(
        table="table",
        decision_id="decision-1",
        reward=1.0,
        position=0,
        num_decisions=1,
        cost=0.0,
        recovered=SHALLOW,
        late=True,
    )
    return dataclasses.replace(late, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "event",
    [
        _credited(decision_id="unknown"),
        _credited(decision_id="decision-2"),
        _credited(decision_id="decision-3"),
        _credited(late=False),
        _credited(recovered=None),
        _credited(recovered=dataclasses.replace(SHALLOW, action_id="noop")),
        _credited(recovered=dataclasses.replace(SHALLOW, keys=("elsewhere",))),
        Expired(table="table", decision_id="decision-1", default_reward=None),
        Expired(table="table", decision_id="unknown", default_reward=None),
        Expired(table="table", decision_id="decision-3", default_reward=math.nan),
        Cancelled(table="table", decision_id="decision-1", reason="cancelled"),
        Recorded(table="table", decision_id="decision-1", reward=1.0, position=0, num_decisions=1, cost=0.0),
        Recorded(table="table", decision_id="decision-2", reward=0.5, position=0, num_decisions=1, cost=0.0),
        Recorded(table="table", decision_id="unknown", reward=1.0, position=0, num_decisions=1, cost=0.0),
    ],
)
def test_fold_refuses_an_end_that_cannot_follow(event: Event) -> None:
    # 1 is expired, 2 is defaulted and has its outcome, 3 is open.
    shard = new_shard()
    replies = [decided(shard, n) for n in (1, 2, 3)]
    shard.expire("table", "decision-1", None)
    shard.expire("table", "decision-2", 0.0)
    shard.outcome(outcome_request(replies[1], 1.0))

    with pytest.raises(InvariantError):
        shard.apply(event)


def test_fold_gives_every_end_back() -> None:
    shard = PolicyShard(0, 1, SECRET)
    journal: list[Event] = [*shard.open_table("table", SETTINGS).events]
    replies = []
    for n in range(6):
        handled = shard.decide(decide_request(n))
        journal.extend(handled.events)
        replies.append(handled.reply)
    journal.extend(shard.expire("table", "decision-0", None).events)
    journal.extend(shard.expire("table", "decision-1", None).events)
    journal.extend(shard.expire("table", "decision-2", 0.5).events)
    journal.extend(shard.expire("table", "decision-3", 0.5).events)
    journal.extend(shard.outcome(outcome_request(replies[1], 1.0)).events)
    journal.extend(shard.outcome(outcome_request(replies[3], 1.0)).events)
    journal.extend(shard.cancel(cancel_request(replies[4])).events)

    folded = PolicyShard(0, 1, SECRET)
    for event in journal:
        folded.apply(event)

    assert folded.dump("table") == shard.dump("table")
    for owner in (shard, folded):
        assert [owner.outcome(outcome_request(reply, 1.0)).reply.status for reply in replies[:4]] == [
            "late",
            "duplicate",
            "not_applied",
            "duplicate",
        ]
