"""The signing key is made once, for its owner's eyes, and never anew beside old journals."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memcon.errors import DamagedFileError, StorageError
from memcon_policy_server.secret import load_secret


def test_the_secret_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    first = load_secret(tmp_path / "policy")

    assert len(first) == 32
    assert load_secret(tmp_path / "policy") == first
    assert stat.S_IMODE((tmp_path / "policy" / "secret").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "policy").iterdir()] == ["secret"]


def test_many_starters_agree_on_one_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(max_workers=8) as pool:
        found = list(pool.map(lambda _: load_secret(tmp_path), range(32)))

    assert len(set(found)) == 1


@pytest.mark.parametrize("content", ["", "not hex", "abcd"])
def test_a_file_that_is_no_secret_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "secret").write_text(content)

    with pytest.raises(DamagedFileError, match="restore it from a copy"):
        load_secret(tmp_path)
    assert (tmp_path / "secret").read_text() == content


def test_a_lost_secret_is_not_replaced_in_silence(tmp_path: Path) -> None:
    (tmp_path / "shard-0.sqlite").write_bytes(b"")

    with pytest.raises(DamagedFileError, match="missing, though journals exist"):
        load_secret(tmp_path)


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(StorageError, match="check permissions and space"):
        load_secret(tmp_path / "file" / "policy")
