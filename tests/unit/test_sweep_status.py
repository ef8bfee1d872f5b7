"""The status of a stream from its file: what is there, what is damage, and what only cannot be read now."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from memcon.errors import DamagedFileError, StorageError
from memcon_platform.sweep.status import stream_path, stream_status
from support.stream_files import note, opened

CELL = "cell"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = stream_path(tmp_path, CELL, 0)
    with opened(path):
        pass
    return path


def test_a_memory_that_is_filled_is_told_before_any_task_has_ended(tmp_path: Path, path: Path) -> None:
    assert not stream_status(tmp_path, CELL, 0).is_seeded
    with opened(path) as store:
        store.seeded(lambda: note(store, "practice"))
    status = stream_status(tmp_path, CELL, 0)
    assert (status.is_seeded, status.num_ended) == (True, 0)


def test_a_file_that_cannot_be_read_now_is_not_damaged(tmp_path: Path, path: Path) -> None:
    # A log that cannot be opened: SQLite cannot say what the file holds.
    Path(f"{path}-wal").mkdir()
    with pytest.raises(StorageError, match=r"cannot read .*000\.sqlite: .*; mend space, permissions or the disk"):
        stream_status(tmp_path, CELL, 0)


def test_a_reason_that_cannot_be_read_is_one_line(tmp_path: Path, path: Path) -> None:
    path.with_suffix(".error").mkdir()
    with pytest.raises(StorageError, match="cannot read"):
        stream_status(tmp_path, CELL, 0)


@pytest.mark.parametrize("content", [b"", b"no database at all" * 99, None])
def test_a_file_that_is_no_stream_file_is_damaged(tmp_path: Path, path: Path, content: bytes | None) -> None:
    path.unlink()
    if content is None:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE theirs (x)")
        connection.close()
    else:
        path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"000\.sqlite is damaged"):
        stream_status(tmp_path, CELL, 0)
