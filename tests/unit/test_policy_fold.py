"""The fold of a journal: what it gives back, what it refuses; and the views of a whole table."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from memcon import ids
from memcon.errors import InvariantError, NotFoundError
from memcon.learning.events import Cancelled, Created, Credited, Decided, Event, RecoveredDecision
from memcon.learning.exploration import UcbConfig
from memcon.learning.shard import PolicyShard
from memcon.testing.policy import decide_request, outcome_request
from support.shards import SECRET, SETTINGS, decided, new_shard


def _journal() -> list[Event]:
    shard = PolicyShard(0, 1, SECRET)
    events: list[Event] = [*shard.open_table("table", SETTINGS).events]
    for n in range(30):
        handled = shard.decide(decide_request(n))
        outcome = shard.outcome(outcome_request(handled.reply, 1.0 if n % 2 else -0.5))
        events.extend((*handled.events, *outcome.events))
    return events


def _fold(events: list[Event]) -> PolicyShard:
    shard = PolicyShard(0, 1, SECRET)
    for event in events:
        shard.apply(event)
    return shard


def test_fold_gives_open_decisions_their_answers_back() -> None:
    shard = new_shard()
    replies = [decided(shard, n) for n in range(12)]
    journal: list[Event] = [Created(table="table", settings=SETTINGS)]
    again = PolicyShard(0, 1, SECRET)
    again.open_table("table", SETTINGS)
    for n in range(12):
        journal.extend(again.decide(decide_request(n)).events)

    folded = _fold(journal)

    assert [folded.decide(decide_request(n)).reply for n in range(12)] == replies


def test_fold_names_the_event_whose_arm_was_altered() -> None:
    journal = _journal()
    event = journal[5]
    assert isinstance(event, Decided)
    journal[5] = dataclasses.replace(event, action_id="noop")

    with pytest.raises(InvariantError, match=r"decision-2.*'noop'.*gives 'retrieve_deep'"):
        _fold(journal)


def test_fold_meets_an_altered_reward_at_the_first_choice_that_it_would_change() -> None:
    journal = _journal()
    event = journal[2]
    assert isinstance(event, Credited)
    journal[2] = dataclasses.replace(event, reward=50.0)

    with pytest.raises(InvariantError, match="altered or lost"):
        _fold(journal)


@pytest.mark.parametrize(
    "event",
    [
        Created(table="table", settings=UcbConfig(alpha=0.3).learning_settings()),
        Cancelled(table="table", decision_id="decision-0", reason="cancelled"),
        Cancelled(table="table", decision_id="unknown", reason="cancelled"),
        Cancelled(table="nowhere", decision_id="decision-0", reason="cancelled"),
        Credited(table="table", decision_id="decision-0", reward=1.0, position=0, num_decisions=1, cost=0.0),
        Credited(table="table", decision_id="decision-30", reward=math.nan, position=0, num_decisions=1, cost=0.0),
        Credited(
            table="table",
            decision_id="decision-0",
            reward=1.0,
            position=0,
            num_decisions=1,
            cost=0.0,
            recovered=RecoveredDecision(episode_id="e", keys=("key",), action_id="noop"),
        ),
        Credited(
            table="table",
            decision_id="new",
            reward=1.0,
            position=0,
            num_decisions=1,
            cost=0.0,
            recovered=RecoveredDecision(episode_id="e", keys=(), action_id="noop"),
        ),
        Decided(
            table="table", decision_id="x", episode_id="e", position=0, keys=(), draw=0, allowed=None, action_id="noop"
        ),
        Decided(
            table="table",
            decision_id="x",
            episode_id="e",
            position=0,
            keys=("k",),
            draw=0,
            allowed=("y",),
            action_id="y",
        ),
        Decided(
            table="table",
            decision_id="decision-0",
            episode_id="e",
            position=0,
            keys=("new",),
            draw=0,
            allowed=None,
            action_id="retrieve_shallow",
        ),
    ],
)
def test_fold_refuses_an_event_that_cannot_follow(event: Event) -> None:
    shard = _fold(_journal())

    with pytest.raises(InvariantError):
        shard.apply(event)


def test_fold_refuses_the_events_of_another_shard() -> None:
    other = (ids.shard_of("table", "key", 4) + 1) % 4
    shard = PolicyShard(other, 4, SECRET)
    created, first, *_ = _journal()
    shard.apply(created)

    with pytest.raises(InvariantError, match="does not own"):
        shard.apply(first)


def test_fold_refuses_a_table_with_impossible_settings() -> None:
    with pytest.raises(InvariantError, match="gamma"):
        PolicyShard(0, 1, SECRET).apply(Created(table="t", settings=dataclasses.replace(SETTINGS, gamma=2.0)))


def test_inspect_shows_counts_values_and_bonuses() -> None:
    shard = new_shard()
    shard.outcome(outcome_request(decided(shard), 1.0))
    decided(shard, 2)

    table = shard.inspect("table")

    shown = table["key"]["retrieve_shallow"]
    assert (shown["taken"], shown["credited"], shown["bonus"]) == (1, 1, 1.4 * math.sqrt(math.log(2) / 1))
    assert shown["score"] == 0.5 + 0.15 * 0.5 + 1.4 * math.sqrt(math.log(2) / 1)
    assert table["key"]["noop"] == {"q": -0.2, "taken": 0, "credited": 0, "bonus": None, "score": None}
    json.dumps(table, allow_nan=False)


def test_dump_is_json_and_holds_open_and_closed_decisions() -> None:
    shard = new_shard()
    shard.outcome(outcome_request(decided(shard), 1.0))
    decided(shard, 2)
    decided(shard, 3, episode_id="e")
    shard.cancel_episode("table", "e")

    dump = json.loads(json.dumps(shard.dump("table"), allow_nan=False))

    assert list(dump["open"]) == ["decision-2"]
    assert dump["closed"] == {"decision-1": [(1.0).hex(), 1, (0.0).hex()], "decision-3": "cancelled"}
    assert dump["closed_episodes"] == ["e"]


def test_views_of_a_missing_table_are_refused() -> None:
    shard = new_shard()

    with pytest.raises(NotFoundError, match="tables here: table"):
        shard.dump("tabel")
    with pytest.raises(NotFoundError):
        shard.inspect("tabel")
    with pytest.raises(NotFoundError):
        shard.cancel_episode("tabel", "e")
