"""How experience reads in a prompt. One place, so that every memory, framework and backbone agrees on the form.

A trajectory:

    Task: put a clean mug in the shelf 1.
    Outcome: success
    Observation: You are in the middle of a room. ...
    > go to countertop 1
    On the countertop 1, you see a mug 1.
    > take mug 1 from countertop 1
    You pick up the mug 1 from the countertop 1.

A plan template (`memcon.control.plans`):

    From the solved task: put a clean mug in the shelf 1.
    1. go to [countertop A]
    2. take [mug A] from [countertop A]
"""

from __future__ import annotations

from collections.abc import Sequence

from memcon.types import StepKind, Trajectory

__all__ = [
    "ACTION_MARK",
    "OBSERVATION_HEADER",
    "OUTCOME_HEADER",
    "PLAN_HEADER",
    "TASK_HEADER",
    "num_actions_of",
    "one_line",
    "render_plan",
    "render_trajectory",
]

TASK_HEADER = "Task: "
OUTCOME_HEADER = "Outcome: "
OBSERVATION_HEADER = "Observation: "
ACTION_MARK = "> "
PLAN_HEADER = "From the solved task: "


def render_trajectory(trajectory: Trajectory) -> str:
    """The whole attempt, nothing cut (defects D27, D28); thoughts are left out, observations are one line each."""
    lines = [
        TASK_HEADER + one_line(trajectory.task.goal),
        OUTCOME_HEADER + ("success" if trajectory.success else "failure"),
        OBSERVATION_HEADER + one_line(trajectory.first_observation),
    ]
    for step in trajectory.steps:
        if step.kind is StepKind.ACTION:
            lines += [ACTION_MARK + one_line(step.action), one_line(step.observation)]
    return "\n".join(lines)


def num_actions_of(rendered: str) -> int:
    """Actions in an attempt that `render_trajectory` wrote: two lines each, after the three of its head."""
    return rendered.count("\n") // 2 - 1


def render_plan(source_goal: str, actions: Sequence[str]) -> str:
    """A plan template with the sentence of the task that it was taken from."""
    steps = [f"{number}. {action}" for number, action in enumerate(actions, start=1)]
    return "\n".join([PLAN_HEADER + one_line(source_goal), *steps])


def one_line(text: str) -> str:
    """`text` with every run of white space as one blank."""
    return " ".join(text.split())
