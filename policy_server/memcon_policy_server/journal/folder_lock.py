"""Who folds a journal and who compacts it keep out of each other's way: a lock on the policy folder itself.

A fold takes two looks, at a snapshot and at the events after it, and a compaction between them would leave a gap. The
lock is on the folder: another handle of the database file, when it is closed, would take SQLite's own locks with it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memcon.errors import LockedError, StorageError

__all__ = ["compacting", "folding"]


@contextmanager
def folding(directory: Path) -> Iterator[None]:
    """Nothing is compacted away in `directory` inside the block; waits for a drop that is under way.

    Raises:
        StorageError: the folder cannot be read.
    """
    with _locked(directory, fcntl.LOCK_SH):
        yield


@contextmanager
def compacting(directory: Path) -> Iterator[None]:
    """Nobody folds a journal of `directory` inside the block. Only for as long as it takes to drop events.

    Raises:
        LockedError: somebody does now.
        StorageError: the folder cannot be read.
    """
    with _locked(directory, fcntl.LOCK_EX | fcntl.LOCK_NB):
        yield


@contextmanager
def _locked(directory: Path, operation: int) -> Iterator[None]:
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise StorageError(f"cannot read {directory}: {error.strerror}; mend its permissions") from error
    try:
        fcntl.flock(handle, operation)
    except BlockingIOError:
        os.close(handle)
        raise LockedError(
            f"{directory} is being restored, verified or compacted by another process; run the same command later"
        ) from None
    try:
        yield
    finally:
        os.close(handle)
