"""StreamStore: the one SQLite file of a stream (architecture: "a stream survives anything").

Owns the lock, the epoch, what was started and ended, the episodes and the outbox of outcomes. Backends and the plan
index keep their own tables in the same file through `connection` and never commit: `end` commits everything of a task
at once. Maintenance inside a task runs in the transaction that the task's `end` commits, so that a crash leaves the
file at the last ended task. A damaged file is refused and left as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from memcon import codec
from memcon.errors import DamagedFileError, InvariantError, StorageError
from memcon.memory_copy import copy_memory_tables
from memcon.policy_types import OutcomeRequest
from memcon.stream_file import DAMAGE_REMEDY, SEEDED, lock_stream, open_stream
from memcon.types import Episode

__all__ = ["DAMAGE_REMEDY", "OpenTask", "StreamStore"]

T = TypeVar("T")


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
        # Times that rows changed behind the back of whoever wrote them (a rollback, a copy): whoever cached rows under
        # another count reads them again.
        self.rollbacks = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = lock_stream(path.with_suffix(".lock"))
        except OSError as error:
            raise StorageError(f"cannot write {path.parent}: {error.strerror}; check permissions and space") from error
        try:
            self.connection = open_stream(path, identity)
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

    # --- what the memory begins with ---------------------------------------------------------------------------------

    @property
    def is_seeded(self) -> bool:
        """`seeded` has run to its end."""
        return self.connection.execute("SELECT 1 FROM meta WHERE key = ?", (SEEDED,)).fetchone() is not None

    def seeded(self, make: Callable[[], object]) -> bool:
        """Before the first task, run `make` in one commit, once in the life of the file; False when it was done before.

        Raises:
            StorageError: the disk refuses; nothing of `make` was kept.
            InvariantError: a task has started already.
        """
        if self.is_seeded:
            return False
        if self.connection.execute("SELECT 1 FROM started").fetchone() or self.num_ended:
            raise InvariantError(f"{self.path}: its memory cannot be filled, the first task has started")
        with self._commit():
            make()
            self._check_open()
            self.connection.execute("INSERT INTO meta VALUES (?, 'yes')", (SEEDED,))
        return True

    def copy_memory(self, path: Path, *, num_ended: int | None = None) -> None:
        """Inside `seeded`: take over the memory of the stream file `path`, which is only read.

        Raises:
            NotFoundError: there is no such file.
            ConflictError: its stream has not ended just `num_ended` tasks, if that is given; nothing was copied.
            DamagedFileError, SchemaVersionError, ConfigError: the file cannot be taken; nothing was copied.
            StorageError: `path` cannot be read, or the disk refuses.
            InvariantError: no commit is open.
        """
        if not self.connection.in_transaction:
            raise InvariantError(f"{self.path}: a memory is copied inside `seeded` only")
        copy_memory_tables(path, self.connection, num_ended=num_ended)
        self.rollbacks += 1

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
            InvariantError: the episode is not the next one, or could not be read again.
        """
        with self._commit(held=True):
            episode = make()
            self._check_open()
            if episode.ordinal != self.num_ended:
                raise InvariantError(f"{self.path}: task {episode.ordinal} cannot end, the next is {self.num_ended}")
            self.connection.execute("INSERT INTO episodes VALUES (?, ?)", (episode.ordinal, self._readable(episode)))
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
        except BaseException as error:
            self.rollbacks += 1
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK TO maintenance")
                self.connection.execute("RELEASE maintenance")
            elif isinstance(error, Exception):
                # A full disk is no failure of the hook: SQLite has rolled back on its own all that the task wrote.
                self._check_open()
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

    def _check_open(self) -> None:
        """Refuse to go on without the transaction: what follows would be committed without what came before."""
        if not self.connection.in_transaction:
            raise StorageError(
                f"cannot write {self.path}: no transaction is open; a full disk ends one (make space), and so does a "
                "memory that commits by itself (mend it); then run again"
            )

    def _readable(self, episode: Episode) -> str:
        """The record of `episode`. Plug-ins gave its values: one of a wrong type would make the file unreadable."""
        try:
            text = codec.encode_json(episode)
            codec.decode_json(Episode, text)
        except (TypeError, ValueError, codec.CodecError) as error:
            raise InvariantError(
                f"task {episode.ordinal} cannot be stored: {error}: a plug-in gave a value that its port does not "
                "allow; mend it and run again, nothing of the task was written"
            ) from error
        return text

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
