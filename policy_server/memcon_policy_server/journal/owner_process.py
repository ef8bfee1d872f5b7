"""Which process owns a journal, and its end when it is an orphan that keeps a new owner out (Linux only)."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

__all__ = ["end_owner", "living", "this_process"]

EXIT_WAIT_S = 5.0
# Of a process that has ended and that nobody has asked for its code yet.
_ZOMBIE = "Z"


def this_process() -> str:
    """This process as "pid:start", the start in clock ticks since boot; the start is empty where /proc is not."""
    return f"{os.getpid()}:{_stat_of(os.getpid())[1]}"


def living(owner: str) -> int | None:
    """Id of the process that `this_process` named, if it is alive and another than this one.

    None as well where that cannot be told for certain: another process has its id by now, or it is on another machine.
    """
    other = _other_process(owner)
    if other is None:
        return None
    pid, start = other
    state, begun = _stat_of(pid)
    return pid if begun == start and state != _ZOMBIE else None


def end_owner(owner: str) -> bool:
    """Kill the process that `this_process` named; True once it has ended.

    False, and nothing is done, when it cannot be told for certain that it is that process: another one has its id, it
    is on another machine or of another user, or it is this one.
    """
    other = _other_process(owner)
    if other is None or not hasattr(os, "pidfd_open"):
        return False
    pid, start = other
    with suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            # Compared after the handle is held: from here on the id cannot pass to another process.
            if _stat_of(pid)[1] != start:
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            # A handle of a process is readable once it has ended, and its locks are free then.
            return bool(select.select([handle], [], [], EXIT_WAIT_S)[0])
        finally:
            os.close(handle)
    return False


def _other_process(owner: str) -> tuple[int, str] | None:
    """Id and start of the process that `owner` names; None when it is this one, or no process is named."""
    pid_text, _, start = owner.partition(":")
    if not (start and pid_text.isdecimal()) or int(pid_text) == os.getpid():
        return None
    return int(pid_text), start


def _stat_of(pid: int) -> tuple[str, str]:
    """State and start of a process; empty where there is none."""
    try:
        # The name, which may hold blanks, ends with the last bracket; the start is the 22nd field of the line.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]
