"""What a transcript shows of the task's progress: steps, held objects, visited places, stuck or not (MC-4 to MC-6).

Incremental: each step is read once. Knows no benchmark: what to look for comes as `ProgressRules`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memcon.control.memory.rendering import one_line
from memcon.errors import ConfigError, InvariantError
from memcon.types import ProgressRules, Step, StepKind

__all__ = ["ProgressMatcher", "ProgressTracker"]


class ProgressMatcher:
    """`ProgressRules`, compiled once a benchmark.

    Raises:
        ConfigError: a rule is no regular expression, or lacks its group.
    """

    def __init__(self, rules: ProgressRules) -> None:
        self._take = _compiled("take", rules.take, "object")
        self._release = _compiled("release", rules.release, "object")
        self._visit = _compiled("visit", rules.visit, "place")

    def taken(self, action: str) -> str | None:
        """The object that `action` takes, normalised."""
        return _group(self._take, action, "object")

    def released(self, action: str) -> str | None:
        """The object that `action` lets go, normalised."""
        return _group(self._release, action, "object")

    def visited(self, action: str) -> str | None:
        """The place that `action` goes to, normalised."""
        return _group(self._visit, action, "place")


class ProgressTracker:
    """Signals of one attempt, kept up to date by `advance`."""

    def __init__(self, matcher: ProgressMatcher) -> None:
        self._matcher = matcher
        self._num_read = 0
        self._held: set[str] = set()
        self._places: set[str] = set()
        self._last_actions: tuple[str, str] = ("", "")
        # Environment steps; thoughts do not count.
        self.num_actions = 0

    @property
    def objects_held(self) -> int:
        """Objects taken and not let go (MC-5)."""
        return len(self._held)

    @property
    def locations_visited(self) -> int:
        """Distinct places gone to (MC-6)."""
        return len(self._places)

    @property
    def is_stuck(self) -> bool:
        """The last two physical actions are the same text, whatever its case and white space (MC-4)."""
        return self.num_actions > 1 and self._last_actions[0] == self._last_actions[1]

    def advance(self, steps: Sequence[Step]) -> None:
        """Read the steps that were added since the last call; `steps` holds all steps of the attempt so far.

        Raises:
            InvariantError: there are fewer steps than before.
        """
        if len(steps) < self._num_read:
            raise InvariantError(f"an attempt has {len(steps)} steps after it had {self._num_read}")
        for step in steps[self._num_read :]:
            if step.kind is StepKind.ACTION:
                self._read(one_line(step.action).casefold(), valid=step.valid)
        self._num_read = len(steps)

    def _read(self, action: str, *, valid: bool) -> None:
        self.num_actions += 1
        self._last_actions = (self._last_actions[1], action)
        if not valid:
            return
        if taken := self._matcher.taken(action):
            self._held.add(taken)
        if released := self._matcher.released(action):
            # An object that was held from the start is let go without ever having been counted.
            self._held.discard(released)
        if place := self._matcher.visited(action):
            self._places.add(place)


def _compiled(name: str, rule: str, group: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(rule, re.IGNORECASE)
    except re.error as error:
        raise ConfigError(f"progress rule {name} = {rule!r}: not a regular expression: {error}") from error
    if group not in pattern.groupindex:
        raise ConfigError(f"progress rule {name} = {rule!r}: expected a group (?P<{group}>...)")
    return pattern


def _group(pattern: re.Pattern[str], action: str, group: str) -> str | None:
    match = pattern.fullmatch(one_line(action))
    found = match.group(group) if match else None
    return one_line(found).casefold() if found else None
