"""The folder of a run: one driver at a time, and the plan written so that a later launch can be held against it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memcon.errors import LockedError, StorageError
from memcon_platform.config.plan import RunPlan

__all__ = ["driving", "holding", "policy_folder", "refuse_driven"]

_LOCK_FILE = "run.lock"


def policy_folder(plan: RunPlan) -> Path:
    """Journals, secret and served tables of a run."""
    return plan.run_dir.resolve() / "policy"


@contextmanager
def driving(run_dir: Path) -> Iterator[None]:
    """Hold the run: a second `memcon sweep` of the same run is refused while the block runs.

    Raises:
        LockedError: another process drives the run.
        StorageError: the folder cannot be made or written.
    """
    with holding(run_dir / _LOCK_FILE, f"run {run_dir} is driven", "set root="):
        yield


@contextmanager
def holding(lock: Path, held: str, elsewhere: str) -> Iterator[None]:
    """Hold the file `lock` while the block runs; folders above it are made. Ends with the process, however it ends.

    Raises:
        LockedError: another process holds it; the message begins with `held` and names the process.
        StorageError: its folder cannot be made or written; the message ends with `elsewhere`.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = lock.open("a+")
    except OSError as error:
        raise StorageError(
            f"cannot write {lock.parent}: {error.strerror}; check permissions and space, or {elsewhere}"
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            owner = handle.read().strip() or "unknown"
            raise LockedError(f"{held} by process {owner}; wait for it or end it") from None
        handle.truncate(0)
        # Whole in one call or not at all: a full disk must not stop a launch for want of a note.
        with suppress(OSError):
            os.pwrite(handle.fileno(), str(os.getpid()).encode(), 0)
        yield


def refuse_driven(run_dir: Path) -> None:
    """Refuse to read a run that still changes.

    Raises:
        LockedError: some process drives the run.
    """
    try:
        handle = (run_dir / _LOCK_FILE).open("rb")
    except OSError:
        # Nobody has ever driven it from here.
        return
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                f"run {run_dir} is being driven, so what it has learned still changes; wait for its end"
            ) from None
