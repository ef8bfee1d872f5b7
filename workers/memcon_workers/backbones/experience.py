"""Memory pieces of a prompt as the imitator uses them: trajectories, plans and insights, parsed once per text."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from memcon.control.memory.rendering import ACTION_MARK, OBSERVATION_HEADER, OUTCOME_HEADER, PLAN_HEADER, TASK_HEADER
from memcon_workers.backbones.goals import Goal, Signature, open_goal, parse_goal, signature
from memcon_workers.backbones.names import parse_action, plain_words

__all__ = ["Experience", "Kind", "read_insight", "read_plans", "read_trajectory"]

_PLAN_STEP = re.compile(r"^\d+\. (.+)$")
_INSIGHT_PAIR = re.compile(r"""after ['"](.+?)['"],? do ['"](.+?)['"]""", re.IGNORECASE)
_FAILED = "failure"


class Kind(StrEnum):
    """What a memory piece is."""

    TRAJECTORY = "trajectory"
    PLAN = "plan"
    INSIGHT = "insight"


@dataclass(frozen=True, slots=True, eq=False)
class Experience:
    """One piece of memory; equal texts share one object."""

    kind: Kind
    # None when the piece names no task: its roles are unknown.
    goal: Goal | None
    # What attention compares with the goal.
    bag: Counter[str]
    failed: bool
    # One entry a step; an insight has two, "after" and "do".
    signatures: tuple[Signature, ...]
    texts: tuple[str, ...]


@lru_cache(maxsize=4096)
def read_trajectory(text: str) -> Experience:
    """A memory item in the form of `memcon.control.memory.rendering`; in other text, only lines "> ..." are steps."""
    goal: Goal | None = None
    failed = False
    observation = ""
    steps: list[tuple[str, str]] = []
    for line in text.split("\n"):
        if line.startswith(ACTION_MARK):
            steps.append((line.removeprefix(ACTION_MARK), observation))
        elif line.startswith(TASK_HEADER) and goal is None:
            goal = parse_goal(line.removeprefix(TASK_HEADER))
        elif line.startswith(OUTCOME_HEADER) and not steps:
            failed = line.removeprefix(OUTCOME_HEADER).strip() == _FAILED
        else:
            observation = line.removeprefix(OBSERVATION_HEADER)
    return _experience(Kind.TRAJECTORY, goal, steps, topic=text, failed=failed)


@lru_cache(maxsize=4096)
def read_plans(text: str) -> tuple[Experience, ...]:
    """The plan templates of `text`, one per source sentence; text without a numbered step gives none."""
    found: list[tuple[str | None, list[tuple[str, str]]]] = []
    for line in text.split("\n"):
        step = _PLAN_STEP.match(line)
        if line.startswith(PLAN_HEADER):
            found.append((line.removeprefix(PLAN_HEADER), []))
        elif step:
            if not found:
                found.append((None, []))
            found[-1][1].append((step.group(1), ""))
    return tuple(
        _experience(Kind.PLAN, parse_goal(source) if source is not None else None, steps, topic=text)
        for source, steps in found
        if steps
    )


@lru_cache(maxsize=4096)
def read_insight(text: str) -> Experience:
    """A rule; "after 'A' do 'B'" makes it usable, any other rule only takes its share of attention.

    What stands before the pair (a quoted or named task) is what attention compares.
    """
    pair = _INSIGHT_PAIR.search(text)
    topic = text[: pair.start()] if pair else text
    steps = [(action, "") for action in pair.groups()] if pair else []
    goal = parse_goal(topic) if pair and names_task(topic) else None
    return _experience(Kind.INSIGHT, goal, steps, topic=topic)


def names_task(topic: str) -> bool:
    """The text before an insight's pair says something about a task, and not nothing."""
    return bool(plain_words(topic))


def _experience(
    kind: Kind, goal: Goal | None, steps: list[tuple[str, str]], *, topic: str, failed: bool = False
) -> Experience:
    actions = [parse_action(action) for action, _ in steps]
    return Experience(
        kind=kind,
        goal=goal,
        bag=goal.bag if goal is not None else Counter(plain_words(topic)),
        failed=failed,
        signatures=tuple(
            signature(open_goal(goal, seen), action) for action, (_, seen) in zip(actions, steps, strict=True)
        ),
        texts=tuple(action.text for action in actions),
    )
