"""What the stream file refuses, and real deaths of real processes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memcon.errors import (
    ConfigError,
    DamagedFileError,
    LockedError,
    MemconError,
    SchemaVersionError,
    StorageError,
)
from memcon.store import StreamStore
from memcon.testing.memory import commit, episode_of
from support.stream_files import IDENTITY, note, noted, notes, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "streams" / "0.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[StreamStore]:
    with opened(path) as store:
        yield store


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_second_owner_in_this_process_is_refused(store: StreamStore, path: Path) -> None:
    with pytest.raises(LockedError, match=f"held by process {os.getpid()}"):
        StreamStore(path, identity=IDENTITY)


def test_closing_frees_the_stream_and_may_be_repeated(path: Path) -> None:
    store = StreamStore(path, identity=IDENTITY)
    store.close()
    store.close()
    with opened(path):
        pass


def test_another_stream_s_file_is_refused(path: Path) -> None:
    with opened(path):
        pass
    with pytest.raises(ConfigError, match="belongs to another stream \\(\"cell/0\", not 'cell/1'\\)"):
        StreamStore(path, identity="cell/1")


def test_identities_with_quotes_are_kept(path: Path) -> None:
    for _ in range(2):
        with opened(path, identity='it\'s "odd"'):
            pass


def test_another_version_is_refused(path: Path) -> None:
    with opened(path) as store:
        store.connection.execute("PRAGMA user_version = 99")
    with pytest.raises(SchemaVersionError, match="has schema version 99, this memcon reads 1"):
        StreamStore(path, identity=IDENTITY)


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database at all" * 100)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scribbled(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 : len(content) : 512] = b"\xff" * len(content[4096 : len(content) : 512])
    path.write_bytes(bytes(content))


def foreign(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()


@pytest.mark.parametrize("damage", [garbage, emptied, cut, scribbled, foreign], ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_refused_and_left_as_it_is(damage: object, path: Path) -> None:
    with opened(path) as store:
        for _ in range(30):
            commit(store, lambda: None)
    assert callable(damage)
    damage(path)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(DamagedFileError, match=r"0\.sqlite is damaged: .*nothing was written over it"):
            StreamStore(path, identity=IDENTITY)
    assert path.read_bytes() == before


def test_a_log_without_its_database_is_refused(path: Path) -> None:
    # SQLite would play the orphan's pages into a new file.
    path.parent.mkdir(parents=True)
    log = path.with_name(path.name + "-wal")
    log.write_bytes(b"pages")
    with pytest.raises(DamagedFileError, match=r"its database 0\.sqlite is missing"):
        StreamStore(path, identity=IDENTITY)
    assert not path.exists()


@pytest.mark.parametrize("record", ["{}", "no json", '{"run": 1}'])
def test_a_damaged_record_is_told_by_its_file(record: str, store: StreamStore, path: Path) -> None:
    commit(store, lambda: None)
    store.connection.execute("UPDATE episodes SET record = ?", (record,))
    with pytest.raises(DamagedFileError, match=str(path)):
        list(store.episodes())


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match="check permissions and space"):
        StreamStore(tmp_path / "file" / "0.sqlite", identity=IDENTITY)
    (tmp_path / "folder.sqlite").mkdir()
    with pytest.raises(MemconError):
        StreamStore(tmp_path / "folder.sqlite", identity=IDENTITY)


def test_a_read_only_folder_is_a_storage_error(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="check permissions and space"):
            StreamStore(tmp_path / "0.sqlite", identity=IDENTITY)
    finally:
        tmp_path.chmod(0o700)


def test_a_disk_that_refuses_is_a_storage_error_and_keeps_the_last_task(store: StreamStore) -> None:
    commit(store, lambda: note(store, "kept"))
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match=r"cannot write .*full.*run again"):
        commit(store, lambda: note(store, "x" * 100_000))
    assert notes(store) == ["kept"]
    assert store.num_ended == 1
    assert not store.connection.in_transaction


def test_a_file_that_became_read_only_is_a_storage_error(path: Path) -> None:
    with opened(path) as store:
        store.connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StorageError, match="readonly"):
            store.raise_epoch()


def test_a_half_made_file_of_a_killed_process_is_made_anew(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.with_suffix(".new").write_bytes(b"half a file")
    with opened(path) as store:
        assert store.num_ended == 0
    assert not path.with_suffix(".new").exists()


# --- other processes --------------------------------------------------------------------------------------------------

_CHILD = """
import sys
from pathlib import Path
from memcon.store import StreamStore
from memcon.testing.memory import commit, episode_of

store = StreamStore(Path(sys.argv[1]), identity="cell/0")
where = sys.argv[2]

def wait():
    print("ready", flush=True)
    sys.stdin.read()

def seed():
    store.connection.execute("CREATE TABLE notes (text TEXT)")
    store.connection.execute("INSERT INTO notes VALUES ('lost')")
    wait()

if where == "seeding":
    store.seeded(seed)
commit(store, lambda: None)
store.begin(1, store.raise_epoch())
if where == "started":
    wait()
if where == "maintained":
    with store.maintenance():
        store.connection.execute("CREATE TABLE notes (text TEXT)")
        store.connection.execute("INSERT INTO notes VALUES ('lost')")
    wait()

def make():
    store.connection.execute("CREATE TABLE notes (text TEXT)")
    store.connection.execute("INSERT INTO notes VALUES ('lost')")
    wait()
    return episode_of(1)

store.end(make, ())
"""


@contextmanager
def child_at(path: Path, where: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the stream and waits at `where` inside its second task."""
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(path), where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.fault
def test_a_stream_held_by_another_process_is_refused_until_it_dies(path: Path) -> None:
    with child_at(path, "started") as process:
        with pytest.raises(LockedError, match=f"held by process {process.pid}"):
            StreamStore(path, identity=IDENTITY)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with opened(path) as store:
            assert store.num_ended == 1


@pytest.mark.fault
@pytest.mark.parametrize("where", ["started", "maintained", "ending"])
def test_a_killed_process_leaves_the_last_ended_task(where: str, path: Path) -> None:
    with child_at(path, where) as process:
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    with opened(path) as store:
        task = store.open_task()
        assert task is not None
        assert (task.ordinal, task.epoch) == (1, 1)
        assert store.num_ended == 1
        assert notes(store) == []
        # The repeat ends as if nothing had happened.
        store.begin(1, store.raise_epoch(), worker_deaths=1)
        store.end(lambda: noted(store, "kept", episode_of(1)), [])
        assert notes(store) == ["kept"]
        assert store.open_task() is None


@pytest.mark.fault
def test_a_process_killed_while_it_fills_the_memory_leaves_a_fresh_one(path: Path) -> None:
    with child_at(path, "seeding") as process:
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    with opened(path) as store:
        assert (notes(store), store.is_seeded) == ([], False)
        assert store.seeded(lambda: note(store, "kept"))
        assert notes(store) == ["kept"]
