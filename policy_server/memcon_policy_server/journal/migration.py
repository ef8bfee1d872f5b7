"""Journals of schema version 1 (one row an event, as JSON) to version 2, in place and in one transaction.

The events stay what they are, with their numbers; only their form and their checksums change. The epoch is raised, so
that an owner of the older memcon which still lives can commit no more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from memcon.errors import InvariantError, MemconError, NotFoundError, SchemaVersionError
from memcon.learning.events import Event, decode_event
from memcon_policy_server.journal.packing import pack, unpack
from memcon_policy_server.journal.schema import GENESIS, SCHEMA_VERSION, chained, commits, meta
from memcon_policy_server.journal.sqlite_engine import Store, damaged

__all__ = ["migrate"]

_OLD_VERSION = 1
# Events in one row of the migrated journal.
PACKED_EVENTS = 256

_old_schema = sa.MetaData()
_old_meta = sa.Table(
    "meta",
    _old_schema,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("num_shards", sa.Integer, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("owner", sa.String, nullable=False),
    sa.Column("last_seq", sa.Integer, nullable=False),
    # Hexadecimal, "" before the first event.
    sa.Column("head", sa.String, nullable=False),
)
_old_events = sa.Table(
    "events",
    _old_schema,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("table_name", sa.String, nullable=False),
    sa.Column("decision_id", sa.String, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("checksum", sa.String, nullable=False),
)


def migrate(path: Path) -> int | None:
    """Bring the journal at `path` to this memcon's schema version; returns its events, None when it has it already.

    Raises:
        NotFoundError: no such file.
        DamagedFileError: it is no sound journal; names the event. Nothing was changed.
        SchemaVersionError: a newer memcon wrote it.
        LockedError: its owner keeps it busy.
        StorageError: the disk refuses; nothing was changed.
    """
    if not path.exists():
        raise NotFoundError(f"{path} does not exist; give the folder of a run or of a served policy")
    store = Store(path, read_only=False)
    try:
        with store.reading("open") as connection:
            if not _is_old(connection, path):
                return None
        with store.writing("migrate") as connection:
            # Again: another migration may have been quicker.
            if not _is_old(connection, path):
                return None
            last_seq = _migrated(connection, path)
        store.shrink()
    finally:
        store.close()
    return last_seq


def _is_old(connection: sa.Connection, path: Path) -> bool:
    tables = set(sa.inspect(connection).get_table_names())
    versions = connection.execute(sa.select(_old_meta.c.schema_version)).scalars().all() if "meta" in tables else []
    if versions == [SCHEMA_VERSION]:
        return False
    if len(versions) == 1 and versions[0] != _OLD_VERSION:
        raise SchemaVersionError(path, versions[0], SCHEMA_VERSION)
    if not versions or not tables.issuperset(_old_schema.tables):
        raise damaged(path, "it is no memcon journal")
    return True


def _migrated(connection: sa.Connection, path: Path) -> int:
    old = connection.execute(sa.select(_old_meta)).one()
    commits.create(connection)
    head, seq = GENESIS, 0
    for events in _batches(connection, path, old):
        body = pack(events)
        if unpack(body) != events:
            raise InvariantError(f"{path}: events {seq + 1} to {seq + len(events)} do not survive their new form")
        first, last = seq + 1, seq + len(events)
        head = chained(head, first, last, body)
        connection.execute(sa.insert(commits).values(first_seq=first, last_seq=last, body=body, checksum=head))
        seq = last
    _old_schema.drop_all(connection)
    meta.create(connection)
    connection.execute(
        sa.insert(meta).values(
            id=1,
            schema_version=SCHEMA_VERSION,
            shard=old.shard,
            num_shards=old.num_shards,
            epoch=old.epoch + 1,
            owner="",
            last_seq=seq,
            head=head,
            base_seq=0,
            base_head=GENESIS,
            exported_seq=0,
        )
    )
    return seq


def _batches(connection: sa.Connection, path: Path, old: Any) -> Iterator[list[Event]]:
    """The old journal's events in order, each checked against its chain of checksums."""
    seq, checksum = 0, ""
    while True:
        rows = connection.execute(
            sa.select(_old_events).where(_old_events.c.seq > seq).order_by(_old_events.c.seq).limit(PACKED_EVENTS)
        ).all()
        events = []
        for row in rows:
            checksum = _old_checksum(checksum, row)
            name = f"event {row.seq} ({row.kind} of decision {row.decision_id or '-'})"
            if row.seq != seq + 1:
                raise damaged(path, f"event {seq + 1} is missing, {name} follows event {seq}")
            if row.checksum != checksum:
                raise damaged(path, f"{name} was altered: its checksum does not fit")
            try:
                events.append(decode_event(row.kind, row.body))
            except MemconError as error:
                raise damaged(path, f"{name} cannot be read: {error}") from error
            seq = row.seq
        if events:
            yield events
        else:
            break
    if (seq, checksum) != (old.last_seq, old.head):
        raise damaged(path, f"it ends at event {seq}, event {old.last_seq} was the last one committed")


def _old_checksum(before: str, row: Any) -> str:
    parts = [before, row.seq, row.kind, row.table_name, row.decision_id, row.body]
    return hashlib.blake2b(json.dumps(parts, ensure_ascii=False).encode(), digest_size=16).hexdigest()
