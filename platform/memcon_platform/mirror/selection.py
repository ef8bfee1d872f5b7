"""Which files of a run's folder have a copy in the object store, and which are this machine's alone."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from memcon.errors import InvariantError
from memcon_platform.mirror.manifest import MANIFEST_KEY

__all__ = ["companions", "is_database", "is_open", "is_publishable", "key_of", "publishable_keys"]

# Secrets of a run's policy: of use on this machine only, and never to leave it.
_SECRETS = frozenset({"secret", "token"})
# Locks, addresses of live owners, files that are being written.
_OF_THIS_MACHINE = (".lock", ".address", ".tmp", ".new", "-wal", "-shm", "-journal")
_DATABASE = ".sqlite"
# Hold what the database file itself does not hold yet.
_LOGS = ("-wal", "-journal")


def is_publishable(key: str) -> bool:
    """Whether a file may have a copy: no lock, secret, address, temporary or hidden file, no side file of SQLite."""
    parts = PurePosixPath(key).parts
    name = parts[-1] if parts else ""
    hidden = any(part.startswith(".") for part in parts)
    return bool(name) and not (hidden or key == MANIFEST_KEY or name in _SECRETS or name.endswith(_OF_THIS_MACHINE))


def is_database(key: str) -> bool:
    """Whether the file is SQLite's: whole only when no process has it open."""
    return key.endswith(_DATABASE)


def is_open(path: Path) -> bool:
    """Whether a database has commits outside its own file: it is open, or a killed process left it so."""
    return any(log.exists() and log.stat().st_size > 0 for log in companions(path) if log.name.endswith(_LOGS))


def companions(path: Path) -> list[Path]:
    """Side files of a database, there or not; none for other files."""
    if not is_database(path.name):
        return []
    return [path.with_name(path.name + ending) for ending in (*_LOGS, "-shm")]


def key_of(folder: Path, path: Path) -> str:
    """The key of a file of `folder`.

    Raises:
        InvariantError: the file lies elsewhere.
    """
    try:
        return path.absolute().relative_to(folder.absolute()).as_posix()
    except ValueError:
        raise InvariantError(f"{path} is no file of the run in {folder}") from None


def publishable_keys(folder: Path) -> list[str]:
    """Keys of all files of `folder` that may have a copy, databases included, sorted."""
    found = (key_of(folder, path) for path in folder.rglob("*") if path.is_file())
    return sorted(key for key in found if is_publishable(key))
