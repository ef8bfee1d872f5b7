"""What a run's folder knows of its copy: the file `.published.json` inside the folder, which has no copy itself.

It holds, of each file, the digest that folder and store last agreed on, with size and mtime, so that an unchanged file
is not read again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from memcon.errors import DamagedFileError, SchemaVersionError, StorageError
from memcon.files import replace_file
from memcon_platform.mirror.manifest import Manifest
from memcon_platform.mirror.selection import is_database, is_open, publishable_keys

__all__ = ["OPEN", "Known", "Synced", "folder_lock", "load", "rebased", "unpublished"]

# In place of the digest of a database that has commits outside its file: equal to no digest.
OPEN = "open"

_STATE_FILE, _LOCK_FILE, _SCHEMA = ".published.json", ".published.lock", 1
# The coarsest clocks of file systems tick every 2 s: a file that was written this shortly before it was read may be
# written again without a new mtime.
_TICK_NS = 2_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A file as folder and store last agreed on it: bytes, mtime then (ns; 0: read it again), sha256.

    `etag` is the store's mark of the object that was put or read then; empty when it was neither.
    """

    size: int
    mtime_ns: int
    sha256: str
    etag: str


@dataclass(slots=True, kw_only=True)
class Synced:
    """The content of the state file, of a folder and one URI."""

    uri: str
    # Digest of the store's manifest when they last agreed.
    manifest: str | None = None
    # Digest of the manifest that a publish was about to put: found in the store, it arrived and its answer was lost.
    attempt: str | None = None
    files: dict[str, Known] = field(default_factory=dict)
    # When this publish or fetch began, by the clock of the folder's file system.
    began_ns: int = 0

    def save(self, folder: Path) -> None:
        """Write the state file.

        Raises:
            StorageError: the folder cannot be written.
        """
        files = {
            key: [known.size, known.mtime_ns, known.sha256, known.etag] for key, known in sorted(self.files.items())
        }
        body = {
            "schema": _SCHEMA,
            "uri": self.uri,
            "manifest": self.manifest,
            "attempt": self.attempt,
            "files": files,
        }
        replace_file(folder / _STATE_FILE, json.dumps(body, indent=0))

    def digest_here(self, folder: Path, key: str) -> str | None:
        """sha256 of the file in the folder, `OPEN` for a database that is not closed, None when there is no file.

        Raises:
            StorageError: the file cannot be read.
        """
        path = folder / key
        try:
            if not path.is_file():
                return None
            if is_database(key) and is_open(path):
                return OPEN
            known, stat = self.files.get(key), path.stat()
            if known is not None and (known.size, known.mtime_ns) == (stat.st_size, stat.st_mtime_ns):
                return known.sha256
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror or error}; mend its permissions") from error

    def agree(self, folder: Path, key: str, digest: str | None, *, etag: str = "") -> None:
        """Take `digest` as what folder and store have of a file; None: neither has it."""
        known = self.files.pop(key, None)
        if digest is None:
            return
        if not etag and known is not None and known.sha256 == digest:
            etag = known.etag
        path = folder / key
        size, mtime_ns = path.stat().st_size, self.settled_mtime(path)
        self.files[key] = Known(size=size, mtime_ns=mtime_ns, sha256=digest, etag=etag)

    def settled_mtime(self, path: Path) -> int:
        """The file's mtime, ns; 0 when the file may change without a new one."""
        mtime_ns = path.stat().st_mtime_ns
        return mtime_ns if mtime_ns < self.began_ns - _TICK_NS else 0

    def base(self, key: str) -> str | None:
        """Digest that folder and store last agreed on; None when they never did."""
        known = self.files.get(key)
        return known.sha256 if known else None


def load(folder: Path, uri: str, began_ns: int = 0) -> Synced:
    """What `folder` knows of its copy at `uri`: nothing when it was never published there or fetched from there.

    Raises:
        DamagedFileError: the state file cannot be read.
        SchemaVersionError: it is of another schema version.
    """
    path = folder / _STATE_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Synced(uri=uri, began_ns=began_ns)
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFileError(path, str(error), "mend or remove it, then fetch the run again") from error
    try:
        body = json.loads(text)
        if body["schema"] != _SCHEMA:
            raise SchemaVersionError(path, body["schema"], _SCHEMA, remedy="use the memcon that wrote it")
        if body["uri"] != uri:
            return Synced(uri=uri, began_ns=began_ns)
        files = {
            key: Known(size=size, mtime_ns=mtime_ns, sha256=sha256, etag=etag)
            for key, (size, mtime_ns, sha256, etag) in body["files"].items()
        }
        return Synced(uri=uri, manifest=body["manifest"], attempt=body["attempt"], files=files, began_ns=began_ns)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(
            path, f"{type(error).__name__}: {error}", "remove it, then fetch the run again"
        ) from error


def rebased(synced: Synced, there: Manifest) -> Synced:
    """The same with `there` as the base, where it is the manifest of a publish from here whose answer was lost."""
    if there.digest != synced.attempt:
        return synced
    files = {
        key: Known(size=entry.size, mtime_ns=0, sha256=entry.sha256, etag="") for key, entry in there.files.items()
    }
    return Synced(uri=synced.uri, manifest=there.digest, files=files, began_ns=synced.began_ns)


def unpublished(folder: Path, uri: str) -> list[str]:
    """Keys of files that are new, changed or gone here since folder and store last agreed, sorted; asks no store.

    Raises:
        DamagedFileError: the state file cannot be read.
    """
    synced = load(folder, uri)
    keys = set(synced.files).union(publishable_keys(folder))
    return sorted(key for key in keys if synced.digest_here(folder, key) != synced.base(key))


@contextmanager
def folder_lock(folder: Path) -> Iterator[int]:
    """Let one publish or fetch at a time work on `folder`, which is made; another one waits. Gives the time, ns.

    Raises:
        StorageError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / _LOCK_FILE).open("a")
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror or error}; check permissions and space") from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        # The file system's own clock: mtimes are compared with it, and that of another machine may differ.
        os.utime(handle.fileno())
        yield os.fstat(handle.fileno()).st_mtime_ns
