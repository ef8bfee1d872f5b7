"""The command `memcon` as a user meets it: a process of its own, its exit code and what it prints."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console

from memcon_platform.config import load
from memcon_platform.config.plan import RunPlan
from memcon_platform.sweep.launch import Launch, launch, open_local
from memcon_workers.spec import TaskEnded

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ROOT / "configs" / "smoke.yaml"
# Three tasks a cell, no MLflow, the small embedder: a sweep of about a second.
SMALL = ("limit=3", "tracking.enabled=false", "embedder=hashing", "workers=1", "streams_per_worker=1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """How a command ended."""

    code: int
    out: str
    err: str


def memcon(
    *arguments: str | Path,
    cwd: Path | None = None,
    stdout: IO[str] | int = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
) -> Printed:
    """Run the command to its end, with `environment` over the one of this process."""
    script = Path(sys.executable).with_name("memcon")
    done = subprocess.run(
        [str(script), *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **(environment or {})},  # noqa: TID251 - a command needs the rest of it
        timeout=170,
    )
    return Printed(code=done.returncode, out=done.stdout or "", err=done.stderr)


def the_error(printed: Printed) -> str:
    """The one line of a refused command."""
    lines = printed.err.splitlines()
    assert printed.code not in {0, -9}, printed
    assert len(lines) == 1, printed.err
    assert lines[0].startswith("error: "), printed.err
    assert "Traceback" not in printed.out
    return lines[0]


def half_done(root: Path) -> Path:
    """The folder of a run of two cells that was stopped inside its first cell, as by Ctrl-C."""
    plan = load(SMOKE, [*SMALL, f"root={root}"])
    how = Launch(open_pool=open_local, observe=lambda _plan, _resumed: _StopSoon(), console=Console(quiet=True))
    written, end = asyncio.run(launch(plan, how))
    assert end.stopped
    assert _is_half_done(written)
    return written.run_dir


def _is_half_done(plan: RunPlan) -> bool:
    return len(list(plan.run_dir.glob("streams/*/000.sqlite"))) == 1


class _StopSoon:
    """An observer that asks for a stop when the first task has ended."""

    def __init__(self) -> None:
        self._asked = False

    def task_ended(self, _task: TaskEnded) -> None:
        if not self._asked:
            self._asked = True
            signal.raise_signal(signal.SIGINT)

    def cell_ended(self, _cell: str) -> None:
        return
