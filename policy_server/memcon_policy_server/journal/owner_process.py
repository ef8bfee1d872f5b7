"""Which process owns a journal, and its end when it is an orphan that keeps a new owner out (Linux only)."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

__all__ = ["end_owner", "this_process"]

EXIT_WAIT_S = 5.0


def this_process() -> str:
    """This process as "pid:start", the start in clock ticks since boot; the start is empty where /proc is not."""
    return f"{os.getpid()}:{_start_of(os.getpid())}"


def end_owner(owner: str) -> bool:
    """Kill the process that `this_process` named; True once it has ended.

    False, and nothing is done, when it cannot be told for certain that it is that process: another one has its id, it
    is on another machine or of another user, or it is this one.
    """
    pid_text, _, start = owner.partition(":")
    if not (start and pid_text.isdecimal()) or int(pid_text) == os.getpid() or not hasattr(os, "pidfd_open"):
        return False
    with suppress(OSError):
        handle = os.pidfd_open(int(pid_text))
        try:
            # Compared after the handle is held: from here on the id cannot pass to another process.
            if _start_of(int(pid_text)) != start:
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            # A handle of a process is readable once it has ended, and its locks are free then.
            return bool(select.select([handle], [], [], EXIT_WAIT_S)[0])
        finally:
            os.close(handle)
    return False


def _start_of(pid: int) -> str:
    try:
        # The name, which may hold blanks, ends with the last bracket; the start is the 22nd field of the line.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return ""
