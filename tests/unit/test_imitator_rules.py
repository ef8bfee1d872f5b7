"""The numbers behind the imitator's choice: likeness, attention, place in a piece, votes, exploration."""

from __future__ import annotations

import math

import pytest

from memcon_workers.backbones.experience import Experience, read_insight, read_plans, read_trajectory
from memcon_workers.backbones.exploring import explore, fold
from memcon_workers.backbones.goals import Signature, open_goal, parse_goal, signature
from memcon_workers.backbones.matching import match
from memcon_workers.backbones.names import parse_action
from memcon_workers.backbones.votes import Ballot, attention, position_weights

MUG = "put a clean mug in shelf."


def step_of(goal: str | None, action: str) -> Signature:
    return signature(open_goal(parse_goal(goal) if goal else None, ""), parse_action(action))


def a_piece(goal: str, *actions: str, success: bool = True) -> Experience:
    lines = [f"Task: {goal}", f"Outcome: {'success' if success else 'failure'}", "Observation: a room."]
    return read_trajectory("\n".join(lines + [line for action in actions for line in (f"> {action}", "Done.")]))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        # Same kind and role for both names.
        ((MUG, "take mug 1 from desk 1"), (MUG, "take mug 9 from desk 4"), 1.0),
        # The skeleton differs.
        ((MUG, "take mug 1 from desk 1"), (MUG, "put mug 1 in desk 1"), 0.0),
        # Same kind, other role; mug and shelf form no pair in the other goal.
        ((MUG, "go to desk 1"), ("put a mug in desk.", "go to desk 2"), 0.35),
        # Other kinds: both of the goal, both not, one of each.
        ((MUG, "go to shelf 1"), ("put a pan in sink.", "go to sink 1"), 0.6),
        ((MUG, "go to desk 1"), (MUG, "go to bed 1"), 0.3),
        ((MUG, "go to desk 1"), (MUG, "go to shelf 1"), 0.1),
        # One pair, one not: .3, times same kind and other role.
        ((MUG, "put mug 1 in shelf 1"), ("put a mug in desk.", "put mug 1 in shelf 1"), 0.3 * 0.35),
        # Role unknown: .7 for the pair, .8 same kind, .3 other kind.
        ((None, "take [mug] from [desk]"), (MUG, "take mug 1 from desk 1"), 0.7 * 0.8 * 0.8),
        ((None, "go to [bed]"), (MUG, "go to desk 1"), 0.3),
    ],
)
def test_likeness(left: tuple[str | None, str], right: tuple[str | None, str], expected: float) -> None:
    first, second = step_of(*left), step_of(*right)
    assert match(first, second) == pytest.approx(expected)
    assert match(second, first) == pytest.approx(expected)


def test_attention_is_shared_over_all_pieces_and_failures_lose_after_the_sharing() -> None:
    own, other = a_piece(MUG, "look"), a_piece("examine book.", "look")
    failed = a_piece(MUG, "look", success=False)
    rule = read_insight("examine book: after 'a 1' do 'b 1'")
    goal = parse_goal(MUG)
    weights = attention(goal, (own, other, failed, rule), 3.0, 0.3, 0.3)
    raw = [math.exp(3), 1.0, math.exp(3), 0.3]
    assert weights == pytest.approx([raw[0] / sum(raw), raw[1] / sum(raw), 0.3 * raw[2] / sum(raw), raw[3] / sum(raw)])
    assert attention(goal, (), 3.0, 0.3, 0.3) == ()


def test_first_step_leads_when_nothing_was_done() -> None:
    piece = a_piece(MUG, "go to desk 1", "take mug 1 from desk 1")
    total = 0.02 * 2 + 1 + 0.25
    assert position_weights(piece, []) == pytest.approx([1.27 / total, 0.02 / total])


def test_place_follows_the_last_three_own_steps_and_the_pointer() -> None:
    piece = a_piece(MUG, "go to desk 1", "take mug 1 from desk 1", "go to sink 1", "clean mug 1 with sink 1")
    own = [step_of(MUG, action) for action in ("go to desk 3", "take mug 2 from desk 3")]
    # Place 2 follows the two own steps: 1 * (1 + 1 * (1 + 0)); the pointer stands there too.
    raw = [0.02, 0.02, 0.02 + 2 + 0.25, 0.02]
    assert position_weights(piece, own) == pytest.approx([weight / sum(raw) for weight in raw])


def test_place_is_faint_when_the_own_steps_are_not_in_the_piece() -> None:
    piece = a_piece(MUG, "go to desk 1")
    assert position_weights(piece, [step_of(MUG, "look"), step_of(MUG, "look")]) == pytest.approx([0.27 / 0.3])


def test_literal_copy_needs_a_trajectory_with_shared_clauses() -> None:
    candidate, text = step_of(MUG, "go to desk 7"), "go to desk 7"
    same = Ballot(parse_goal(MUG), [])
    same.add(a_piece(MUG, text), 1.0)
    assert same.votes(candidate, text) == pytest.approx(2 * same.votes(candidate, "go to desk 8"))
    other = Ballot(parse_goal(MUG), [])
    other.add(a_piece("put a mug in desk.", text), 1.0)
    assert other.votes(candidate, text) == other.votes(candidate, "go to desk 8")
    plan = Ballot(parse_goal(MUG), [])
    plan.add(read_plans(f"From the solved task: {MUG}\n1. {text}")[0], 1.0)
    assert plan.votes(candidate, text) == plan.votes(candidate, "go to desk 8")


def test_insight_votes_after_its_first_half() -> None:
    rule = read_insight(f"{MUG} after 'take mug 1 from desk 1' do 'go to sink 1'")
    candidate = step_of(MUG, "go to sink 2")
    for own, expected in ((["take mug 4 from desk 2"], 0.5), (["look"], 0.0), ([], 0.0)):
        ballot = Ballot(parse_goal(MUG), [step_of(MUG, action) for action in own])
        ballot.add(rule, 0.5)
        assert ballot.votes(candidate, "go to sink 2") == pytest.approx(expected)


def test_yield_grows_with_what_an_action_kind_reveals() -> None:
    goal = parse_goal(MUG)
    pairs = [("go to desk 1", "On the desk 1, you see a pen 1."), ("open drawer 1", "Nothing.")]
    history = fold(goal, "You see a desk 1, and a drawer 1.", pairs, trace_decay=0.95)
    assert history.expected_yield("go to _") == pytest.approx(1.5 / 1.5)
    assert history.expected_yield("open _") == pytest.approx(0.5 / 1.5)
    assert history.expected_yield("take _ from _") == pytest.approx(1.0)


def test_visit_trace_decays_and_is_forgotten_after_handling_a_goal_thing() -> None:
    goal = parse_goal(MUG)
    visits = [("go to desk 1", "a"), ("go to bed 1", "b"), ("go to desk 1", "c")]
    desk = parse_action("go to desk 1")
    assert fold(goal, "r", visits, trace_decay=0.95).visit_trace(desk) == pytest.approx(1 + 0.95**2)
    irrelevant = [*visits, ("take pen 1 from desk 1", "d")]
    assert fold(goal, "r", irrelevant, trace_decay=0.95).visit_trace(desk) == pytest.approx((1 + 0.95**2) * 0.95)
    relevant = [*visits, ("take mug 1 from desk 1", "d")]
    assert fold(goal, "r", relevant, trace_decay=0.95).visit_trace(desk) == 0.0


def test_repeats_count_only_at_the_same_observation() -> None:
    history = fold(
        parse_goal(MUG), "r", [("look", "r"), ("look", "r"), ("go to desk 1", "s"), ("look", "s")], trace_decay=1.0
    )
    assert history.times_tried(parse_action("look")) == 1
    assert history.times_tried(parse_action("go to desk 1")) == 0


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        # Not named by the goal: handled by nobody. The same things again: no undoing.
        ("take pen 1 from bed 1", -0.6),
        ("put mug 1 in/on desk 1", -0.8),
        ("put pen 1 in/on desk 1", -0.6),
        # In view, and not in view; going somewhere has not been tried yet. Looking around is always at hand.
        ("go to desk 1", 2.1),
        ("go to bed 1", 0.6),
        ("look", 2.1),
    ],
)
def test_exploration_term(action: str, expected: float) -> None:
    goal = parse_goal(MUG)
    history = fold(goal, "r", [("take mug 1 from desk 1", "You pick up the mug 1 from the desk 1.")], trace_decay=0.95)
    parsed = parse_action(action)
    assert explore(parsed, step_of(MUG, action), history) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        # The things of the last action, whatever their number.
        ("open drawer 1", -0.8),
        ("examine drawer 1", -0.8),
        # Other things; and no things, which are not "the same things" twice.
        ("go to desk 1", 0.6 * 0.5 / 1.5),
        ("look", 2.1),
    ],
)
def test_handling_the_same_things_again_is_put_off(action: str, expected: float) -> None:
    goal = parse_goal(MUG)
    history = fold(goal, "a drawer 1", [("go to drawer 1", "The drawer 1 is closed.")], trace_decay=0.95)
    assert explore(parse_action(action), step_of(MUG, action), history) == pytest.approx(expected)


def test_looking_around_after_looking_around_has_no_same_things() -> None:
    history = fold(parse_goal(MUG), "a room", [("inventory", "You are not carrying anything.")], trace_decay=0.95)
    assert explore(parse_action("look"), step_of(MUG, "look"), history) == pytest.approx(2.1)
