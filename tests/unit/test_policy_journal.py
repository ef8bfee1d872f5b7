"""The journal keeps order, finds every altered row, and refuses owners that were replaced."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from memcon.errors import ConfigError, DamagedFileError, LockedError, NotFoundError, SchemaVersionError, StorageError
from memcon.learning.events import Cancelled, EpisodeClosed, Event
from memcon_policy_server.journal import sqlite_engine
from memcon_policy_server.journal import sqlite_journal as journal_module
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from support import journals
from support.journals import altered


def event(number: int) -> Cancelled:
    return Cancelled(table="t", decision_id=f"d{number}", reason="cancelled")


def opened(path: Path, *, read_only: bool = False) -> closing[SqliteJournal]:
    return closing(SqliteJournal(path, shard=0, num_shards=1, read_only=read_only))


def written(path: Path, count: int = 5) -> Path:
    """Events 1; 2, 3; 4, 5; ... in one commit each."""
    events = [event(number) for number in range(count)]
    return journals.written(path, [events[:1], *[events[i : i + 2] for i in range(1, count, 2)]])


def read_all(path: Path, after: int = 0) -> list[str]:
    with opened(path, read_only=True) as journal:
        return [row.decision_id for row, _ in journal.read(after)]


def test_events_come_back_in_order_over_reopening(tmp_path: Path) -> None:
    path = written(tmp_path / "shard-0.sqlite", 3)
    with opened(path) as again:
        assert again.claim() == 2
        assert again.append([event(3)]) == 4
    assert read_all(path) == ["d0", "d1", "d2", "d3"]


def test_a_row_tells_its_number_and_what_it_is(tmp_path: Path) -> None:
    closed = EpisodeClosed(table="t", episode_id="e")
    path = journals.written(tmp_path / "shard-0.sqlite", [[event(0), closed]])
    with opened(path, read_only=True) as journal:
        (first, cancelled), (second, ended) = journal.read()
    assert (first.seq, first.name, cancelled) == (1, "event 1 (cancelled of decision d0)", event(0))
    assert (second.seq, second.name, ended) == (2, "event 2 (episode_closed)", closed)


@pytest.mark.parametrize("after", range(6))
def test_reading_begins_after_any_event_also_inside_a_commit(tmp_path: Path, after: int) -> None:
    path = written(tmp_path / "shard-0.sqlite")
    assert read_all(path, after) == [f"d{number}" for number in range(after, 5)]


def test_an_empty_batch_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "shard-0.sqlite", 3)
    with opened(path) as journal:
        journal.claim()
        assert journal.append([]) == 3
    assert read_all(path) == ["d0", "d1", "d2"]


def test_the_checksum_is_known_where_a_commit_ends_only(tmp_path: Path) -> None:
    with opened(written(tmp_path / "shard-0.sqlite")) as journal:
        journal.claim()
        heads = [journal.head_at(seq) for seq in range(7)]
        assert [head is not None for head in heads] == [True, True, False, True, False, True, False]
        assert heads[5] == journal.head
        assert [journal.commit_end(seq) for seq in range(6)] == [0, 1, 1, 3, 3, 5]


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE commits SET body = X'90' WHERE first_seq = 2", "events 2 to 3 were altered"),
        ("UPDATE commits SET checksum = X'00' WHERE first_seq = 4", "events 4 to 5 were altered"),
        ("UPDATE commits SET last_seq = 4 WHERE first_seq = 2", "events 2 to 4 were altered"),
        ("DELETE FROM commits WHERE first_seq = 2", "event 2 is missing, events 4 to 5 follow event 1"),
        ("DELETE FROM commits WHERE first_seq = 4", "it ends at event 3, event 5 was the last one committed"),
        ("INSERT INTO commits SELECT 6, 7, body, checksum FROM commits WHERE first_seq = 4", "events 6 to 7 were"),
        ("UPDATE meta SET head = X'00'", "it ends at event 5, but not as it was committed"),
    ],
)
def test_a_changed_row_is_found_and_named(tmp_path: Path, statement: str, named: str) -> None:
    path = written(tmp_path / "shard-0.sqlite")
    altered(path, statement)
    with pytest.raises(DamagedFileError) as caught:
        read_all(path)
    assert named in str(caught.value)


def test_swapped_rows_are_found(tmp_path: Path) -> None:
    path = written(tmp_path / "shard-0.sqlite")
    altered(
        path,
        "UPDATE commits SET first_seq = 99, last_seq = 99 WHERE first_seq = 2",
        "UPDATE commits SET first_seq = 2, last_seq = 3 WHERE first_seq = 4",
        "UPDATE commits SET first_seq = 4, last_seq = 5 WHERE first_seq = 99",
    )
    with pytest.raises(DamagedFileError, match="events 2 to 3 were altered"):
        read_all(path)


def test_a_flipped_byte_of_the_file_is_found(tmp_path: Path) -> None:
    path = written(tmp_path / "shard-0.sqlite")
    content = path.read_bytes()
    assert content.count(b"d3") == 1
    path.write_bytes(content.replace(b"d3", b"d7"))
    with pytest.raises(DamagedFileError, match="events 4 to 5 were altered"):
        read_all(path)


def test_an_event_that_no_memcon_knows_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "shard-0.sqlite", 1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(journal_module, "pack", lambda _: b"\x91\x92\xa4flew\x80")
        with opened(path) as journal:
            journal.claim()
            journal.append([event(1)])
    with pytest.raises(DamagedFileError, match="events 2 to 2 cannot be read: unknown kind of journal event 'flew'"):
        read_all(path)


def test_a_stale_owner_can_commit_no_more_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shard-0.sqlite"
    with opened(path) as old, opened(path) as new:
        old.claim()
        old.append([event(0)])
        assert new.claim() == 2
        with pytest.raises(LockedError, match="claimed by another process after epoch 1"):
            old.append([event(1)])
        assert old.current_epoch() == 2
        assert new.append([event(2)]) == 2
    assert read_all(path) == ["d0", "d2"]


def test_the_epoch_is_read_while_another_process_writes(tmp_path: Path) -> None:
    path = written(tmp_path / "shard-0.sqlite")
    with opened(path) as journal, closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert journal.current_epoch() == 1
        assert journal.end() == 5
        holder.execute("ROLLBACK")


def test_a_reader_keeps_no_owner_from_committing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_engine, "BUSY_TIMEOUT_S", 0.01)
    path = written(tmp_path / "shard-0.sqlite")
    with opened(path) as reader, opened(path) as owner:
        owner.claim()
        reading = reader.read()
        next(reading)
        assert owner.append([event(5)]) == 6
        # What was committed meanwhile is not seen, and is no damage.
        assert len(list(reading)) == 4


def test_a_journal_that_is_written_while_it_is_read_is_no_damaged_one(tmp_path: Path) -> None:
    # Closed in order, so that it is read without a lock and without a file beside it.
    path = written(tmp_path / "shard-0.sqlite", 1001)
    with opened(path, read_only=True) as reader:
        reading, other = reader.read(), reader.read()
        next(reading)
        next(other)
        with opened(path) as owner:
            owner.claim()
            owner.append([event(1001)])
            # Beside the file so far.
            assert len(list(other)) == 1000
            owner.mark_exported(1001)
            owner.compact(1001, lambda _: None)
        # Now all of it is in the file itself.
        with pytest.raises(LockedError, match="began to write it meanwhile; run the same command again"):
            list(reading)
        assert len(list(reader.read(1001))) == 1


def test_a_claim_gives_up_on_a_process_that_never_ends_its_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "CLAIM_PATIENCE_S", 0.01)
    path = written(tmp_path / "shard-0.sqlite")
    with opened(path) as journal, closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LockedError, match="another process is writing it"):
            journal.claim()
        holder.execute("ROLLBACK")
        assert journal.claim() == 2


def test_append_without_a_claim_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "shard-0.sqlite") as journal, pytest.raises(StorageError, match="not claimed"):
        journal.append([event(0)])


def test_an_export_is_marked_forward_only_and_never_past_the_end(tmp_path: Path) -> None:
    with opened(written(tmp_path / "shard-0.sqlite")) as journal:
        for seq, expected in ((3, 3), (2, 3), (6, 3), (5, 5)):
            journal.mark_exported(seq)
            assert journal.marks().exported_seq == expected


def test_what_was_compacted_away_is_not_read_and_the_rest_is_still_chained(tmp_path: Path) -> None:
    path = written(tmp_path / "shard-0.sqlite")
    with opened(path) as journal:
        journal.mark_exported(3)
        assert journal.compact(3, lambda _: None) == 3
        assert journal.compact(3, lambda _: None) == 0
    assert read_all(path, 3) == ["d3", "d4"]
    with pytest.raises(NotFoundError, match="events 3 to 3 were compacted away"):
        read_all(path, 2)
    altered(path, "UPDATE commits SET body = X'90' WHERE first_seq = 4")
    with pytest.raises(DamagedFileError, match="events 4 to 5 were altered"):
        read_all(path, 3)


def test_a_place_in_a_long_journal_is_found_without_reading_it(tmp_path: Path) -> None:
    path = written(tmp_path / "shard-0.sqlite")
    with opened(path) as journal:
        asked: list[tuple[str, Any]] = []

        @sa.event.listens_for(journal._store._reader, "before_cursor_execute")
        def _note(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
            asked.append((statement, values))

        ends = [journal.commit_end(seq) for seq in range(7)]
        known = [seq for seq in range(7) if journal.head_at(seq) is not None]
        next(iter(journal.read(3)))
    with closing(sqlite3.connect(path)) as connection:
        plans = [connection.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall() for text, values in asked]
    assert ends == [0, 1, 1, 3, 3, 5, 5]
    assert known == [0, 1, 3, 5]
    assert [plan for plan in plans if "SCAN commits" in str(plan)] == []


def _other_version(path: Path) -> None:
    altered(written(path), "UPDATE meta SET schema_version = 9")


def _foreign(path: Path) -> None:
    altered(path, "CREATE TABLE other (x)")


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database at all " * 400)


def _torn(path: Path) -> None:
    path.write_bytes(written(path).read_bytes()[:2000])


@pytest.mark.parametrize(
    ("spoil", "error", "text"),
    [
        (_other_version, SchemaVersionError, "has schema version 9, this memcon reads 2; migrate it or use its"),
        (_foreign, DamagedFileError, "no memcon journal"),
        (_garbage, DamagedFileError, "not a database"),
        (_torn, DamagedFileError, "malformed"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused_and_left_alone(
    tmp_path: Path, spoil: Callable[[Path], None], error: type[Exception], text: str
) -> None:
    path = tmp_path / "shard-0.sqlite"
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(error, match=text) as caught:
        read_all(path)
    with pytest.raises(error):
        SqliteJournal(path, shard=0, num_shards=1)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_another_number_of_shards_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "shard-0.sqlite")
    with pytest.raises(ConfigError, match="is shard 0 of 1, not 0 of 2"):
        SqliteJournal(path, shard=0, num_shards=2)


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="check permissions and space"):
        SqliteJournal(tmp_path / "file" / "shard-0.sqlite", shard=0, num_shards=1)


def test_a_missing_file_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot open"):
        read_all(tmp_path / "shard-0.sqlite")
    assert not list(tmp_path.iterdir())


def test_a_journal_that_was_opened_for_reading_takes_no_commit(tmp_path: Path) -> None:
    path = written(tmp_path / "shard-0.sqlite")
    events: list[Event] = [event(9)]
    with opened(path, read_only=True) as journal:
        with pytest.raises(StorageError, match="opened to be read only"):
            journal.claim()
        with pytest.raises(StorageError, match="not claimed"):
            journal.append(events)
