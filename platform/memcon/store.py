"""StreamStore: the one SQLite file of a stream (architecture: "a stream survives anything").

Owns the lock, the epoch, what was started and ended, the episodes and the outbox of outcomes. Backends and the plan
index keep their own tables in the same file through `connection` and never commit: `end` commits everything of a task
at once. A damaged file is refused and left as it is.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from memcon import codec
from memcon.errors import ConfigError, DamagedFileError, InvariantError, LockedError, SchemaVersionError, StorageError
from memcon.protocols import OutcomeRequest
from memcon.types import Episode

__all__ = ["OpenTask", "StreamStore"]

T = TypeVar("T")

SCHEMA_VERSION = 1
# "memc": tells a stream file from any other SQLite file.
APPLICATION_ID = 0x6D656D63

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE started (ordinal INTEGER NOT NULL, epoch INTEGER NOT NULL, worker_deaths INTEGER NOT NULL,
                      PRIMARY KEY (ordinal, epoch)) WITHOUT ROWID;
CREATE TABLE episodes (ordinal INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE outbox (decision_id TEXT PRIMARY KEY, ordinal INTEGER NOT NULL, record TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTask:
    """A task that was started and not ended: its process died."""

    ordinal: int
    epoch: int
    # Worker deaths inside this task so far.
    worker_deaths: int


class StreamStore:
    """The open file of one stream. One owner at a time, one thread at a time.

    Raises:
        LockedError: another process holds the stream.
        DamagedFileError: the file is no sound stream file.
        SchemaVersionError: another schema version wrote it.
        ConfigError: the file belongs to another stream.
        StorageError: the place cannot be written.
    """

    def __init__(self, path: Path, *, identity: str) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(path.with_suffix(".lock"))
        except OSError as error:
            raise StorageError(f"cannot write {path.parent}: {error.strerror}; check permissions and space") from error
        try:
            self.connection = _open(path, identity)
        except BaseException:
            self._lock.close()
            raise

    # --- claim -------------------------------------------------------------------------------------------------------

    def raise_epoch(self) -> int:
        """Claim the stream: commit and return the next epoch."""
        epoch = self.epoch + 1
        with self._commit():
            self.connection.execute("INSERT OR REPLACE INTO meta VALUES ('epoch', ?)", (str(epoch),))
        return epoch

    @property
    def epoch(self) -> int:
        """Epoch of the last claim; 0 before the first."""
        row = self.connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
        return int(row[0]) if row else 0

    def open_task(self) -> OpenTask | None:
        """The task that was started and not ended, if any."""
        row = self.connection.execute(
            "SELECT ordinal, epoch, worker_deaths FROM started WHERE ordinal = ? ORDER BY epoch DESC LIMIT 1",
            (self.num_ended,),
        ).fetchone()
        return OpenTask(ordinal=row[0], epoch=row[1], worker_deaths=row[2]) if row else None

    # --- task protocol -----------------------------------------------------------------------------------------------

    @property
    def num_ended(self) -> int:
        """Ended tasks = ordinal of the next task."""
        return int(self.connection.execute("SELECT COUNT(*) FROM episodes").fetchone()[0])

    def begin(self, ordinal: int, epoch: int, *, worker_deaths: int = 0) -> None:
        """Commit that the task at `ordinal` has started under `epoch`."""
        if ordinal != self.num_ended:
            raise InvariantError(f"{self.path}: task {ordinal} cannot start, the next ordinal is {self.num_ended}")
        with self._commit():
            self.connection.execute("INSERT INTO started VALUES (?, ?, ?)", (ordinal, epoch, worker_deaths))

    def end(self, episode: Episode, outbox: Sequence[OutcomeRequest], write: Callable[[], object] = lambda: None) -> None:
        """One commit of the episode, its outcomes as outbox rows, and all that `write` puts into the file."""
        with self._commit():
            write()
            self.connection.execute("INSERT INTO episodes VALUES (?, ?)", (episode.ordinal, codec.encode_json(episode)))
            self.connection.executemany(
                "INSERT INTO outbox VALUES (?, ?, ?)",
                [(row.decision_id, episode.ordinal, codec.encode_json(row)) for row in outbox],
            )

    def outbox(self) -> list[OutcomeRequest]:
        """Outcomes not yet acknowledged, in the order of their decisions."""
        rows = self.connection.execute("SELECT record FROM outbox").fetchall()
        found = [self._decode(OutcomeRequest, row[0]) for row in rows]
        return sorted(found, key=lambda row: row.position)

    def delivered(self) -> None:
        """Forget the outbox: all of it was acknowledged."""
        with self._commit():
            self.connection.execute("DELETE FROM outbox")

    # --- read --------------------------------------------------------------------------------------------------------

    def episodes(self, start: int = 0, stop: int | None = None) -> Iterator[Episode]:
        """Ended episodes with start <= ordinal < stop, in order."""
        rows = self.connection.execute(
            "SELECT record FROM episodes WHERE ordinal >= ? AND ordinal < ? ORDER BY ordinal",
            (start, 2**62 if stop is None else stop),
        )
        for row in rows:
            yield self._decode(Episode, row[0])

    def close(self) -> None:
        """Close the file and free the lock; may be called twice."""
        self.connection.close()
        self._lock.close()

    def _decode(self, kind: type[T], text: str) -> T:
        try:
            return codec.decode_json(kind, text)
        except codec.CodecError as error:
            raise DamagedFileError(self.path, str(error), _REMEDY) from error

    @contextmanager
    def _commit(self) -> Iterator[None]:
        """One transaction: all or nothing.

        Raises:
            StorageError: the disk refuses (full, read-only); the file stays at the last commit.
        """
        try:
            if not self.connection.in_transaction:
                self.connection.execute("BEGIN IMMEDIATE")
            yield
            self.connection.execute("COMMIT")
        except BaseException as error:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise StorageError(f"cannot write {self.path}: {error}; nothing of this task was kept, run again") from error
            raise


_REMEDY = "restore it from a copy, or move it away to start this stream anew; nothing was written over it"


def _lock(path: Path) -> IO[str]:
    handle = path.open("a+")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.seek(0)
        owner = handle.read().strip() or "unknown"
        handle.close()
        raise LockedError(f"{path} is held by process {owner}; wait for it or end it") from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


def _open(path: Path, identity: str) -> sqlite3.Connection:
    fresh = not path.exists() or path.stat().st_size == 0
    # One stream is driven by one task of the event loop, but commits run in the process's writer thread.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        if fresh:
            _create(connection, identity)
        else:
            _check(connection, path, identity)
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.DatabaseError as error:
        connection.close()
        if isinstance(error, sqlite3.OperationalError):
            raise StorageError(f"cannot open {path}: {error}; check permissions and space") from error
        raise DamagedFileError(path, str(error), _REMEDY) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _create(connection: sqlite3.Connection, identity: str) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(
        f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
        f"{_SCHEMA} INSERT INTO meta VALUES ('identity', {_quoted(identity)}); COMMIT;"
    )


def _check(connection: sqlite3.Connection, path: Path, identity: str) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise DamagedFileError(path, "it is no memcon stream file", _REMEDY)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise SchemaVersionError(path, version, SCHEMA_VERSION)
    problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise DamagedFileError(path, str(problem), _REMEDY)
    found = connection.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
    if found is None or found[0] != identity:
        raise ConfigError(f"{path} belongs to another stream ({json.dumps(found and found[0])}, not {identity!r})")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
