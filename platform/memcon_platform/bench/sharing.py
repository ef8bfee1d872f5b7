"""`memcon bench sharing`: what a second worker brings when all streams share one table."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from memcon.clock import SystemClock
from memcon.errors import ConfigError, MissingExtraError
from memcon.protocols import Clock
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
        try:
            import psutil
        except ImportError as error:
            raise MissingExtraError("psutil", "bench") from error
        self._psutil: Any = psutil
        self._clock, self._total, self._ended = clock, total, 0
        self._begin = self._end = 0.0
        # Process id -> (name, seconds of CPU).
        self._before: dict[int, tuple[str, float]] = {}
        self._after: dict[int, tuple[str, float]] = {}

    def task_ended(self, _task: TaskEnded) -> None:
        """Count a task."""
        self._ended += 1
        if self._ended == 1:
            self._begin, self._before = self._clock.monotonic(), self._processes()
        elif self._ended == self._total:
            self._end, self._after = self._clock.monotonic(), self._processes()

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
        cpu: dict[str, float] = {}
        for process, (name, seconds) in sorted(self._after.items()):
            spent = seconds - self._before.get(process, ("", 0.0))[1]
            number = 1 + sum(known.partition(" #")[0] == name for known in cpu)
            cpu[f"{name} #{number}" if number > 1 else name] = spent / elapsed
        return Throughput(tasks=self._ended - 1, elapsed_s=elapsed, cpu=cpu)

    def _processes(self) -> dict[int, tuple[str, float]]:
        """This process and all below it; one that ends meanwhile is left out."""
        own = self._psutil.Process()
        found = {own.pid: ("driver", _seconds(own))}
        for process in own.children(recursive=True):
            try:
                found[process.pid] = (_name(process), _seconds(process))
            except self._psutil.Error:
                continue
        return found


def _seconds(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _name(process: Any) -> str:
    # Ray puts actor and present method of a process into its command line.
    words = " ".join(process.cmdline()).split()
    title = words[0].rpartition("/")[2].partition(".")[0] if words else ""
    return title if title.startswith("ray::") else str(process.name())
