"""StreamStore: the one SQLite file of a stream (architecture: "a stream survives anything").

Owns the lock, the epoch, what was started and ended, the episodes and the outbox of outcomes. Backends and the plan
index keep their own tables in the same file through `connection` and never commit: `end` commits everything of a task
at once. Maintenance inside a task runs in the transaction that the task's `end` commits, so that a crash leaves the
file at the last ended task. A damaged file is refused and left as it is.
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
from memcon.files import sync_folder
from memcon.policy_types import OutcomeRequest
from memcon.types import Episode

__all__ = ["DAMAGE_REMEDY", "OpenTask", "StreamStore"]

T = TypeVar("T")

SCHEMA_VERSION = 1
# "memc": tells a stream file from any other SQLite file.
APPLICATION_ID = 0x6D656D63
# A stream cannot begin anew inside its run: its decision ids stand in the journal already.
DAMAGE_REMEDY = "restore it from a copy, or start a new run under another name; nothing was written over it"

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
        # Rollbacks so far: whoever cached rows under another count reads them again.
        self.rollbacks = 0
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

    def end(self, make: Callable[[], Episode], outbox: Sequence[OutcomeRequest]) -> Episode:
        """One commit of a task: what `make` writes into the file, the episode that it returns, and its outcomes.

        Raises:
            StorageError: the disk refuses; the file stays at the last ended task.
            InvariantError: the episode is not the next one.
        """
        with self._commit(held=True):
            episode = make()
            if episode.ordinal != self.num_ended:
                raise InvariantError(f"{self.path}: task {episode.ordinal} cannot end, the next is {self.num_ended}")
            self.connection.execute("INSERT INTO episodes VALUES (?, ?)", (episode.ordinal, codec.encode_json(episode)))
            self.connection.executemany(
                "INSERT INTO outbox VALUES (?, ?, ?)",
                [(row.decision_id, episode.ordinal, codec.encode_json(row)) for row in outbox],
            )
        return episode

    def outbox(self) -> list[OutcomeRequest]:
        """Outcomes not yet acknowledged, in the order of their tasks and decisions."""
        rows = self.connection.execute("SELECT ordinal, record FROM outbox").fetchall()
        found = [(row[0], self._decode(OutcomeRequest, row[1])) for row in rows]
        return [row for _, row in sorted(found, key=lambda pair: (pair[0], pair[1].position))]

    def delivered(self) -> None:
        """Forget the outbox: all of it was acknowledged. No task may end between `outbox` and this call."""
        with self._commit():
            self.connection.execute("DELETE FROM outbox")

    # --- maintenance inside a task -----------------------------------------------------------------------------------

    @contextmanager
    def maintenance(self) -> Iterator[None]:
        """Hold what the block writes until `end` commits or `discard` drops it; a block that raises leaves no trace.

        Raises:
            StorageError: the disk refuses.
        """
        with self.storage_errors():
            if not self.connection.in_transaction:
                self.connection.execute("BEGIN IMMEDIATE")
            self.connection.execute("SAVEPOINT maintenance")
        try:
            yield
        except BaseException:
            self.rollbacks += 1
            # A full disk makes SQLite roll back everything on its own.
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK TO maintenance")
                self.connection.execute("RELEASE maintenance")
            raise
        self.connection.execute("RELEASE maintenance")

    def discard(self) -> None:
        """Drop what `maintenance` kept: the task teaches nothing. No effect without any."""
        if self.connection.in_transaction:
            self.rollbacks += 1
            self.connection.execute("ROLLBACK")

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
            raise DamagedFileError(self.path, str(error), DAMAGE_REMEDY) from error

    @contextmanager
    def _commit(self, *, held: bool = False) -> Iterator[None]:
        """One transaction: all or nothing; only the `end` of a task may commit what maintenance `held` open."""
        if self.connection.in_transaction and not held:
            raise InvariantError(f"{self.path}: maintenance of a task is neither ended nor discarded")
        try:
            with self.storage_errors():
                if not self.connection.in_transaction:
                    self.connection.execute("BEGIN IMMEDIATE")
                yield
                self.connection.execute("COMMIT")
        except BaseException:
            self.rollbacks += 1
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    @contextmanager
    def storage_errors(self) -> Iterator[None]:
        """Tell errors of SQLite by what the caller does next.

        Raises:
            StorageError: the disk refuses (full, read-only); the file stays at the last commit.
            InvariantError: a row is there already.
            DamagedFileError: the file is broken.
        """
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StorageError(
                f"cannot write {self.path}: {error}; nothing of this task was kept, run again"
            ) from error
        except sqlite3.IntegrityError as error:
            raise InvariantError(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise DamagedFileError(self.path, str(error), DAMAGE_REMEDY) from error


def _lock(path: Path) -> IO[str]:
    handle = path.open("a+")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.seek(0)
        owner = handle.read().strip() or "unknown"
        handle.close()
        raise LockedError(f"{path} is held by process {owner}; wait for it or end it") from None
    except BaseException:
        handle.close()
        raise
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


def _open(path: Path, identity: str) -> sqlite3.Connection:
    try:
        if not path.exists():
            _create(path, identity)
        elif path.stat().st_size == 0:
            # A new file gets its name when it is complete, so an empty one has lost what it held.
            raise DamagedFileError(path, "it is empty", DAMAGE_REMEDY)
        # One stream is driven by one task of the event loop, but commits run in the process's writer thread.
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.OperationalError) as error:
        raise StorageError(f"cannot open {path}: {error}; check permissions and space") from error
    try:
        _check(connection, path, identity)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.OperationalError):
            raise StorageError(f"cannot open {path}: {error}; check permissions and space") from error
        if isinstance(error, sqlite3.DatabaseError):
            raise DamagedFileError(path, str(error), DAMAGE_REMEDY) from error
        raise
    return connection


def _create(path: Path, identity: str) -> None:
    """Make the file under another name and rename it, so that `path` is never half a stream file."""
    log = path.with_name(path.name + "-wal")
    if log.exists():
        # SQLite would play the orphan's pages into the new file.
        raise DamagedFileError(log, f"its database {path.name} is missing", "put it back, or move both files away")
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    connection = sqlite3.connect(fresh, isolation_level=None)
    try:
        connection.executescript(
            f"PRAGMA synchronous = FULL; BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID};"
            f"PRAGMA user_version = {SCHEMA_VERSION}; {_SCHEMA}"
        )
        connection.execute("INSERT INTO meta VALUES ('identity', ?)", (identity,))
        connection.execute("COMMIT")
    finally:
        connection.close()
    fresh.replace(path)
    sync_folder(path.parent)


def _check(connection: sqlite3.Connection, path: Path, identity: str) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise DamagedFileError(path, "it is no memcon stream file", DAMAGE_REMEDY)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise SchemaVersionError(path, version, SCHEMA_VERSION)
    problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise DamagedFileError(path, " ".join(str(problem).split()), DAMAGE_REMEDY)
    found = connection.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
    if found is None or found[0] != identity:
        raise ConfigError(f"{path} belongs to another stream ({json.dumps(found and found[0])}, not {identity!r})")
