"""The processes below one, of which any may end while they are looked at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import psutil

__all__ = ["kill_all", "processes_below"]


def processes_below(pid: int, name: str = "") -> Iterator[psutil.Process]:
    """Those that run now below process `pid` and whose command line holds `name`.

    One that has ended, or that its parent has not yet buried (a zombie), is none of them.
    """
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if name in " ".join(process.cmdline()):
                yield process
        except psutil.NoSuchProcess:
            continue


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """kill -9 of those that have not ended by themselves meanwhile."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
