"""Reads a model's reply and watches the loop: what it did, whether it turns in circles, what to tell it. Pure text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memcon.control.memory.rendering import one_line

__all__ = ["DEFAULT_ACTION", "is_looping", "notice", "read_reply"]

# An empty reply becomes this action (facts of the published loop); a world that does not know it answers so.
DEFAULT_ACTION = "look"

_PREFIX = re.compile(r"^(?:>|[-*]|(?:next )?action:)\s*", re.IGNORECASE)
_THOUGHT = re.compile(r"^(?:think|thought):\s*", re.IGNORECASE)

_REPEATED = "you did the same action twice in a row; do another one."
_ALTERNATING = "you go back and forth between two actions; do another one."
_THOUGHTS = "you have thought enough; the next reply must be an action."


def read_reply(text: str) -> tuple[str, bool]:
    """The first line that says something, without marks and prefixes, and whether it is a thought."""
    line = next((one_line(line) for line in text.splitlines() if line.strip()), "")
    line = _PREFIX.sub("", line)
    if thought := _THOUGHT.match(line):
        return line[thought.end() :], True
    return line or DEFAULT_ACTION, False


def is_looping(actions: Sequence[str]) -> bool:
    """The last three actions are one, or the last six alternate between two; `actions` are normalised."""
    return _same(actions, 3) or _alternate(actions, 6)


def notice(actions: Sequence[str], *, thoughts: int, free_thoughts: int) -> str:
    """What the model should know before its next reply, or "".

    Two equal actions in a row are told (and seen by the memory state, MC-4) a call before any loop breaker can fire.
    """
    if thoughts >= free_thoughts and thoughts > 0:
        return _THOUGHTS
    if _same(actions, 2):
        return _REPEATED
    return _ALTERNATING if _alternate(actions, 4) else ""


def _same(actions: Sequence[str], number: int) -> bool:
    last = actions[-number:]
    return len(last) == number and len(set(last)) == 1


def _alternate(actions: Sequence[str], number: int) -> bool:
    last = actions[-number:]
    return len(last) == number and len(set(last)) == 2 and all(a == b for a, b in zip(last, last[2:], strict=False))
