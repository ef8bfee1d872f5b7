"""A journal of schema version 1, as memcon once wrote it, becomes one of version 2 with the same events."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from memcon.errors import DamagedFileError, LockedError, NotFoundError, SchemaVersionError
from memcon.learning.events import EpisodeClosed, decode_event
from memcon_policy_server.journal import sqlite_engine
from memcon_policy_server.journal.fold import folded
from memcon_policy_server.journal.migration import migrate
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from support.journals import altered, events_of

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
# 239 events of two owners, in the golden history of `test_policy_golden.py`.
NUM_EVENTS, EPOCH = 239, 2


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return Path(shutil.copy(GOLDEN / "policy_of_schema_1" / "shard-0.sqlite", tmp_path))


def test_an_older_journal_is_refused_with_the_command_that_migrates_it(journal: Path) -> None:
    before = journal.read_bytes()
    for read_only in (True, False):
        with pytest.raises(SchemaVersionError, match=rf"version 1, .*run `memcon data migrate {journal.parent}`"):
            SqliteJournal(journal, shard=0, num_shards=1, read_only=read_only)
    assert journal.read_bytes() == before


def test_a_migrated_journal_has_the_same_events_and_folds_to_the_same_bits(journal: Path) -> None:
    assert migrate(journal) == NUM_EVENTS

    lines = (GOLDEN / "policy_journal.jsonl").read_text().splitlines()
    assert events_of(journal.parent) == [decode_event(*json.loads(line)) for line in lines]
    core, last_seq = folded(journal.parent, 0, 1)
    assert last_seq == NUM_EVENTS
    assert json.dumps(core.dump("golden"), indent=1) + "\n" == (GOLDEN / "policy_table.json").read_text()


def test_a_migrated_journal_goes_on_and_is_migrated_once(journal: Path) -> None:
    migrate(journal)
    assert migrate(journal) is None
    with closing(SqliteJournal(journal, shard=0, num_shards=1)) as opened:
        # The migration itself was one epoch.
        assert opened.claim() == EPOCH + 2
        assert opened.append([EpisodeClosed(table="golden", episode_id="new")]) == NUM_EVENTS + 1


def test_an_owner_of_the_older_memcon_can_commit_no_more(journal: Path) -> None:
    # The statement with which version 1 moved its head, under the epoch that it had claimed.
    with closing(sqlite3.connect(journal, isolation_level=None)) as old:
        old.execute("SELECT * FROM events").fetchone()
        migrate(journal)
        moved = old.execute("UPDATE meta SET last_seq = 240, head = 'x' WHERE meta.epoch = ?", (EPOCH,))
        assert moved.rowcount == 0


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE events SET kind = 'cancelled' WHERE seq = 5", "event 5 (cancelled of decision"),
        ("DELETE FROM events WHERE seq = 100", "event 100 is missing"),
        ("DELETE FROM events WHERE seq = 239", "it ends at event 238, event 239 was the last one committed"),
        ("DROP TABLE events", "it is no memcon journal"),
    ],
)
def test_a_damaged_journal_is_not_migrated_and_stays_as_it_was(journal: Path, statement: str, named: str) -> None:
    altered(journal, statement)
    before = _content(journal)
    with pytest.raises(DamagedFileError) as caught:
        migrate(journal)
    assert named in str(caught.value)
    assert _content(journal) == before


def test_a_newer_journal_is_not_migrated(journal: Path) -> None:
    altered(journal, "UPDATE meta SET schema_version = 3")
    with pytest.raises(SchemaVersionError, match="schema version 3"):
        migrate(journal)


def test_a_journal_that_is_being_written_is_left_for_later(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_engine, "BUSY_TIMEOUT_S", 0.01)
    with closing(sqlite3.connect(journal, isolation_level=None)) as owner:
        owner.execute("BEGIN IMMEDIATE")
        with pytest.raises(LockedError):
            migrate(journal)
        owner.execute("ROLLBACK")
    assert migrate(journal) == NUM_EVENTS


def test_a_missing_journal_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"shard-0\.sqlite does not exist"):
        migrate(tmp_path / "shard-0.sqlite")
    assert not list(tmp_path.iterdir())


def _content(path: Path) -> list[object]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())
