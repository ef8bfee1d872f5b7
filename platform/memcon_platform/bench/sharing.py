"""`memcon bench sharing`: what a second worker brings when all streams share one table."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from memcon.clock import SystemClock
from memcon.errors import ConfigError
from memcon.protocols import Clock
from memcon_platform.bench.processes import cpu_seconds, cpu_shares
from memcon_platform.config.plan import RunPlan
from memcon_platform.sweep.launch import Launch, OpenPool, launch
from memcon_workers.spec import TaskEnded

__all__ = ["Throughput", "measure_sharing", "together"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Ended tasks between the first and the last one of a sweep, start and end of its processes left out."""

    tasks: int
    elapsed_s: float
    # Process, such as "driver" or "ray::ServeReplica...", numbered where several have one name -> share of one core.
    cpu: Mapping[str, float]

    @property
    def tasks_per_s(self) -> float:
        """Ended tasks a second."""
        return self.tasks / self.elapsed_s


def measure_sharing(plan: RunPlan, open_pool: OpenPool, console: Console) -> Throughput:
    """Run `plan`, whose cells must be new, and count.

    Raises:
        MissingExtraError: psutil is not installed.
        ConfigError: the sweep did not run to its end.
    """
    watch = _Watch(SystemClock(), sum(cell.num_tasks for cell in plan.cells))
    _, end = asyncio.run(launch(plan, Launch(open_pool=open_pool, observe=lambda *_: watch, console=console)))
    if end.stopped or end.failures:
        raise ConfigError(f"the bench did not run to its end: {dict(end.failures) or 'stopped'}")
    return watch.throughput()


def together(found: Sequence[Throughput]) -> Throughput:
    """Several rounds as one: tasks and seconds summed, shares averaged over time."""
    elapsed = sum(one.elapsed_s for one in found)
    cpu: dict[str, float] = defaultdict(float)
    for one in found:
        for name, share in one.cpu.items():
            cpu[name] += share * one.elapsed_s / elapsed
    return Throughput(tasks=sum(one.tasks for one in found), elapsed_s=elapsed, cpu=dict(cpu))


class _Watch:
    """An observer that looks at the clock and at the processes when the first and the last task end."""

    def __init__(self, clock: Clock, total: int) -> None:
        self._clock, self._total, self._ended = clock, total, 0
        self._begin = self._end = 0.0
        # Looked at once here, so that psutil is missed before the sweep and not in it.
        self._before = self._after = cpu_seconds()

    def task_ended(self, _task: TaskEnded) -> None:
        """Count a task."""
        self._ended += 1
        if self._ended == 1:
            self._begin, self._before = self._clock.monotonic(), cpu_seconds()
        elif self._ended == self._total:
            self._end, self._after = self._clock.monotonic(), cpu_seconds()

    def cell_ended(self, _cell: str) -> None:
        """All streams of a cell are done."""
        return

    def throughput(self) -> Throughput:
        """Between the first and the last task."""
        elapsed = self._end - self._begin
        if elapsed <= 0:
            raise ConfigError(
                f"the bench saw {self._ended} of {self._total} tasks end; give it a new run of two or more"
            )
        cpu = cpu_shares(self._before, self._after, elapsed)
        return Throughput(tasks=self._ended - 1, elapsed_s=elapsed, cpu=cpu)
