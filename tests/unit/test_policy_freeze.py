"""A table that is frozen and thawed while decisions are open: what counts, what teaches, what the fold gives."""

from __future__ import annotations

import dataclasses

import pytest

from memcon.errors import ConflictError, InvariantError, NotFoundError
from memcon.learning.events import Created, Event, SettingsChanged
from memcon.learning.exploration import UcbConfig
from memcon.learning.shard import PolicyShard
from memcon.testing.policy import cancel_request, decide_request, outcome_request
from support.shards import SECRET, SETTINGS, decided, new_shard, numbers

FROZEN = dataclasses.replace(SETTINGS, frozen=True)


def test_freezing_is_one_event_and_again_is_none() -> None:
    shard = new_shard()

    first, again = shard.freeze_table("table", True), shard.freeze_table("table", True)

    assert (first.reply, first.events) == (True, (SettingsChanged(table="table", settings=FROZEN),))
    assert (again.reply, again.events) == (False, ())
    assert shard.settings("table") == FROZEN
    assert shard.dump("table")["settings"]["frozen"] is True


def test_frozen_table_keeps_its_numbers_until_it_is_thawed() -> None:
    shard = new_shard()
    shard.outcome(outcome_request(decided(shard), 1.0))
    before = shard.dump("table")["numbers"]
    shard.freeze_table("table", True)

    replies = [decided(shard, n) for n in range(2, 6)]
    shard.outcome(outcome_request(replies[0], 1.0))
    shard.cancel(cancel_request(replies[1]))
    shard.expire("table", "decision-4", None)
    shard.expire("table", "decision-5", 1.0)

    assert shard.dump("table")["numbers"] == before
    shard.freeze_table("table", False)
    shard.outcome(outcome_request(decided(shard, 6), 1.0))
    assert numbers(shard, "retrieve_medium") == (1, 1)


def test_decision_that_ends_while_the_table_is_frozen_stays_counted_and_teaches_nothing() -> None:
    shard = new_shard()
    replies = [decided(shard, n) for n in range(3)]
    shard.freeze_table("table", True)

    assert shard.outcome(outcome_request(replies[0], 1.0)).reply.status == "credited"
    assert shard.cancel(cancel_request(replies[1])).reply is True
    shard.freeze_table("table", False)

    arms = [reply.action_id for reply in replies]
    assert [numbers(shard, arm) for arm in arms] == [(1, 0), (1, 0), (1, 0)]
    # What is still open ends as ever.
    shard.outcome(outcome_request(replies[2], 1.0))
    assert numbers(shard, arms[2]) == (1, 1)


@pytest.mark.parametrize("end", ["outcome", "cancel", "expire", "default", "move"])
def test_decision_that_was_taken_while_the_table_was_frozen_counts_with_its_outcome(end: str) -> None:
    shard = new_shard(FROZEN)
    reply = decided(shard)
    shard.freeze_table("table", False)

    if end == "outcome":
        shard.outcome(outcome_request(reply, 1.0))
    elif end == "cancel":
        shard.cancel(cancel_request(reply))
    elif end == "move":
        shard.decide(decide_request(1, key="elsewhere"))
    else:
        shard.expire("table", "decision-1", 0.25 if end == "default" else None)

    counted = {key: (row["retrieve_shallow"]["taken"]) for key, row in shard.inspect("table").items()}
    assert counted == {"outcome": {"key": 1}, "default": {"key": 1}, "move": {"elsewhere": 1}}.get(end, {})


def test_decision_that_expired_while_the_table_was_frozen_is_counted_once_by_its_late_outcome() -> None:
    shard = new_shard()
    reply = decided(shard)
    shard.freeze_table("table", True)
    shard.expire("table", "decision-1", None)
    shard.freeze_table("table", False)
    assert numbers(shard) == (1, 0)

    assert shard.outcome(outcome_request(reply, 1.0)).reply.status == "late"

    assert numbers(shard) == (1, 1)


def test_repeated_decide_of_an_open_id_is_answered_alike_whatever_was_frozen_meanwhile() -> None:
    shard = new_shard()
    first = decided(shard)
    shard.freeze_table("table", True)

    assert shard.decide(decide_request(1)).reply == first


def test_table_is_opened_again_with_its_first_or_with_its_present_settings() -> None:
    shard = new_shard()
    shard.freeze_table("table", True)

    assert shard.open_table("table", SETTINGS).events == ()
    assert shard.open_table("table", FROZEN).events == ()
    with pytest.raises(ConflictError, match="alpha"):
        shard.open_table("table", UcbConfig(alpha=0.5).learning_settings())
    # A start of the server with the same config does not thaw a table.
    assert shard.settings("table").frozen


def test_freeze_needs_a_table() -> None:
    with pytest.raises(NotFoundError, match="tabel"):
        new_shard().freeze_table("tabel", True)


def _history() -> tuple[list[Event], PolicyShard]:
    shard = PolicyShard(0, 1, SECRET)
    events: list[Event] = [*shard.open_table("table", SETTINGS).events]
    for n in range(40):
        if n % 7 == 3:
            events.extend(shard.freeze_table("table", n % 2 == 1).events)
        handled = shard.decide(decide_request(n))
        events.extend(handled.events)
        if n % 3:
            events.extend(shard.outcome(outcome_request(handled.reply, 1.0)).events)
    return events, shard


def test_fold_of_a_table_that_was_frozen_on_the_way_gives_the_same_bits() -> None:
    events, shard = _history()
    folded = PolicyShard(0, 1, SECRET)

    for event in events:
        folded.apply(event)

    assert folded.dump("table") == shard.dump("table")
    assert sum(isinstance(event, SettingsChanged) for event in events) > 2
    # Some are open from before the last change, and the dump tells which.
    assert folded.dump("table")["open_from_before_freeze_or_thaw"]


@pytest.mark.parametrize(
    "event",
    [
        SettingsChanged(table="table", settings=dataclasses.replace(FROZEN, alpha=0.5)),
        SettingsChanged(table="table", settings=dataclasses.replace(SETTINGS, closed_kept=5)),
        SettingsChanged(table="nowhere", settings=FROZEN),
        Created(table="table", settings=FROZEN),
    ],
)
def test_fold_refuses_a_change_of_anything_else(event: Event) -> None:
    with pytest.raises(InvariantError):
        new_shard().apply(event)
