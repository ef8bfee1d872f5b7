"""A shard's state from its files: the fold of its journal, or of what follows a snapshot.

The journal is the truth. A snapshot is used where one is sound and belongs to it; else the fold begins earlier, and
only where the events before it were compacted away is that an error.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

from memcon.errors import DamagedFileError, InvariantError, MemconError
from memcon.learning.events import Event
from memcon.learning.shard import PolicyShard
from memcon_policy_server.journal.folder_lock import folding
from memcon_policy_server.journal.snapshot import read_snapshot
from memcon_policy_server.journal.sqlite_engine import damaged
from memcon_policy_server.journal.sqlite_journal import Marks, Row, SqliteJournal
from memcon_policy_server.sharding import base_path, journal_path, snapshot_path

__all__ = ["check_journal", "fold", "folded", "load_snapshot", "restore", "unsigned_shard"]

# A fold for reading signs nothing: any key of the right length serves.
_UNSIGNED = bytes(32)

_log = logging.getLogger(__name__)


def unsigned_shard(shard: int, num_shards: int) -> PolicyShard:
    """A fresh shard for reading: what it signs is worth nothing."""
    return PolicyShard(shard, num_shards, _UNSIGNED)


def restore(journal: SqliteJournal, core: PolicyShard) -> int:
    """Bring the fresh `core` to the journal's last event by the shortest sound way.

    Returns the number of the event after which it folded: that of the snapshot, or 0.

    Raises:
        MemconError: as `load_snapshot` and `fold`.
    """
    with folding(journal.path.parent):
        began = load_snapshot(journal, core)
        try:
            for _ in fold(journal, core, after=began):
                pass
        except InvariantError as error:
            if not began:
                raise
            place = snapshot_path(journal.path.parent, journal.shard)
            raise InvariantError(
                f"{error}; the fold began with a snapshot after event {began}: move {place} away to fold from before it"
            ) from error
    return began


def fold(journal: SqliteJournal, core: PolicyShard, *, after: int = 0) -> Generator[tuple[Row, Event], None, None]:
    """Apply the events after number `after` to `core`, which stands there, yielding each after it was applied.

    Raises:
        DamagedFileError: a row was altered, removed, added, or cannot be read; names the events.
        InvariantError: the shard does not follow an event, such as a choice that it would not make; names the event.
        NotFoundError: events after `after` were compacted away.
    """
    for row, event in journal.read(after):
        try:
            core.apply(event)
        except MemconError as error:
            raise InvariantError(f"{journal.path}: {row.name} does not fit what came before it: {error}") from error
        yield row, event


def load_snapshot(journal: SqliteJournal, core: PolicyShard, *, latest: bool = True) -> int:
    """Load the latest sound snapshot of `journal` into the fresh `core`; returns its event, 0 = the fold has no start.

    Without `latest` the one from which all that the journal still holds can be folded: none, but for a journal that
    was compacted. A snapshot that cannot be used is logged with the reason. Call it, and the fold, inside `folding`.

    Raises:
        DamagedFileError: none can be used, and events were compacted away; names each with its reason. Or the journal
            ends before a sound snapshot: it lost events, and must not be taken for the truth.
    """
    directory, marks = journal.path.parent, journal.marks()
    base_seq = marks.base_seq
    places = [snapshot_path(directory, journal.shard)] if latest else []
    if base_seq:
        places.append(base_path(directory, journal.shard))
    problems = []
    for path in places:
        try:
            seq = _loaded(journal, core, path, marks)
        except _JournalTooShortError:
            raise
        except MemconError as error:
            problems.append(str(error))
            _log.warning("snapshot.unusable", extra={"path": str(path), "reason": str(error)})
            continue
        if seq is not None:
            return seq
        problems.append(f"{path} is missing")
    if base_seq:
        raise damaged(
            journal.path,
            f"events 1 to {base_seq} were compacted away and no snapshot can stand for them: {'; '.join(problems)}",
        )
    return 0


def folded(directory: Path, shard: int, num_shards: int, *, from_snapshot: bool = False) -> tuple[PolicyShard, int]:
    """One shard as its files in `directory` give it, and the number of its last event; nothing is written.

    Without `from_snapshot` every event that the journal holds is folded and checked.

    Raises:
        MemconError: the journal is missing or damaged, or it does not fold.
    """
    journal = SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards, read_only=True)
    core = unsigned_shard(shard, num_shards)
    with closing(journal), folding(directory):
        last_seq = load_snapshot(journal, core, latest=from_snapshot)
        for row, _ in fold(journal, core, after=last_seq):
            last_seq = row.seq
    return core, last_seq


def check_journal(directory: Path, shard: int, num_shards: int) -> None:
    """Refuse files from which no owner could start; cheap where there is a snapshot. A journal not yet made is sound.

    Raises:
        MemconError: as `folded`.
    """
    if journal_path(directory, shard).exists():
        folded(directory, shard, num_shards, from_snapshot=True)


class _JournalTooShortError(DamagedFileError):
    """The journal ends before its snapshot."""


def _loaded(journal: SqliteJournal, core: PolicyShard, path: Path, marks: Marks) -> int | None:
    """Load the snapshot at `path` if there is one; returns its event.

    Raises:
        MemconError: why it cannot be used; `core` is as fresh as it was.
    """
    snapshot = read_snapshot(path)
    if snapshot is None:
        return None
    if (snapshot.shard, snapshot.num_shards) != (journal.shard, journal.num_shards):
        raise damaged(path, f"it is of shard {snapshot.shard} of {snapshot.num_shards}")
    if snapshot.seq > marks.last_seq:
        raise _JournalTooShortError(
            journal.path,
            f"it ends at event {marks.last_seq}, and {path.name} beside it was made after event {snapshot.seq}",
            "restore the journal from a newer copy, or move that snapshot away to go on without the events after "
            f"event {marks.last_seq}",
        )
    if snapshot.seq < marks.base_seq:
        raise damaged(path, f"it was made after event {snapshot.seq}, and later ones were compacted away")
    if journal.head_at(snapshot.seq) != snapshot.head:
        raise damaged(path, f"it is of another journal: the one beside it has no such commit at event {snapshot.seq}")
    core.load(snapshot.state)
    return snapshot.seq
