"""The journal of one shard: an append-only, checksummed list of events in one SQLite file.

It is the truth of what was learned. Owns durability, order and the owner's epoch; knows nothing of what events mean.
Every row's checksum covers the row and the checksum before it, so that an altered, removed, added or swapped row is
found and named. The statements are plain SQLAlchemy Core; only `_engine` knows that the store is SQLite.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from memcon.errors import (
    ConfigError,
    DamagedFileError,
    LockedError,
    MemconError,
    SchemaVersionError,
    StorageError,
)

__all__ = ["SCHEMA_VERSION", "Entry", "Row", "SqliteJournal"]

SCHEMA_VERSION = 1
# One attempt waits this long for another process's transaction; a claim makes several (facts: a busy owner starves
# single attempts).
BUSY_TIMEOUT_S = 5.0
CLAIM_ATTEMPTS = 6

_REMEDY = "restore it from a copy, or start a new run under another name; nothing was written over it"

_schema = sa.MetaData()
_meta = sa.Table(
    "meta",
    _schema,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("num_shards", sa.Integer, nullable=False),
    # Raised by every claim; a commit under an older epoch is refused.
    sa.Column("epoch", sa.Integer, nullable=False),
    # Process id and its start in clock ticks, so that a reused id is told apart.
    sa.Column("owner", sa.String, nullable=False),
    # Last event and its checksum: finds a removed tail.
    sa.Column("last_seq", sa.Integer, nullable=False),
    sa.Column("head", sa.String, nullable=False),
)
_events = sa.Table(
    "events",
    _schema,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("table_name", sa.String, nullable=False),
    sa.Column("decision_id", sa.String, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("checksum", sa.String, nullable=False),
)
# Made once: building them anew was half of a commit's function calls. The first checks the epoch and moves the head,
# inside the transaction.
_MOVE_HEAD = (
    sa.update(_meta)
    .where(_meta.c.epoch == sa.bindparam("mine"))
    .values(last_seq=sa.bindparam("to_seq"), head=sa.bindparam("to_head"))
)
_INSERT = sa.insert(_events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event, ready to be written."""

    kind: str
    table: str
    # "" for events of no single decision.
    decision_id: str
    # JSON text.
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One event as it was read, its checksum already checked."""

    # 1-based, without gaps.
    seq: int
    entry: Entry

    @property
    def name(self) -> str:
        """How messages name this event."""
        decision = f" of decision {self.entry.decision_id}" if self.entry.decision_id else ""
        return f"event {self.seq} ({self.entry.kind}{decision})"


class SqliteJournal:
    """The open journal of one shard. One thread at a time; `claim` before `append`.

    Raises:
        DamagedFileError: the file is no sound journal.
        SchemaVersionError: another schema version wrote it.
        ConfigError: it belongs to another shard or another number of shards.
        StorageError: the place cannot be read or written.
    """

    def __init__(self, path: Path, *, shard: int, num_shards: int, read_only: bool = False) -> None:
        self.path, self.shard, self.num_shards = path, shard, num_shards
        self.epoch = self.last_seq = 0
        self._head = ""
        try:
            if not read_only:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._engine = _engine(path, read_only=read_only)
            with self._translated("open"):
                self._connection = self._engine.connect()
        except OSError as error:
            raise StorageError(f"cannot write {path.parent}: {error.strerror}; check permissions and space") from error
        try:
            with self._translated("open"):
                self._check_meta(read_only=read_only)
        except BaseException:
            self.close()
            raise

    def claim(self) -> int:
        """Become the owner: raise the epoch in one transaction and return it; older owners can commit no more.

        Raises:
            LockedError: another process held a transaction open during all attempts.
        """
        for attempt in range(CLAIM_ATTEMPTS):
            try:
                with self._translated("claim"), self._connection.begin():
                    row = self._connection.execute(sa.select(_meta)).one()
                    owner = f"{os.getpid()}:{_process_start()}"
                    self._connection.execute(sa.update(_meta).values(epoch=row.epoch + 1, owner=owner))
            except LockedError:
                if attempt == CLAIM_ATTEMPTS - 1:
                    raise
            else:
                self.epoch, self.last_seq, self._head = row.epoch + 1, row.last_seq, row.head
                break
        return self.epoch

    def append(self, entries: Sequence[Entry]) -> int:
        """Commit `entries` in one transaction under this owner's epoch; returns the last sequence number.

        Raises:
            LockedError: another process has claimed the journal since; nothing was written.
            StorageError: the disk refuses; nothing was written.
        """
        if not self.epoch:
            raise StorageError(f"{self.path} is not claimed: call claim() before append()")
        head, rows = self._head, []
        for seq, entry in enumerate(entries, start=self.last_seq + 1):
            head = _checksum(head, seq, entry)
            rows.append(_row(seq, entry, head))
        last_seq = self.last_seq + len(rows)
        with self._translated("commit to"), self._connection.begin():
            moved = self._connection.execute(_MOVE_HEAD, {"mine": self.epoch, "to_seq": last_seq, "to_head": head})
            if moved.rowcount != 1:
                raise LockedError(
                    f"{self.path} was claimed by another process after epoch {self.epoch}; this owner stops"
                )
            self._connection.execute(_INSERT, rows)
        self._head, self.last_seq = head, last_seq
        return last_seq

    def read(self) -> Iterator[Row]:
        """All events in order, each checked against the chain of checksums.

        Raises:
            DamagedFileError: names the first event that was altered, removed or added.
        """
        with self._translated("read"), self._connection.begin():
            meta = self._connection.execute(sa.select(_meta)).one()
            head, seq = "", 0
            for found in self._connection.execute(sa.select(_events).order_by(_events.c.seq)):
                seq += 1
                entry = Entry(kind=found.kind, table=found.table_name, decision_id=found.decision_id, body=found.body)
                row = Row(seq=found.seq, entry=entry)
                if found.seq != seq:
                    raise self._damaged(f"event {seq} is missing, {row.name} follows event {seq - 1}")
                head = _checksum(head, seq, entry)
                if found.checksum != head:
                    raise self._damaged(f"{row.name} was altered: its checksum does not fit")
                yield row
            if (seq, head) != (meta.last_seq, meta.head):
                raise self._damaged(f"it ends at event {seq}, event {meta.last_seq} was the last one committed")

    def end(self) -> int:
        """Number of the last committed event; 0 when there is none."""
        with self._translated("read"), self._connection.begin():
            return int(self._connection.execute(sa.select(_meta.c.last_seq)).scalar_one())

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._connection.close()
        self._engine.dispose()

    def _check_meta(self, *, read_only: bool) -> None:
        with self._connection.begin():
            tables = set(sa.inspect(self._connection).get_table_names())
            if not tables and not read_only:
                _schema.create_all(self._connection)
                fresh = {"id": 1, "schema_version": SCHEMA_VERSION, "shard": self.shard, "num_shards": self.num_shards}
                self._connection.execute(sa.insert(_meta).values(**fresh, epoch=0, owner="", last_seq=0, head=""))
                return
            if not tables.issuperset(_schema.tables):
                raise self._damaged("it is no memcon journal")
            versions = self._connection.execute(sa.select(_meta.c.schema_version)).scalars().all()
            if versions != [SCHEMA_VERSION]:
                raise SchemaVersionError(self.path, versions[0] if versions else None, SCHEMA_VERSION)
            found = self._connection.execute(sa.select(_meta.c.shard, _meta.c.num_shards)).one()
        if tuple(found) != (self.shard, self.num_shards):
            raise ConfigError(
                f"{self.path} is shard {found.shard} of {found.num_shards}, not {self.shard} of {self.num_shards}; "
                f"keep policy_server.shards at {found.num_shards}, or take a new run name"
            )

    def _damaged(self, problem: str) -> DamagedFileError:
        return DamagedFileError(self.path, problem, _REMEDY)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Map what the database raises to memcon's errors."""
        try:
            yield
        except MemconError:
            raise
        except sa.exc.DBAPIError as error:
            cause = error.orig
            code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
            if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
                raise LockedError(
                    f"cannot {doing} {self.path}: another process is writing it; end that process"
                ) from error
            if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}:
                raise self._damaged(str(cause)) from error
            raise StorageError(f"cannot {doing} {self.path}: {cause}; check permissions and space") from error


def _checksum(before: str, seq: int, entry: Entry) -> str:
    parts = [before, seq, entry.kind, entry.table, entry.decision_id, entry.body]
    return hashlib.blake2b(json.dumps(parts, ensure_ascii=False).encode(), digest_size=16).hexdigest()


def _row(seq: int, entry: Entry, checksum: str) -> dict[str, object]:
    return {
        "seq": seq,
        "kind": entry.kind,
        "table_name": entry.table,
        "decision_id": entry.decision_id,
        "body": entry.body,
        "checksum": checksum,
    }


def _process_start() -> str:
    """Start of this process in clock ticks since boot, or "" where /proc does not exist."""
    try:
        return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _reading(path: Path) -> str:
    """How to open for reading: a journal that was closed in order is read without making a lock file beside it."""
    return "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"


def _engine(path: Path, *, read_only: bool) -> sa.Engine:
    def _connect() -> sqlite3.Connection:
        # autocommit (isolation_level None): the "begin" hook below says how each transaction starts. The owner opens
        # the file in one thread and commits in its writer thread, never in both at once.
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{_reading(path) if read_only else 'mode=rwc'}",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        # WAL is a lasting property of the file: set once, and never on a file that may be someone else's.
        if not read_only and path.stat().st_size == 0:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    engine = sa.create_engine("sqlite://", creator=_connect, poolclass=sa.pool.StaticPool)

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine
