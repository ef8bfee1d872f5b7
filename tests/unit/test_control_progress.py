"""Progress signals from a transcript (MC-4 to MC-6)."""

from __future__ import annotations

import pytest

from memcon.control.progress import ProgressMatcher, ProgressTracker
from memcon.errors import ConfigError, InvariantError
from memcon.types import ProgressRules
from support.control import HOUSEHOLD_RULES, steps_of


def tracker_after(*texts: str, refused: tuple[str, ...] = ()) -> ProgressTracker:
    tracker = ProgressTracker(ProgressMatcher(HOUSEHOLD_RULES))
    tracker.advance(steps_of(*texts, refused=refused))
    return tracker


@pytest.mark.parametrize(
    ("texts", "stuck"),
    [
        ((), False),
        (("look",), False),
        (("look", "look"), True),
        (("look", "think: hm", "look"), True),
        (("Go  to shelf 1", "go to SHELF 1 "), True),
        (("look", "inventory", "look"), False),
        (("look", "look", "inventory"), False),
        (("look", "look", "inventory", "inventory"), True),
    ],
)
def test_stuck_is_two_equal_physical_actions_in_a_row(texts: tuple[str, ...], stuck: bool) -> None:
    assert tracker_after(*texts).is_stuck is stuck


def test_repeating_a_refused_action_is_stuck_too() -> None:
    assert tracker_after("open shelf 1", "open shelf 1", refused=("open shelf 1",)).is_stuck


def test_held_follows_take_and_put() -> None:
    tracker = ProgressTracker(ProgressMatcher(HOUSEHOLD_RULES))
    texts = ["take mug 1 from shelf 1", "take pen 1 from shelf 1", "put mug 1 in/on shelf 1", "move pen 1 to shelf 1"]
    held = []
    for number in range(1, len(texts) + 1):
        tracker.advance(steps_of(*texts[:number]))
        held.append(tracker.objects_held)
    assert held == [1, 2, 1, 0]


def test_held_is_never_below_zero() -> None:
    assert tracker_after("put mug 1 in shelf 1", "put mug 1 in shelf 1").objects_held == 0


def test_refused_actions_move_nothing() -> None:
    take, go = "take mug 1 from shelf 1", "go to shelf 1"
    tracker = tracker_after(take, go, refused=(take, go))
    assert (tracker.objects_held, tracker.locations_visited, tracker.num_actions) == (0, 0, 2)


def test_places_count_once_whatever_their_case() -> None:
    assert tracker_after("go to shelf 1", "Go to  Shelf 1", "go to shelf 2", "look").locations_visited == 2


def test_thoughts_are_no_steps() -> None:
    tracker = tracker_after("think: go to shelf 1", "go to shelf 2")
    assert (tracker.num_actions, tracker.locations_visited) == (1, 1)


def test_each_step_is_read_once() -> None:
    # Rereading a transcript would count 'take' twice if objects were counters, and cost quadratic time.
    reads = []

    class Counting(ProgressMatcher):
        def taken(self, action: str) -> str | None:
            reads.append(action)
            return super().taken(action)

    tracker = ProgressTracker(Counting(HOUSEHOLD_RULES))
    for number in range(1, 6):
        tracker.advance(steps_of(*["look"] * number))
        tracker.advance(steps_of(*["look"] * number))
    assert len(reads) == 5


def test_a_shrinking_transcript_is_refused() -> None:
    tracker = tracker_after("look", "look")
    with pytest.raises(InvariantError, match="1 steps after it had 2"):
        tracker.advance(steps_of("look"))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (ProgressRules(take="take (", release="(?P<object>x)", visit="(?P<place>x)"), "take"),
        (ProgressRules(take="(?P<object>x)", release="put .*", visit="(?P<place>x)"), r"group \(\?P<object>"),
    ],
)
def test_broken_rules_are_refused_by_name(rules: ProgressRules, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProgressMatcher(rules)
