"""Properties of the rewriter, the extraction, the tracker and the codec."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from memcon import codec
from memcon.control.plans import PlanTemplate, Rewriter, extract
from memcon.control.progress import ProgressMatcher, ProgressTracker
from memcon.testing.memory import episode_of, task_of, trajectory_of
from memcon.types import Episode, Task
from support.control import HOUSEHOLD_RULES, SmallBenchmark, steps_of

VOCABULARY = SmallBenchmark().vocabulary
REWRITER = Rewriter(VOCABULARY)
MATCHER = ProgressMatcher(HOUSEHOLD_RULES)

OTHER_WORDS = ("pencil", "table", "in", "on", "[mug]", "[mug A]", "1", "23", "a", "-", "  ")
words = st.sampled_from([*sorted(VOCABULARY), *OTHER_WORDS])
sentences = st.lists(words, max_size=12).map(" ".join)
things = st.sampled_from(["mug 1", "mug 2", "pen 1", "plate 1"])
places = st.sampled_from(["shelf 1", "drawer 1", "drawer 2", "fridge 1", "countertop 1"])
attempts = st.lists(
    st.one_of(
        st.builds("go to {}".format, places),
        st.builds("open {}".format, places),
        st.builds("close {}".format, places),
        st.builds("take {} from {}".format, things, places),
        st.builds("put {} in/on {}".format, things, places),
        st.sampled_from(["look", "inventory", "think: hm"]),
    ),
    max_size=30,
)


@given(st.text())
def test_text_outside_the_vocabulary_is_unchanged(text: str) -> None:
    if not any(word in text.casefold() for word in VOCABULARY):
        assert REWRITER.bare(text) == text
        assert REWRITER.numbered([text]) == [text]


@given(sentences)
def test_rewriting_twice_is_rewriting_once(text: str) -> None:
    bare = REWRITER.bare(text)
    assert REWRITER.bare(bare) == bare
    (numbered,) = REWRITER.numbered([text])
    assert REWRITER.numbered([numbered]) == [numbered]


@given(sentences)
def test_no_name_is_left_and_only_names_change(text: str) -> None:
    assert REWRITER.names(REWRITER.bare(text)) == []
    rest = re.compile(r"\[[a-z]+(?: [A-Z]+)?\]")
    (numbered,) = REWRITER.numbered([text])
    assert rest.sub("_", numbered) == rest.sub("_", REWRITER.bare(text))


@given(st.lists(sentences, max_size=5))
def test_equal_things_get_equal_letters_and_others_do_not(texts: list[str]) -> None:
    names = [name for text in texts for name in REWRITER.names(text)]
    numbered = REWRITER.numbered([f"<{name}>" for name in names])
    assert len(set(numbered)) == len(set(names))


@given(attempts, st.sampled_from(["put some mug on the shelf", "mug 1 is in drawer 1", "nothing known"]))
def test_a_plan_is_a_part_of_the_attempt_in_its_order(actions: list[str], goal: str) -> None:
    plan = list(extract(trajectory_of(goal, actions), rewriter=REWRITER, matcher=MATCHER))
    physical = [action for action in actions if not action.startswith("think: ")]
    left = iter(physical)
    assert all(action in left for action in plan)
    # The step that reached the goal is always there, and no plan is empty.
    assert plan[-1:] == physical[-1:]


@given(attempts)
def test_a_plan_of_a_plan_is_no_longer(actions: list[str]) -> None:
    goal = "put some mug on the shelf"
    plan = extract(trajectory_of(goal, actions), rewriter=REWRITER, matcher=MATCHER)
    again = extract(trajectory_of(goal, plan), rewriter=REWRITER, matcher=MATCHER)
    assert len(again) <= len(plan)


@given(attempts)
def test_a_rendered_plan_has_one_line_a_step(actions: list[str]) -> None:
    template = PlanTemplate(source_goal="a goal", actions=tuple(actions))
    assert len(REWRITER.render(template, "bare").splitlines()) == len(actions)
    assert len(REWRITER.render(template, "numbered").splitlines()) == len(actions) + 1


@given(attempts, st.lists(st.integers(0, 30), max_size=6))
def test_reading_in_pieces_is_reading_at_once(actions: list[str], cuts: list[int]) -> None:
    steps = steps_of(*actions)
    whole, pieces = ProgressTracker(MATCHER), ProgressTracker(MATCHER)
    whole.advance(steps)
    for cut in sorted(min(cut, len(steps)) for cut in cuts):
        pieces.advance(steps[:cut])
    pieces.advance(steps)
    for signal in ("num_actions", "objects_held", "locations_visited", "is_stuck"):
        assert getattr(whole, signal) == getattr(pieces, signal)
    assert whole.objects_held >= 0


@given(st.text(), st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_the_codec_returns_what_it_was_given(goal: str, goal_type: str, score: float) -> None:
    task = task_of(goal, goal_type=goal_type)
    assert codec.decode_json(Task, codec.encode_json(task)) == task
    episode = codec.decode(Episode, {**codec.encode(episode_of(0)), "reward": score})
    assert codec.decode_json(Episode, codec.encode_json(episode)) == episode
