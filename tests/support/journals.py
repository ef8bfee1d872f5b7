"""Journals of tests: written, read, and altered by a hand that knows how they are chained."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

from memcon.learning.events import Event
from memcon_policy_server.journal.packing import pack, unpack
from memcon_policy_server.journal.schema import GENESIS, chained
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import journal_path


def written(path: Path, commits: Iterable[Sequence[Event]], *, shard: int = 0, num_shards: int = 1) -> Path:
    """A journal at `path` with one row for each of `commits`."""
    with closing(SqliteJournal(path, shard=shard, num_shards=num_shards)) as journal:
        journal.claim()
        for events in commits:
            journal.append(events)
    return path


def events_of(directory: Path, num_shards: int = 1) -> list[Event]:
    """All events of all shards in a policy folder, each shard's in order."""
    found: list[Event] = []
    for shard in range(num_shards):
        path = journal_path(directory, shard)
        with closing(SqliteJournal(path, shard=shard, num_shards=num_shards, read_only=True)) as journal:
            found += [event for _, event in journal.read()]
    return found


def altered(path: Path, *statements: str) -> None:
    """Run SQL on the file."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def rewritten(path: Path, change: Callable[[list[Event]], list[Event]], *, recompute: bool) -> None:
    """Replace the events of each commit by what `change` makes of them, with or without sound checksums."""
    with closing(sqlite3.connect(path)) as connection:
        head, last_seq = GENESIS, 0
        for first, body, checksum in connection.execute(
            "SELECT first_seq, body, checksum FROM commits ORDER BY first_seq"
        ).fetchall():
            events = change(unpack(body))
            if not events:
                connection.execute("DELETE FROM commits WHERE first_seq = ?", (first,))
                continue
            last_seq = first + len(events) - 1
            head = chained(head, first, last_seq, pack(events)) if recompute else checksum
            connection.execute(
                "UPDATE commits SET last_seq = ?, body = ?, checksum = ? WHERE first_seq = ?",
                (last_seq, pack(events), head, first),
            )
        connection.execute("UPDATE meta SET last_seq = ?, head = ?", (last_seq, head))
        connection.commit()
