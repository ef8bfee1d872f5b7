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

The memory part of a prompt, of which a framework shows every piece and cuts none (MC-15):

    # Memory
    ## Plan                      before what the backend found (MC-18)
    ## Experience 1              the text of a memory item, in the backend's order
    ## Insight 1
    ## Hint
"""

from __future__ import annotations

from collections.abc import Sequence

from memcon.types import MemoryContext, StepKind, Trajectory

__all__ = [
    "ACTION_MARK",
    "EXPERIENCE_HEADING",
    "HINT_HEADING",
    "INSIGHT_HEADING",
    "MEMORY_HEADING",
    "OBSERVATION_HEADER",
    "OUTCOME_HEADER",
    "PLAN_HEADER",
    "PLAN_HEADING",
    "TASK_HEADER",
    "num_actions_of",
    "one_line",
    "render_memory",
    "render_plan",
    "render_trajectory",
]

TASK_HEADER = "Task: "
OUTCOME_HEADER = "Outcome: "
OBSERVATION_HEADER = "Observation: "
ACTION_MARK = "> "
PLAN_HEADER = "From the solved task: "

MEMORY_HEADING = "# Memory"
EXPERIENCE_HEADING = "## Experience"
INSIGHT_HEADING = "## Insight"
PLAN_HEADING = "## Plan"
HINT_HEADING = "## Hint"


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


def render_memory(context: MemoryContext) -> str:
    """The memory part of a prompt: plan, all items and insights, hint, whole; "" for the empty context."""
    if context.is_empty:
        return ""
    parts = [f"{PLAN_HEADING}\n{context.plan}"] if context.plan else []
    parts += [f"{EXPERIENCE_HEADING} {number}\n{item.text}" for number, item in enumerate(context.items, start=1)]
    parts += [f"{INSIGHT_HEADING} {number}\n{found.text}" for number, found in enumerate(context.insights, start=1)]
    if context.hint:
        parts.append(f"{HINT_HEADING}\n{context.hint}")
    return "\n".join([MEMORY_HEADING, *parts])


def one_line(text: str) -> str:
    """`text` with every run of white space as one blank."""
    return " ".join(text.split())
