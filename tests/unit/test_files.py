"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memcon.errors import StorageError
from memcon.files import replace_file


def test_text_and_bytes_take_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"

    replace_file(path, "größer")
    assert path.read_text(encoding="utf-8") == "größer"

    replace_file(path, memoryview(b"bytes"))
    assert path.read_bytes() == b"bytes"
    assert list(path.parent.iterdir()) == [path]


def test_what_a_killed_writer_left_does_not_stand_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "file"
    (tmp_path / ".file.tmp").write_text("a longer text than the new one")

    replace_file(path, "new")

    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["fsync", "open"])
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((os, "fsync", full) if call == "fsync" else (Path, "open", full)))
    with pytest.raises(StorageError, match="No space left"):
        replace_file(path, "new")
    monkeypatch.undo()

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
