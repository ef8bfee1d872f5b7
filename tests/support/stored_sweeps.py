"""Launches in this process of runs that live in an object store, and machines to launch them from."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from memcon_platform.config import RunPlan, load
from memcon_platform.sweep.launch import Launch, launch, open_local
from memcon_platform.sweep.publication import published
from memcon_platform.sweep.runner import RunEnd
from memcon_workers.spec import TaskEnded
from support.shell import SMALL, SMOKE

__all__ = ["QUICK", "Hook", "Machine", "local_run", "stop"]

# The benchmark that is made and played in the shortest time.
QUICK = "axes.benchmark=[trivia]"


def stop() -> None:
    """As Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


@dataclass(slots=True, kw_only=True)
class Hook:
    """An observer that does something once: when so many tasks have ended, or when the first cell has."""

    after_tasks: int | None = None
    do: Callable[[], object] = lambda: None
    seen: int = 0

    def task_ended(self, _task: TaskEnded) -> None:
        self.seen += 1
        if self.seen == self.after_tasks:
            self.do()

    def cell_ended(self, _cell: str) -> None:
        if self.after_tasks is None and self.seen >= 0:
            self.seen = -1_000_000
            self.do()


@dataclass(slots=True, kw_only=True)
class Machine:
    """A place with working copies of its own."""

    folder: Path
    root: str
    settings: tuple[str, ...] = ()
    said: list[str] = field(default_factory=list)

    def plan(self, run: str) -> RunPlan:
        """The small sweep `run` of the store."""
        places = [f"root={self.root}", f"working_root={self.folder}"]
        return load(SMOKE, [*SMALL, QUICK, f"run={run}", *places, *self.settings])

    def launch(self, run: str, hook: Hook | None = None, *, dies: bool = False) -> tuple[RunEnd, str]:
        """Launch, and what could not be published at the end; `dies`: the end does not come, as after kill -9."""
        plan = self.plan(run)
        with published(plan, self.said.append) as publication:
            assert publication is not None
            observe = publication.watching(lambda *_: hook or Hook())
            how = Launch(open_pool=open_local, observe=observe, console=Console(quiet=True))
            _, end = asyncio.run(launch(plan, how))
            assert not end.failures, end.failures
            return end, "dead" if dies else publication.finish()


def local_run(root: Path, run: str, *settings: str) -> Path:
    """The folder of the same sweep, undisturbed and local."""
    plan = load(SMOKE, [*SMALL, QUICK, f"run={run}", f"root={root}", *settings])
    how = Launch(open_pool=open_local, observe=lambda *_: Hook(), console=Console(quiet=True))
    _, end = asyncio.run(launch(plan, how))
    assert not end.failures, end.failures
    return plan.run_dir
