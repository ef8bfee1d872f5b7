"""Compaction: the events that an export holds leave the journal, and a snapshot of their fold stands for them.

That snapshot is made here, by folding the journal itself, and never taken from an owner: what is dropped was checked
event by event a moment before. It may run beside a live owner, whose commits wait for one part of the drop at most.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from memcon_policy_server.journal.fold import fold, load_snapshot, unsigned_shard
from memcon_policy_server.journal.folder_lock import compacting, folding
from memcon_policy_server.journal.snapshot import write_snapshot
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import base_path, journal_path

__all__ = ["Compacted", "compact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a compaction did to one shard's journal."""

    shard: int
    # Events that it dropped, and those that it left.
    dropped: int
    kept: int


def compact(directory: Path, shard: int, num_shards: int) -> Compacted:
    """Drop the exported events of the shard's journal in `directory`, as far as they end with a commit.

    Raises:
        MemconError: the journal or its base is damaged, does not fold, or cannot be written; nothing was dropped.
    """
    journal = SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards)
    try:
        dropped = _dropped(journal, base_path(directory, shard))
        marks = journal.marks()
    finally:
        journal.close()
    return Compacted(shard=shard, dropped=dropped, kept=marks.last_seq - marks.base_seq)


def _dropped(journal: SqliteJournal, base: Path) -> int:
    directory = journal.path.parent
    with folding(directory):
        marks = journal.marks()
        through = journal.commit_end(marks.exported_seq)
        if through == marks.base_seq:
            return 0
        core = unsigned_shard(journal.shard, journal.num_shards)
        # A base that is ahead of the journal: a compaction was killed before it dropped the events.
        began = load_snapshot(journal, core, latest=False)
        with closing(fold(journal, core, after=began)) as events:
            while began < through:
                began = next(events)[0].seq
    write = partial(
        write_snapshot, base, shard=journal.shard, num_shards=journal.num_shards, seq=began, state=core.state()
    )
    with compacting(directory):
        return journal.compact(began, lambda head: write(head=head))
