"""The journal keeps order, finds every altered row, and refuses owners that were replaced."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from memcon.errors import ConfigError, DamagedFileError, LockedError, SchemaVersionError, StorageError
from memcon_policy_server import journal as journal_module
from memcon_policy_server.journal import Entry, SqliteJournal


def entry(number: int) -> Entry:
    return Entry(kind="decided", table="t", decision_id=f"d{number}", body=f'{{"number":{number}}}')


def written(path: Path, count: int = 5) -> Path:
    journal = SqliteJournal(path, shard=0, num_shards=1)
    journal.claim()
    journal.append([entry(number) for number in range(count)])
    journal.close()
    return path


def altered(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def read_all(path: Path) -> list[str]:
    journal = SqliteJournal(path, shard=0, num_shards=1, read_only=True)
    try:
        return [row.entry.decision_id for row in journal.read()]
    finally:
        journal.close()


def test_events_come_back_in_order_over_reopening(tmp_path: Path) -> None:
    path = written(tmp_path / "shard-0.sqlite", 3)
    again = SqliteJournal(path, shard=0, num_shards=1)
    assert again.claim() == 2
    assert again.append([entry(3)]) == 4
    again.close()
    assert read_all(path) == ["d0", "d1", "d2", "d3"]


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE events SET body = '{}' WHERE seq = 3", "event 3 (decided of decision d2) was altered"),
        ("UPDATE events SET kind = 'credited' WHERE seq = 2", "event 2 (credited of decision d1) was altered"),
        ("UPDATE events SET decision_id = 'x' WHERE seq = 1", "event 1 (decided of decision x) was altered"),
        ("DELETE FROM events WHERE seq = 4", "event 4 is missing"),
        ("DELETE FROM events WHERE seq = 5", "it ends at event 4, event 5 was the last one committed"),
        (
            "INSERT INTO events SELECT 6, kind, table_name, decision_id, body, checksum FROM events WHERE seq = 5",
            "event 6",
        ),
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
        "UPDATE events SET seq = 99 WHERE seq = 2",
        "UPDATE events SET seq = 2 WHERE seq = 3",
        "UPDATE events SET seq = 3 WHERE seq = 99",
    )
    with pytest.raises(DamagedFileError, match="event 2 "):
        read_all(path)


def test_a_flipped_byte_of_the_file_is_found(tmp_path: Path) -> None:
    path = written(tmp_path / "shard-0.sqlite")
    content = path.read_bytes().replace(b'{"number":3}', b'{"number":7}')
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match="event 4 "):
        read_all(path)


def test_a_stale_owner_can_commit_no_more_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shard-0.sqlite"
    old, new = SqliteJournal(path, shard=0, num_shards=1), SqliteJournal(path, shard=0, num_shards=1)
    old.claim()
    old.append([entry(0)])
    assert new.claim() == 2
    with pytest.raises(LockedError, match="claimed by another process after epoch 1"):
        old.append([entry(1)])
    assert new.append([entry(2)]) == 2
    old.close()
    new.close()
    assert read_all(path) == ["d0", "d2"]


def test_a_claim_gives_up_on_a_process_that_never_ends_its_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "BUSY_TIMEOUT_S", 0.01)
    path = written(tmp_path / "shard-0.sqlite")
    holder = sqlite3.connect(path, isolation_level=None)
    journal = SqliteJournal(path, shard=0, num_shards=1, read_only=False)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LockedError, match="another process is writing it"):
        journal.claim()
    holder.execute("ROLLBACK")
    assert journal.claim() == 2
    holder.close()
    journal.close()


def test_append_without_a_claim_is_refused(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "shard-0.sqlite", shard=0, num_shards=1)
    with pytest.raises(StorageError, match="not claimed"):
        journal.append([entry(0)])
    journal.close()


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
        (_other_version, SchemaVersionError, "has schema version 9, this memcon reads 1"),
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
