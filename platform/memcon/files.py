"""Files that are seen whole or not at all, also by a reader at the same moment and after a power cut."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from memcon.errors import StorageError

__all__ = ["TEMPORARY_SUFFIX", "replace_file", "sync_folder"]

# Ending of the file that is being written; what a killed writer left is overwritten by the next one.
TEMPORARY_SUFFIX = ".tmp"


def replace_file(path: Path, content: str | bytes | memoryview) -> None:
    """Put `content` (text as UTF-8) in place of `path`; folders above it are made.

    The temporary name is a function of `path`, so that whoever writes must be the only writer of `path`.

    Raises:
        StorageError: the place cannot be written; what stood there still stands, and nothing temporary is left.
    """
    temporary = path.with_name(f".{path.name}{TEMPORARY_SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        remedy = "mend permissions or space and run the same command again"
        raise StorageError(f"cannot write {path}: {error.strerror or error}; {remedy}") from error


def sync_folder(folder: Path) -> None:
    """Make the renames in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
