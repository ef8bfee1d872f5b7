"""Export of a policy's journals to Parquet: the events of each shard, in parts, each from where the last one ended.

The journal notes how far an export holds its events durably, and a compaction drops no others. So there is one export
of a policy folder, and it must be kept: after a compaction it alone has the events.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from memcon.errors import DamagedFileError, LockedError, StorageError
from memcon.files import replace_file
from memcon.learning.events import Credited, Event, encode_event
from memcon_policy_server.journal.sqlite_journal import Row, SqliteJournal
from memcon_policy_server.sharding import journal_path, shards_in

__all__ = ["EVENT_SCHEMA", "EVENT_SCHEMA_VERSION", "export_events"]

EVENT_SCHEMA_VERSION = 1
# Events in one file at most.
PART_EVENTS = 100_000

# Columns that hold a field of the event under its name, null where the event has no such field.
_FIELDS: tuple[tuple[str, Any], ...] = (
    ("table", pa.string()),
    ("decision_id", pa.string()),
    ("episode_id", pa.string()),
    ("position", pa.int64()),
    ("keys", pa.list_(pa.string())),
    ("draw", pa.uint64()),
    ("allowed", pa.list_(pa.string())),
    ("action_id", pa.string()),
    ("reward", pa.float64()),
    ("num_decisions", pa.int64()),
    ("cost", pa.float64()),
    ("late", pa.bool_()),
    ("default_reward", pa.float64()),
    ("reason", pa.string()),
)
EVENT_SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        *[pa.field(name, kind) for name, kind in _FIELDS],
        # The whole event: `memcon.learning.events.decode_event` reads it.
        pa.field("body", pa.string(), nullable=False),
    ],
    metadata={b"memcon.table": b"events", b"memcon.schema_version": str(EVENT_SCHEMA_VERSION).encode()},
)


def export_events(directory: Path, destination: Path) -> int:
    """Write what no export holds yet of the journals in the policy folder `directory`; returns how many events.

    Files: `shard=<i>/events-<first number>.parquet` in `destination`. One that a kill left unmarked is written anew
    under the same name, so that no event stands twice. May run beside live owners.

    Raises:
        NotFoundError: no journal there.
        LockedError: another export writes to `destination`.
        DamagedFileError: `destination` is of a later state of a journal, which was put back to an older copy since.
        MemconError: a journal is damaged, or a place cannot be read or written.
    """
    num_shards = shards_in(directory)
    with _alone(destination):
        return sum(_export_shard(directory, shard, num_shards, destination) for shard in range(num_shards))


def _export_shard(directory: Path, shard: int, num_shards: int, destination: Path) -> int:
    journal = SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards)
    exported = 0
    try:
        began = journal.marks().exported_seq
        _check_none_after(began + 1, destination / f"shard={shard}", journal)
        events = journal.read(began)
        while rows := [_columns(shard, row, event) for row, event in islice(events, PART_EVENTS)]:
            path = destination / f"shard={shard}" / f"events-{rows[0]['seq']:012d}.parquet"
            replace_file(path, _encoded(rows))
            journal.mark_exported(rows[-1]["seq"])
            exported += len(rows)
    finally:
        journal.close()
    return exported


def _check_none_after(first: int, folder: Path, journal: SqliteJournal) -> None:
    """Refuse parts that begin after event `first`: they hold events that this journal never had, or has otherwise."""
    for path in sorted(folder.glob("events-*.parquet")):
        if path.stem.removeprefix("events-") > f"{first:012d}":
            raise DamagedFileError(
                path,
                f"the journal {journal.path} beside it is exported to event {first - 1} only: it was put back to an "
                "older copy",
                "restore the newer journal, or move this file and those after it away",
            )


def _columns(shard: int, row: Row, event: Event) -> dict[str, Any]:
    """The event as a row of the table."""
    # A recovered decision has its place in the event that credits it.
    nested = event.recovered if isinstance(event, Credited) else None
    fields: Mapping[str, Any] = {
        name: getattr(event, name, None) if nested is None else getattr(nested, name, getattr(event, name, None))
        for name, _ in _FIELDS
    }
    return {"seq": row.seq, "shard": shard, "kind": row.kind, **fields, "body": encode_event(event)[1]}


def _encoded(rows: list[dict[str, Any]]) -> Any:
    buffer = pa.BufferOutputStream()
    content = pa.Table.from_pylist(rows, schema=EVENT_SCHEMA)
    pq.write_table(content, buffer, compression="zstd", write_page_checksum=True)
    return buffer.getvalue()


@contextmanager
def _alone(destination: Path) -> Iterator[None]:
    """Keep a second export out: both would write the same names."""
    try:
        destination.mkdir(parents=True, exist_ok=True)
        handle = (destination / ".lock").open("a")
    except OSError as error:
        raise StorageError(f"cannot write {destination}: {error.strerror}; check permissions and space") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(f"another process exports to {destination}; wait for it or end it") from None
        yield
