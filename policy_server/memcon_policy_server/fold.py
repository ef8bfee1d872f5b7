"""Journal rows and a shard's events: how one becomes the other. A table is the fold of its journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from memcon.errors import DamagedFileError, InvariantError, MemconError
from memcon.learning.events import Event, decode_event, encode_event
from memcon.learning.shard import PolicyShard
from memcon_policy_server.journal import Entry, Row, SqliteJournal
from memcon_policy_server.sharding import journal_path

__all__ = ["entry_of", "fold", "folded"]

# A fold for reading signs nothing: any key of the right length serves.
_UNSIGNED = bytes(32)


def entry_of(event: Event) -> Entry:
    """The journal's form of an event."""
    kind, body = encode_event(event)
    return Entry(kind=kind, table=event.table, decision_id=getattr(event, "decision_id", ""), body=body)


def fold(journal: SqliteJournal, shard: PolicyShard) -> Iterator[tuple[Row, Event]]:
    """Apply all events of `journal` to the fresh `shard`, yielding each after it was applied.

    Raises:
        DamagedFileError: a row was altered, removed, added, or cannot be read; names the event.
        InvariantError: the shard does not follow an event, such as a choice that it would not make; names the event.
    """
    for row in journal.read():
        try:
            event = decode_event(row.entry.kind, row.entry.body)
        except MemconError as error:
            raise DamagedFileError(
                journal.path, f"{row.name} cannot be read: {error}", "restore it from a copy"
            ) from error
        try:
            shard.apply(event)
        except MemconError as error:
            raise InvariantError(f"{journal.path}: {row.name} does not fit what came before it: {error}") from error
        yield row, event


def folded(directory: Path, shard: int, num_shards: int) -> tuple[PolicyShard, int]:
    """One shard as its journal in `directory` gives it, and the number of its last event; nothing is written.

    Raises:
        MemconError: the journal is missing or damaged, or it does not fold.
    """
    journal = SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards, read_only=True)
    core, last_seq = PolicyShard(shard, num_shards, _UNSIGNED), 0
    try:
        for row, _ in fold(journal, core):
            last_seq = row.seq
    finally:
        journal.close()
    return core, last_seq
