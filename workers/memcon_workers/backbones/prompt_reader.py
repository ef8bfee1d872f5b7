"""Reads back the prompt of `memcon_workers.frameworks.prompt`: what a model sees is all that the imitator sees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from memcon.control.memory.rendering import (
    ACTION_MARK,
    EXPERIENCE_HEADING,
    HINT_HEADING,
    INSIGHT_HEADING,
    MEMORY_HEADING,
    PLAN_HEADING,
)
from memcon.errors import ConfigError
from memcon.protocols import Message
from memcon_workers.backbones.experience import Experience, read_insight, read_plans, read_trajectory
from memcon_workers.frameworks.prompt import (
    ACTIONS_HEADER,
    ASK,
    CHOICE_MARK,
    EXAMPLE_HEADING,
    FIRST_OBSERVATION_HEADER,
    GOAL_HEADER,
    HISTORY_HEADER,
    THOUGHT_MARK,
)

__all__ = ["PromptView", "read_prompt"]

_THOUGHT = ACTION_MARK + THOUGHT_MARK
_NUMBERED = f"{EXPERIENCE_HEADING}|{INSIGHT_HEADING}"
_SINGLE = f"{PLAN_HEADING}|{HINT_HEADING}|{EXAMPLE_HEADING}|{MEMORY_HEADING}"
_HEADING = re.compile(rf"^(?:({_NUMBERED}) \d+|({_SINGLE}))$")
_COUNT = re.compile(re.escape(HISTORY_HEADER) + r"(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptView:
    """One request, taken apart."""

    goal: str
    first_observation: str
    # (action, observation) pairs that the prompt shows, oldest first; thoughts are left out.
    history: tuple[tuple[str, str], ...]
    # Actions taken so far, those outside the window included.
    num_actions: int
    admissible: tuple[str, ...]
    memory: tuple[Experience, ...]


def read_prompt(messages: Sequence[Message]) -> PromptView:
    """Take the prompt apart.

    Raises:
        ConfigError: it lists no admissible actions, or it is not of the form of `memcon_workers.frameworks.prompt`.
    """
    system = "\n".join(message.content for message in messages if message.role == "system")
    user = "\n".join(message.content for message in messages if message.role == "user")
    top, listed, bottom = user.rpartition(f"\n{ACTIONS_HEADER}\n")
    if not listed:
        raise ConfigError("the imitator chooses from listed actions: set list_actions: true in the framework's config")
    head, _, history = top.partition(f"\n{HISTORY_HEADER}")
    goal, _, first = head.partition(f"\n{FIRST_OBSERVATION_HEADER}")
    if not (history and first and goal.startswith(GOAL_HEADER)):
        raise ConfigError(
            "the imitator reads only the prompt form of memcon_workers.frameworks.prompt; take one of its frameworks"
        )
    pairs, number = _read_history(HISTORY_HEADER + history)
    return PromptView(
        goal=goal.removeprefix(GOAL_HEADER),
        first_observation=first,
        history=pairs,
        num_actions=number,
        admissible=tuple(line[len(CHOICE_MARK) :] for line in bottom.split("\n") if line != ASK),
        memory=read_memory(system),
    )


def _read_history(text: str) -> tuple[tuple[tuple[str, str], ...], int]:
    # Two lines a turn; an odd one at the end is the notice.
    lines = text.split("\n")
    count = _COUNT.match(lines[0])
    pairs = tuple(
        (action[len(ACTION_MARK) :], observation)
        for action, observation in zip(lines[1::2], lines[2::2], strict=False)
        if not action.startswith(_THOUGHT)
    )
    return pairs, int(count.group(1)) if count else len(pairs)


@lru_cache(maxsize=1024)
def read_memory(system: str) -> tuple[Experience, ...]:
    """The memory pieces of a system message, in its order; a worked example is read like a memory item."""
    found: list[Experience] = []
    heading, body = "", list[str]()
    for line in [*system.split("\n"), MEMORY_HEADING]:
        match = _HEADING.match(line)
        if match is None:
            body.append(line)
            continue
        found += _read_piece(heading, "\n".join(body))
        heading, body = match.group(1) or match.group(2), []
    return tuple(found)


def _read_piece(heading: str, body: str) -> tuple[Experience, ...]:
    if heading in {EXPERIENCE_HEADING, EXAMPLE_HEADING}:
        return (read_trajectory(body),)
    if heading == INSIGHT_HEADING:
        return (read_insight(body),)
    return read_plans(body) if heading in {PLAN_HEADING, HINT_HEADING} else ()
