"""What a stream's memory begins with: filled in one commit, or copied from another stream's file (RO-15)."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memcon.control.memory.embedder_hashing import HashingConfig, HashingEmbedder
from memcon.control.memory.metagpt import MetaGPTConfig, MetaGPTMemory
from memcon.control.plans import PlanIndex, PlanTemplate
from memcon.errors import (
    ConfigError,
    ConflictError,
    DamagedFileError,
    InvariantError,
    LockedError,
    MemconError,
    NotFoundError,
    SchemaVersionError,
    StorageError,
)
from memcon.protocols import Embedder
from memcon.store import StreamStore
from memcon.stream_file import stream_source
from memcon.testing.memory import commit, trajectory_of
from memcon.types import Operation
from support.stream_files import note, notes, opened

HASHING = HashingEmbedder(HashingConfig())
SOURCE_IDENTITY = "another cell/4"


def memory_of(store: StreamStore, embedder: Embedder = HASHING) -> MetaGPTMemory:
    return MetaGPTMemory(MetaGPTConfig(maintenance=True, top_k=9), store=store, embedder=embedder)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "streams" / "0.sqlite"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An earlier stream: five items of which one is removed, a plan, episodes, an outcome that was not sent."""
    path = tmp_path / "an earlier run?" / "0.sqlite"
    with opened(path, SOURCE_IDENTITY) as store:
        store.raise_epoch()
        memory, plans = memory_of(store), PlanIndex(store, choice="shortest")
        for goal in ("a mug", "a mug", "a pen", "a book", "a plate"):
            commit(store, lambda goal=goal: memory.record(trajectory_of(goal, ["go"])))  # type: ignore[misc]
        commit(store, lambda: memory.maintain(Operation.CONSOLIDATE))
        commit(store, lambda: plans.offer("put", PlanTemplate(source_goal="a mug", actions=("go", "take"))))
        store.connection.execute("CREATE INDEX by_text ON memory_items (query_text)")
        store.connection.execute("INSERT INTO outbox VALUES ('d', 6, '{}')")
    return path


@pytest.fixture
def store(path: Path) -> Iterator[StreamStore]:
    with opened(path) as store:
        store.raise_epoch()
        yield store


def copied(store: StreamStore, source: Path) -> bool:
    return store.seeded(lambda: store.copy_memory(source))


# --- filled once ------------------------------------------------------------------------------------------------------


def test_a_memory_is_filled_once_in_the_life_of_the_file(path: Path) -> None:
    for expected in (True, False):
        with opened(path) as store:
            assert store.is_seeded is not expected
            assert store.seeded(lambda store=store: note(store, "practice")) is expected  # type: ignore[misc]
            assert store.is_seeded
    with opened(path) as store:
        assert notes(store) == ["practice"]
        assert store.num_ended == 0


def test_a_fill_that_fails_leaves_nothing_and_may_be_repeated(store: StreamStore) -> None:
    memory = memory_of(store)

    def fail() -> None:
        memory.record(trajectory_of("a mug", ["go"]))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.seeded(fail)
    assert (memory.size(), store.is_seeded) == (0, False)
    assert store.seeded(lambda: memory.record(trajectory_of("a mug", ["go"])))
    assert memory.size() == 1


def test_a_stream_whose_first_task_has_started_is_not_filled(store: StreamStore) -> None:
    store.begin(0, 1)
    with pytest.raises(InvariantError, match="the first task has started"):
        store.seeded(lambda: note(store, "late"))
    assert notes(store) == []


def test_a_transaction_that_the_disk_ended_keeps_nothing(store: StreamStore) -> None:
    # On a full disk SQLite may roll back on its own: what a backend writes after that would be committed at once.
    def fill() -> None:
        note(store, "practice")
        store.connection.execute("ROLLBACK")

    with pytest.raises(StorageError, match="no transaction is open; a full disk ends one"):
        store.seeded(fill)
    assert (notes(store), store.is_seeded) == ([], False)


# --- copied -----------------------------------------------------------------------------------------------------------


def test_all_that_the_memory_holds_is_copied_and_nothing_of_the_stream(store: StreamStore, source: Path) -> None:
    memory, plans = memory_of(store), PlanIndex(store, choice="shortest")
    assert copied(store, source)
    with opened(source, SOURCE_IDENTITY) as earlier:
        expected = memory_of(earlier).retrieve("a mug")
    # The backend was there before the rows: it reads them again.
    assert memory.retrieve("a mug") == expected
    assert memory.size() == 4
    assert plans.get("put") == PlanTemplate(source_goal="a mug", actions=("go", "take"))
    assert (store.num_ended, store.epoch, store.outbox(), store.open_task()) == (0, 1, [], None)
    assert store.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'by_text'").fetchone()
    # Removed places are copied too: ids go on behind them.
    commit(store, lambda: memory.record(trajectory_of("a lamp", ["go"])))
    assert {item.item_id for item in memory.retrieve("a lamp").items} >= {"success-0", "success-5"}


def test_a_copy_is_kept_over_a_restart_and_not_made_again(path: Path, source: Path) -> None:
    with opened(path) as store:
        assert copied(store, source)
    source.unlink()
    with opened(path) as store:
        assert not copied(store, source)
        assert memory_of(store).size() == 4


def test_the_source_is_not_changed_and_its_owner_goes_on(store: StreamStore, source: Path) -> None:
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    assert copied(store, source)
    assert hashlib.sha256(source.read_bytes()).hexdigest() == before
    with opened(source, SOURCE_IDENTITY) as earlier:
        assert earlier.num_ended == 7


def test_a_source_that_is_being_written_gives_its_last_commit(tmp_path: Path, store: StreamStore, source: Path) -> None:
    with opened(source, SOURCE_IDENTITY) as earlier:
        memory = memory_of(earlier)
        commit(earlier, lambda: memory.record(trajectory_of("a lamp", ["go"])))
        with earlier.maintenance():
            memory.record(trajectory_of("not committed", ["go"]))
            assert copied(store, source)
        earlier.discard()
        commit(earlier, lambda: memory.record(trajectory_of("later", ["go"])))
    assert memory_of(store).size() == 5


def test_a_source_whose_owner_was_killed_gives_its_last_commit(
    tmp_path: Path, store: StreamStore, source: Path
) -> None:
    # What the owner committed last stands in the log beside the file only.
    left = tmp_path / "left.sqlite"
    with opened(source, SOURCE_IDENTITY) as earlier:
        memory = memory_of(earlier)
        commit(earlier, lambda: memory.record(trajectory_of("a lamp", ["go"])))
        shutil.copy(source, left)
        shutil.copy(f"{source}-wal", f"{left}-wal")
    log = Path(f"{left}-wal")
    before = left.read_bytes(), log.read_bytes()
    assert copied(store, left)
    assert memory_of(store).size() == 5
    # Whoever may write would have put the log into the file.
    assert (left.read_bytes(), log.read_bytes()) == before


def test_nothing_is_made_beside_a_source_that_nobody_owns(store: StreamStore, source: Path) -> None:
    before = sorted(source.parent.iterdir())
    with stream_source(source) as connection:
        connection.execute("SELECT COUNT(*) FROM memory_items").fetchone()
        assert sorted(source.parent.iterdir()) == before
    assert copied(store, source)
    assert sorted(source.parent.iterdir()) == before
    # What an earlier reader left empty changes nothing.
    Path(f"{source}-wal").touch()
    with stream_source(source) as connection:
        assert sorted({path.suffix for path in source.parent.iterdir()}) == [".lock", ".sqlite", ".sqlite-wal"]


def test_a_source_gets_no_owner_while_it_is_read(source: Path) -> None:
    with stream_source(source), stream_source(source), pytest.raises(LockedError), opened(source, SOURCE_IDENTITY):
        pass
    with opened(source, SOURCE_IDENTITY):
        pass


def test_a_source_that_has_gone_on_is_refused_and_leaves_no_half_copy(store: StreamStore, source: Path) -> None:
    with pytest.raises(ConflictError, match="had ended 6 tasks when this run looked, now 7; put the file back") as told:
        store.seeded(lambda: store.copy_memory(source, num_ended=6))
    assert "\n" not in str(told.value)
    assert (memory_of(store).size(), store.is_seeded) == (0, False)
    assert store.seeded(lambda: store.copy_memory(source, num_ended=7))


def test_another_embedder_s_items_are_refused(store: StreamStore, source: Path) -> None:
    copied(store, source)
    with pytest.raises(ConfigError, match="embedded by 'hashing/256', not 'hashing/64'"):
        memory_of(store, HashingEmbedder(HashingConfig(dim=64)))


def test_a_copy_outside_the_first_commit_is_a_bug(store: StreamStore, source: Path) -> None:
    with pytest.raises(InvariantError, match="inside `seeded` only"):
        store.copy_memory(source)


def test_an_empty_memory_is_a_memory(tmp_path: Path, store: StreamStore) -> None:
    with opened(tmp_path / "empty.sqlite", "c/0") as empty:
        commit(empty, lambda: None)
    assert copied(store, tmp_path / "empty.sqlite")
    assert memory_of(store).size() == 0


def test_a_table_that_the_backend_made_already_is_filled(tmp_path: Path, store: StreamStore) -> None:
    with opened(tmp_path / "noted.sqlite", "c/0") as noted:
        # In the order of writing, which is not that of the index.
        for text in ("two", "one"):
            commit(noted, lambda text=text: note(noted, text))  # type: ignore[misc]
        noted.connection.execute("CREATE INDEX by_text ON notes (text)")
    store.connection.execute("CREATE TABLE notes (text TEXT)")
    store.connection.execute("CREATE INDEX by_text ON notes (text)")
    assert copied(store, tmp_path / "noted.sqlite")
    assert notes(store) == ["two", "one"]


# --- refusals ---------------------------------------------------------------------------------------------------------


def removed(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database at all" * 400)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scribbled(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 : len(content) : 512] = b"\xff" * len(content[4096 : len(content) : 512])
    path.write_bytes(bytes(content))


def foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()


def of_another_version(path: Path) -> None:
    with opened(path, SOURCE_IDENTITY) as store:
        store.connection.execute("PRAGMA user_version = 99")


def with_a_virtual_table(path: Path) -> None:
    with opened(path, SOURCE_IDENTITY) as store:
        store.connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (removed, NotFoundError, "no stream file .*check the run folder"),
        (a_folder, NotFoundError, "no stream file"),
        (emptied, DamagedFileError, "it is empty"),
        (garbage, DamagedFileError, "nothing was copied"),
        (cut, DamagedFileError, "nothing was copied"),
        (scribbled, DamagedFileError, "nothing was copied"),
        (foreign, DamagedFileError, "no memcon stream file"),
        (of_another_version, SchemaVersionError, "schema version 99, this memcon reads 1"),
        (with_a_virtual_table, ConfigError, "virtual table 'words'"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_source_that_cannot_be_taken_is_told_and_leaves_no_half_copy(
    damage: Callable[[Path], None], error: type[MemconError], message: str, store: StreamStore, source: Path
) -> None:
    damage(source)
    before = store.connection.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()
    with pytest.raises(error, match=message) as caught:
        copied(store, source)
    assert str(source) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert store.connection.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall() == before
    assert not store.is_seeded
    # The stream itself is sound, and may take another memory.
    assert store.seeded(lambda: None)


def test_a_copy_that_fails_in_the_middle_leaves_nothing(tmp_path: Path, store: StreamStore, source: Path) -> None:
    # `memory_items` is copied before `notes` is met.
    with opened(source, SOURCE_IDENTITY) as earlier:
        commit(earlier, lambda: note(earlier, "theirs"))
    memory = memory_of(store)
    note(store, "ours")
    with pytest.raises(ConfigError, match="has a table 'notes' that is not the same or not empty"):
        copied(store, source)
    assert (memory.size(), notes(store), store.is_seeded) == (0, ["ours"], False)


def test_a_full_disk_in_the_middle_leaves_nothing(store: StreamStore, source: Path) -> None:
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StorageError, match="full"):
        copied(store, source)
    store.connection.execute("PRAGMA max_page_count = 100000")
    assert memory_of(store).size() == 0
    assert copied(store, source)
    assert memory_of(store).size() == 4


def test_a_copy_of_the_file_alone_is_enough(tmp_path: Path, store: StreamStore, source: Path) -> None:
    shutil.copy(source, tmp_path / "alone.sqlite")
    assert copied(store, tmp_path / "alone.sqlite")
    assert memory_of(store).size() == 4
