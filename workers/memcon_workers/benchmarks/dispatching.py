"""One environment over several: each task goes to the environment of the benchmark that it came from.

Owns which environments are open; knows no benchmark. `mix` and `recur` say where a task belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memcon.errors import InvariantError
from memcon.protocols import Benchmark, Environment, Observation, StepResult
from memcon.types import Task

__all__ = ["DispatchingEnvironment", "Route"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a task is played."""

    # Tasks with equal keys share an environment.
    key: str
    benchmark: Benchmark
    # The task as `benchmark` knows it.
    task: Task


class DispatchingEnvironment:
    """Opens the environment of a key when its first task comes, and keeps it."""

    def __init__(self, route: Callable[[Task], Route], *, num_keys: int) -> None:
        self._route, self._num_keys = route, num_keys
        self._open: dict[str, Environment] = {}
        self._current: Environment | None = None
        # Whether an environment blocks is known once it is open: until all are, take the safe way.
        self.blocking = True

    def reset(self, task: Task, seed: int) -> Observation:
        """Start `task` where it belongs.

        Raises:
            ConfigError: it belongs nowhere, or its environment refuses it.
        """
        route = self._route(task)
        # Not before the new task stands: after a refusal no episode runs.
        self._current = None
        if route.key not in self._open:
            self._open[route.key] = route.benchmark.environment()
            opened = self._open.values()
            self.blocking = len(opened) < self._num_keys or any(environment.blocking for environment in opened)
        shown = self._open[route.key].reset(route.task, seed)
        self._current = self._open[route.key]
        return shown

    def step(self, action: str) -> StepResult:
        """Carry out one action text in the task's environment.

        Raises:
            InvariantError: no episode runs.
        """
        return self._running().step(action)

    def valid_actions(self) -> Sequence[str]:
        """Admissible actions of the task's environment.

        Raises:
            InvariantError: not reset, or closed.
        """
        return self._running().valid_actions()

    def close(self) -> None:
        """Close all that was opened; may be called twice."""
        opened, self._open, self._current = self._open, {}, None
        for environment in opened.values():
            environment.close()

    def _running(self) -> Environment:
        if self._current is None:
            raise InvariantError("environment: no episode runs (not reset, or closed); call reset with a task first")
        return self._current
