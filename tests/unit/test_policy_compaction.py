"""Compaction drops exported events only, what stands for them is their fold, and nothing served changes by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from memcon.errors import DamagedFileError, InvariantError, LockedError, StorageError
from memcon.learning.events import Event
from memcon.learning.shard import PolicyShard
from memcon.testing.policy import decide_request, outcome_request
from memcon_policy_server.journal import compaction, sqlite_journal
from memcon_policy_server.journal.compaction import Compacted, compact
from memcon_policy_server.journal.fold import folded
from memcon_policy_server.journal.folder_lock import compacting, folding
from memcon_policy_server.journal.snapshot import write_snapshot
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import base_path, journal_path, snapshot_path
from support import journals
from support.shards import SECRET, SETTINGS

# Events in one commit.
COMMIT = 4


def history(num_decisions: int) -> list[Event]:
    """One event that opens the table, then two a decision."""
    shard = PolicyShard(0, 1, SECRET)
    events: list[Event] = [*shard.open_table("table", SETTINGS).events]
    for number in range(num_decisions):
        handled = shard.decide(decide_request(number, key=f"key {number % 3}"))
        events += [*handled.events, *shard.outcome(outcome_request(handled.reply, float(number % 2))).events]
    return events


def journal_of(directory: Path, *, exported: int, num_decisions: int = 20) -> Path:
    events = history(num_decisions)
    journals.written(
        journal_path(directory, 0), [events[first : first + COMMIT] for first in range(0, len(events), COMMIT)]
    )
    mark(directory, exported)
    return directory


def opened(directory: Path) -> closing[SqliteJournal]:
    return closing(SqliteJournal(journal_path(directory, 0), shard=0, num_shards=1))


def mark(directory: Path, exported: int) -> None:
    with opened(directory) as journal:
        journal.mark_exported(exported)


def table(directory: Path, *, from_snapshot: bool = False) -> tuple[str, int]:
    core, last_seq = folded(directory, 0, 1, from_snapshot=from_snapshot)
    return json.dumps(core.dump("table")), last_seq


def test_exported_commits_are_dropped_and_the_table_stays_the_same(tmp_path: Path) -> None:
    # 41 events in commits of 4; the export ends inside one.
    journal_of(tmp_path, exported=22)
    before = table(tmp_path)

    assert compact(tmp_path, 0, 1) == Compacted(shard=0, dropped=20, kept=21)

    assert table(tmp_path) == table(tmp_path, from_snapshot=True) == before


def test_without_an_export_nothing_is_dropped(tmp_path: Path) -> None:
    journal_of(tmp_path, exported=3)
    assert compact(tmp_path, 0, 1) == Compacted(shard=0, dropped=0, kept=41)
    assert not base_path(tmp_path, 0).exists()


def test_compactions_follow_one_another_to_the_very_end(tmp_path: Path) -> None:
    journal_of(tmp_path, exported=9)
    before = table(tmp_path)

    dropped = [compact(tmp_path, 0, 1).dropped]
    for exported in (9, 30, 41):
        mark(tmp_path, exported)
        dropped.append(compact(tmp_path, 0, 1).dropped)

    assert dropped == [8, 0, 20, 13]
    assert table(tmp_path) == before
    size = journal_path(tmp_path, 0).stat().st_size
    assert size < 20_000


def test_a_compacted_journal_goes_on(tmp_path: Path) -> None:
    journal_of(tmp_path, exported=41)
    compact(tmp_path, 0, 1)

    more = history(25)[41:]
    with opened(tmp_path) as journal:
        journal.claim()
        assert journal.append(more) == 51

    core = PolicyShard(0, 1, SECRET)
    for event in history(25):
        core.apply(event)
    assert table(tmp_path) == (json.dumps(core.dump("table")), 51)


def test_an_owner_commits_on_through_a_compaction(tmp_path: Path) -> None:
    journal_of(tmp_path, exported=40)
    with opened(tmp_path) as owner:
        owner.claim()
        more = history(22)[41:]
        owner.append(more[:2])
        assert compact(tmp_path, 0, 1).dropped == 40
        assert owner.append(more[2:]) == 45
    assert table(tmp_path)[1] == 45


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_a_lost_base_is_an_error_that_names_it_and_what_it_stood_for(tmp_path: Path, damage: str) -> None:
    journal_of(tmp_path, exported=40)
    compact(tmp_path, 0, 1)
    base = base_path(tmp_path, 0)
    content = base.read_bytes()
    base.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    if damage == "missing":
        base.unlink()

    for from_snapshot in (False, True):
        with pytest.raises(DamagedFileError, match=r"events 1 to 40 were compacted away.*shard-0\.base"):
            table(tmp_path, from_snapshot=from_snapshot)


def test_a_bad_snapshot_costs_nothing_while_the_base_is_sound(tmp_path: Path) -> None:
    journal_of(tmp_path, exported=20)
    before = table(tmp_path)
    compact(tmp_path, 0, 1)
    snapshot_path(tmp_path, 0).write_bytes(b"torn")
    assert table(tmp_path, from_snapshot=True) == before


def test_a_snapshot_from_before_the_base_is_not_needed_any_more(tmp_path: Path) -> None:
    journal_of(tmp_path, exported=40)
    before = table(tmp_path)
    core, events = PolicyShard(0, 1, SECRET), history(20)
    for event in events[:8]:
        core.apply(event)
    with opened(tmp_path) as journal:
        head = journal.head_at(8)
    assert head is not None
    write_snapshot(snapshot_path(tmp_path, 0), shard=0, num_shards=1, seq=8, head=head, state=core.state())
    compact(tmp_path, 0, 1)
    assert table(tmp_path, from_snapshot=True) == before


def test_a_damaged_journal_is_not_compacted(tmp_path: Path) -> None:
    journal_of(tmp_path, exported=40)
    journals.altered(journal_path(tmp_path, 0), "UPDATE commits SET body = X'90' WHERE first_seq = 9")
    with pytest.raises(DamagedFileError, match="events 9 to 12 were altered"):
        compact(tmp_path, 0, 1)
    assert not base_path(tmp_path, 0).exists()


def test_events_stay_when_what_stands_for_them_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_of(tmp_path, exported=40)
    before = table(tmp_path)

    def full(*_: object, **__: object) -> int:
        raise StorageError("cannot write: no space left")

    with monkeypatch.context() as patched:
        patched.setattr(compaction, "write_snapshot", full)
        with pytest.raises(StorageError, match="no space"):
            compact(tmp_path, 0, 1)
    assert table(tmp_path) == before
    assert compact(tmp_path, 0, 1).dropped == 40


def test_a_compaction_that_was_killed_before_it_dropped_the_events_is_made_up_for(tmp_path: Path) -> None:
    journal_of(tmp_path, exported=40)
    before = table(tmp_path)
    compact(tmp_path, 0, 1)
    base = base_path(tmp_path, 0).read_bytes()
    # The same journal as before it, with the base already there.
    journal_path(tmp_path, 0).unlink()
    journal_of(tmp_path, exported=40)
    base_path(tmp_path, 0).write_bytes(base)

    assert table(tmp_path) == before
    assert compact(tmp_path, 0, 1).dropped == 40
    assert table(tmp_path) == before


@pytest.mark.parametrize("through", [22, 24, 41, 99])
def test_the_journal_itself_drops_nothing_that_is_not_exported_or_no_end_of_a_commit(
    tmp_path: Path, through: int
) -> None:
    journal_of(tmp_path, exported=22)
    with opened(tmp_path) as journal, pytest.raises(InvariantError, match=f"through event {through}"):
        journal.compact(through, lambda _: None)
    assert table(tmp_path)[1] == 41


def test_events_stay_while_somebody_folds_them(tmp_path: Path) -> None:
    journal_of(tmp_path, exported=40)
    with folding(tmp_path), folding(tmp_path):
        with pytest.raises(LockedError, match="run the same command later"):
            compact(tmp_path, 0, 1)
        assert not base_path(tmp_path, 0).exists()
    assert compact(tmp_path, 0, 1).dropped == 40


def test_a_large_drop_leaves_room_for_an_owner_and_survives_a_kill_in_its_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_of(tmp_path, exported=40)
    before = table(tmp_path)
    monkeypatch.setattr(sqlite_journal, "DROPPED_AT_ONCE", 6)
    bases: list[int] = []

    def look() -> None:
        with opened(tmp_path) as owner:
            # As an owner's commit would: the journal is free here.
            owner.claim()
            bases.append(owner.marks().base_seq)
        if len(bases) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SqliteJournal, "_let_owner_in", staticmethod(look))
        with pytest.raises(KeyboardInterrupt):
            compact(tmp_path, 0, 1)

    assert bases == [8, 16, 24]
    assert table(tmp_path) == before
    assert compact(tmp_path, 0, 1) == Compacted(shard=0, dropped=16, kept=1)
    assert table(tmp_path) == before


def test_two_compactions_do_the_work_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal_of(tmp_path, exported=24)
    before = table(tmp_path)
    found: list[Compacted] = []

    @contextmanager
    def slow(directory: Path) -> Iterator[None]:
        # Another compaction comes first, after a later export.
        if not found:
            found.append(Compacted(shard=0, dropped=0, kept=0))
            mark(directory, 36)
            found.append(compact(directory, 0, 1))
        with compacting(directory):
            yield

    monkeypatch.setattr(compaction, "compacting", slow)
    assert compact(tmp_path, 0, 1) == Compacted(shard=0, dropped=0, kept=5)
    assert found[1] == Compacted(shard=0, dropped=36, kept=5)
    assert table(tmp_path) == before


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot read .*nowhere"), folding(tmp_path / "nowhere"):
        pass
