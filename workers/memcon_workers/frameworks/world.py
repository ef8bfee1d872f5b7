"""One environment as an agent loop sees it: async, timed, every call inside its error boundary. Owns no game rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from memcon.control.memory.rendering import one_line
from memcon.errors import Boundary, boundary
from memcon.protocols import Clock, Environment, StepResult
from memcon.types import Task

__all__ = ["World"]

T = TypeVar("T")


class World:
    """Wraps one environment for one attempt."""

    def __init__(self, environment: Environment, *, clock: Clock) -> None:
        self._environment = environment
        self._clock = clock
        self._seconds = 0.0

    async def reset(self, task: Task, seed: int) -> str:
        """Start `task`; returns the first observation as one line.

        Raises:
            BoundaryError: the environment failed.
        """
        with boundary(Boundary.ENVIRONMENT, "reset"):
            return one_line((await self._call(lambda: self._environment.reset(task, seed))).text)

    async def step(self, action: str) -> StepResult:
        """Carry out `action`.

        Raises:
            BoundaryError: the environment failed.
        """
        with boundary(Boundary.ENVIRONMENT, "step"):
            return await self._call(lambda: self._environment.step(action))

    async def valid_actions(self) -> Sequence[str]:
        """Admissible actions in the environment's order.

        Raises:
            BoundaryError: the environment failed.
        """
        with boundary(Boundary.ENVIRONMENT, "valid_actions"):
            return await self._call(self._environment.valid_actions)

    def take_seconds(self) -> float:
        """Seconds spent in the environment since the last call of this method."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    async def _call(self, call: Callable[[], T]) -> T:
        started = self._clock.monotonic()
        try:
            return await asyncio.to_thread(call) if self._environment.blocking else call()
        finally:
            self._seconds += self._clock.monotonic() - started
