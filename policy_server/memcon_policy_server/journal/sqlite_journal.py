"""The journal of one shard: an append-only, checksummed list of commits in one database file.

It is the truth of what was learned. Owns durability, order and the owner's epoch; knows nothing of what events mean.
One row a commit; its checksum covers the row and the checksum before it, so that an altered, removed, added or swapped
row is found and named.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from memcon.errors import (
    ConfigError,
    InvariantError,
    LockedError,
    MemconError,
    NotFoundError,
    SchemaVersionError,
    StorageError,
)
from memcon.learning.events import Event
from memcon_policy_server.journal.owner_process import end_owner, this_process
from memcon_policy_server.journal.packing import kind_of, pack, unpack
from memcon_policy_server.journal.schema import GENESIS, SCHEMA, SCHEMA_VERSION, chained, commits, meta
from memcon_policy_server.journal.sqlite_engine import BUSY_TIMEOUT_S, Store, damaged

__all__ = ["Marks", "Row", "SqliteJournal"]

# A busy owner starves single attempts (measured), hence several short ones; when all failed, the recorded owner is
# ended, and there are as many again.
CLAIM_ATTEMPTS = 6
CLAIM_PATIENCE_S = 0.5
# Events that a compaction drops in one transaction, some 20 ms, and its pause behind each: an owner's commit gets in.
DROPPED_AT_ONCE = 10_000
PAUSE_S = 0.02

# Checks the epoch and moves the head, inside the transaction.
_MOVE_HEAD = (
    sa.update(meta)
    .where(meta.c.epoch == sa.bindparam("mine"))
    .values(last_seq=sa.bindparam("to_seq"), head=sa.bindparam("to_head"))
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Where an event stands that was read; the checksum of its commit fits."""

    # 1-based, without gaps.
    seq: int
    kind: str
    # "" for events of no single decision.
    decision_id: str

    @property
    def name(self) -> str:
        """How messages name this event."""
        decision = f" of decision {self.decision_id}" if self.decision_id else ""
        return f"event {self.seq} ({self.kind}{decision})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """How far the journal reaches: events (base_seq, last_seq] are in it, (0, exported_seq] in an export too."""

    base_seq: int
    exported_seq: int
    last_seq: int


class SqliteJournal:
    """The open journal of one shard. `claim` before `append`, both in one thread at a time; the rest from any thread.

    Raises:
        DamagedFileError: the file is no sound journal.
        SchemaVersionError: another schema version wrote it; names the command that migrates an older one.
        ConfigError: it belongs to another shard or another number of shards.
        StorageError: the place cannot be read or written.
    """

    def __init__(self, path: Path, *, shard: int, num_shards: int, read_only: bool = False) -> None:
        self.path, self.shard, self.num_shards = path, shard, num_shards
        self.epoch = self.last_seq = 0
        self._head = GENESIS
        self._store = Store(path, read_only=read_only)
        self._move_head = self._store.prepared(_MOVE_HEAD)
        self._insert = self._store.prepared(sa.insert(commits))
        try:
            if not read_only:
                self._create()
            self._check_meta()
        except BaseException:
            self.close()
            raise

    # --- the owner ---------------------------------------------------------------------------------------------------

    def claim(self) -> int:
        """Become the owner: raise the epoch in one transaction and return it; older owners can commit no more.

        An earlier owner that is alive on this machine and keeps the file busy is killed, and the claim goes on.

        Raises:
            LockedError: another process held a transaction open during all attempts.
        """
        self._store.set_patience(CLAIM_PATIENCE_S)
        try:
            if not self._claimed(CLAIM_ATTEMPTS) and not (self._ended_owner() and self._claimed(CLAIM_ATTEMPTS)):
                # Says what is in the way.
                self._claim_once()
        finally:
            self._store.set_patience(BUSY_TIMEOUT_S)
        return self.epoch

    def append(self, events: Sequence[Event]) -> int:
        """Commit `events` in one transaction under this owner's epoch; returns the last sequence number.

        Raises:
            LockedError: another process has claimed the journal since; nothing was written.
            StorageError: the disk refuses; nothing was written.
        """
        if not self.epoch:
            raise StorageError(f"{self.path} is not claimed: call claim() before append()")
        if not events:
            return self.last_seq
        body = pack(events)
        first, last = self.last_seq + 1, self.last_seq + len(events)
        head = chained(self._head, first, last, body)
        with self._store.committing() as driver:
            moved = driver.execute(
                self._move_head.text, self._move_head.values(mine=self.epoch, to_seq=last, to_head=head)
            )
            if moved.rowcount != 1:
                raise LockedError(
                    f"{self.path} was claimed by another process after epoch {self.epoch}; this owner stops"
                )
            driver.execute(
                self._insert.text, self._insert.values(first_seq=first, last_seq=last, body=body, checksum=head)
            )
        self._head, self.last_seq = head, last
        return last

    @property
    def head(self) -> bytes:
        """Checksum of all events up to `last_seq`, as this owner knows it."""
        return self._head

    def current_epoch(self) -> int:
        """The epoch of the last claim, whoever made it; on a connection of its own, for a thread beside the writer's.

        Raises:
            MemconError: the file cannot be read now.
        """
        with self._store.reading("read the epoch of") as connection:
            return int(connection.execute(sa.select(meta.c.epoch)).scalar_one())

    # --- views -------------------------------------------------------------------------------------------------------

    def read(self, after: int = 0) -> Iterator[tuple[Row, Event]]:
        """The events after number `after` in order, each checked against the chain of checksums.

        Raises:
            DamagedFileError: names the first events that were altered, removed or added.
            NotFoundError: events after `after` were compacted away.
        """
        with self._store.reading() as connection:
            found = connection.execute(sa.select(meta)).one()
            if after < found.base_seq:
                raise NotFoundError(
                    f"{self.path}: events {after + 1} to {found.base_seq} were compacted away; read them from the "
                    f"exported Parquet, or begin after {found.base_seq}"
                )
            seq, head = self._before(connection, found, after)
            for commit in connection.execute(
                sa.select(commits).where(commits.c.first_seq > seq).order_by(commits.c.first_seq)
            ):
                events = self._checked(commit, seq, head)
                for number, event in enumerate(events, start=seq + 1):
                    if number > after:
                        yield _row(number, event), event
                seq, head = commit.last_seq, commit.checksum
            if seq != found.last_seq:
                raise damaged(self.path, f"it ends at event {seq}, event {found.last_seq} was the last one committed")
            if head != found.head:
                raise damaged(self.path, f"it ends at event {seq}, but not as it was committed")

    def commit_end(self, seq: int) -> int:
        """The last event at or before `seq` that ends a commit."""
        with self._store.reading() as connection:
            return self._before(connection, connection.execute(sa.select(meta)).one(), seq)[0]

    def head_at(self, seq: int) -> bytes | None:
        """The checksum of all events up to `seq`; None when no commit of this journal ends there."""
        with self._store.reading() as connection:
            found = connection.execute(sa.select(meta)).one()
            if seq == found.base_seq:
                return bytes(found.base_head)
            last_seq, head = self._before(connection, found, seq)
            return bytes(head) if last_seq == seq else None

    def end(self) -> int:
        """Number of the last committed event; 0 when there is none."""
        return self.marks().last_seq

    def marks(self) -> Marks:
        """How far the journal and its export reach."""
        found = self._meta()
        return Marks(base_seq=found.base_seq, exported_seq=found.exported_seq, last_seq=found.last_seq)

    # --- upkeep; beside a live owner, too ----------------------------------------------------------------------------

    def mark_exported(self, seq: int) -> None:
        """Note that the events up to `seq` are held durably elsewhere; never moves back."""
        with self._store.writing("mark the export of") as connection:
            connection.execute(
                sa.update(meta).where(meta.c.exported_seq < seq, meta.c.last_seq >= seq).values(exported_seq=seq)
            )

    def compact(self, through: int, replace: Callable[[bytes], object]) -> int:
        """Drop the events up to `through`, the end of a commit that is exported; returns how many there were.

        `replace` is given the checksum at `through` and must put durably in place what stands for those events
        (`compaction.compact`). The caller lets no second compaction run meanwhile. The events go in parts, a short
        transaction each: an owner whose commit waited for all of them would give up, and end.

        Raises:
            InvariantError: no exported commit ends at `through`; nothing was dropped.
            LockedError: an owner kept the journal busy; what was dropped until then is, and the rest can follow.
        """
        marks, head = self.marks(), self.head_at(through)
        if through <= marks.base_seq:
            # Another compaction was quicker.
            return 0
        if head is None or through > marks.exported_seq:
            raise InvariantError(
                f"compacting {self.path} through event {through}: that is no end of a commit, or it is not "
                f"exported (event {marks.exported_seq} is the last one that is)"
            )
        replace(head)
        base_seq = marks.base_seq
        while base_seq < through:
            base_seq = self._dropped(base_seq, min(base_seq + DROPPED_AT_ONCE, through))
            self._let_owner_in()
        self._store.shrink()
        return through - marks.base_seq

    def _dropped(self, base_seq: int, through: int) -> int:
        """Drop the commits after `base_seq` that begin at or before `through`; returns the last event of them."""
        with self._store.writing("compact") as connection:
            last = connection.execute(
                sa.select(commits.c.last_seq, commits.c.checksum)
                .where(commits.c.first_seq <= through)
                .order_by(commits.c.first_seq.desc())
                .limit(1)
            ).one()
            connection.execute(sa.delete(commits).where(commits.c.first_seq <= through))
            connection.execute(sa.update(meta).values(base_seq=last.last_seq, base_head=last.checksum))
        return int(last.last_seq)

    @staticmethod
    def _let_owner_in() -> None:
        # Nobody sets it: a commit that waits tries again and again, and finds the journal free half of the time.
        threading.Event().wait(PAUSE_S)

    def close(self) -> None:
        """Close the file; may be called twice. A claim of this owner that still stands is given up."""
        if self.epoch:
            mine, self.epoch = self.epoch, 0
            # Only a word for others, who ask who is alive: the epoch is what holds. Nobody waits for it.
            with suppress(MemconError):
                self._store.set_patience(0.0)
                with self._store.writing("give up") as connection:
                    connection.execute(sa.update(meta).where(meta.c.epoch == mine).values(owner=""))
        self._store.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _claimed(self, attempts: int) -> bool:
        for _ in range(attempts):
            try:
                self._claim_once()
            except LockedError:
                continue
            return True
        return False

    def _ended_owner(self) -> bool:
        owner = self._meta().owner
        ended = end_owner(owner)
        if ended:
            _log.warning("journal.owner_killed", extra={"path": str(self.path), "owner": owner})
        return ended

    def _claim_once(self) -> None:
        with self._store.writing("claim") as connection:
            found = connection.execute(sa.select(meta)).one()
            connection.execute(sa.update(meta).values(epoch=found.epoch + 1, owner=this_process()))
        self.epoch, self.last_seq, self._head = found.epoch + 1, found.last_seq, bytes(found.head)

    def _meta(self) -> Any:
        with self._store.reading() as connection:
            return connection.execute(sa.select(meta)).one()

    def _before(self, connection: sa.Connection, found: Any, after: int) -> tuple[int, bytes]:
        """The last event at or before `after` that ends a commit, and the checksum there."""
        # Asked by the first event, which is the key: the last one would have the whole file read. The newest that
        # begins in time may end too late; the one before it does not.
        newest = connection.execute(
            sa.select(commits.c.last_seq, commits.c.checksum)
            .where(commits.c.first_seq <= after)
            .order_by(commits.c.first_seq.desc())
            .limit(2)
        ).all()
        ended = [(commit.last_seq, commit.checksum) for commit in newest if commit.last_seq <= after]
        return ended[0] if ended else (found.base_seq, found.base_head)

    def _checked(self, commit: Any, seq: int, head: bytes) -> list[Event]:
        """The events of a commit that follows event `seq`, whose checksum is `head`."""
        name = f"events {commit.first_seq} to {commit.last_seq}"
        if commit.first_seq != seq + 1:
            raise damaged(self.path, f"event {seq + 1} is missing, {name} follow event {seq}")
        if commit.checksum != chained(head, commit.first_seq, commit.last_seq, commit.body):
            raise damaged(self.path, f"{name} were altered: their checksum does not fit")
        try:
            events = unpack(commit.body)
        except MemconError as error:
            raise damaged(self.path, f"{name} cannot be read: {error}") from error
        if len(events) != commit.last_seq - seq:
            raise damaged(self.path, f"{name} are {len(events)} events")
        return events

    def _create(self) -> None:
        with self._store.reading("open") as connection:
            if sa.inspect(connection).get_table_names():
                return
        with self._store.writing("create") as connection:
            if sa.inspect(connection).get_table_names():
                return
            SCHEMA.create_all(connection)
            connection.execute(
                sa.insert(meta).values(
                    id=1,
                    schema_version=SCHEMA_VERSION,
                    shard=self.shard,
                    num_shards=self.num_shards,
                    epoch=0,
                    owner="",
                    last_seq=0,
                    head=GENESIS,
                    base_seq=0,
                    base_head=GENESIS,
                    exported_seq=0,
                )
            )

    def _check_meta(self) -> None:
        with self._store.reading("open") as connection:
            tables = set(sa.inspect(connection).get_table_names())
            if "meta" not in tables:
                raise damaged(self.path, "it is no memcon journal")
            versions = connection.execute(sa.select(meta.c.schema_version)).scalars().all()
            if versions != [SCHEMA_VERSION]:
                raise _other_version(self.path, versions[0] if versions else None)
            if not tables.issuperset(SCHEMA.tables):
                raise damaged(self.path, "it is no memcon journal")
            found = connection.execute(sa.select(meta.c.shard, meta.c.num_shards)).one()
        if tuple(found) != (self.shard, self.num_shards):
            raise ConfigError(
                f"{self.path} is shard {found.shard} of {found.num_shards}, not {self.shard} of {self.num_shards}; "
                f"keep policy_server.shards at {found.num_shards}, or take a new run name"
            )


def _row(seq: int, event: Event) -> Row:
    return Row(seq=seq, kind=kind_of(event), decision_id=getattr(event, "decision_id", ""))


def _other_version(path: Path, found: object) -> SchemaVersionError:
    if isinstance(found, int) and 0 < found < SCHEMA_VERSION:
        return SchemaVersionError(path, found, SCHEMA_VERSION, remedy=f"run `memcon data migrate {path.parent}`")
    return SchemaVersionError(path, found, SCHEMA_VERSION)
