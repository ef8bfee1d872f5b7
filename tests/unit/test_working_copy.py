"""A working copy before a launch: what it takes from the store, and what it is never made to lose."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcon.errors import ConflictError
from memcon_platform.mirror import fetch_run, publish, read_manifest
from memcon_platform.objects import ObjectStore
from memcon_platform.run_store.working_copy import WorkingCopy, open_working_copy
from support.memory_objects import BLOCK, DeadError, MemoryClient, memory_store, run_folder, write

STREAM, NOTE = "streams/a/000.sqlite", "streams/b/000.error"


@pytest.fixture
def client() -> MemoryClient:
    return MemoryClient()


@pytest.fixture
def store(client: MemoryClient) -> ObjectStore:
    return memory_store(client)


@pytest.fixture
def copy(tmp_path: Path, store: ObjectStore) -> WorkingCopy:
    """A working copy whose last launch ended in order."""
    made = open_working_copy(run_folder(tmp_path / "run"))
    for key in (STREAM, NOTE, "report.html"):
        write(made.folder, key, key.encode())
    publish(made.folder, store)
    return made


def update(copy: WorkingCopy, store: ObjectStore) -> list[str]:
    """What is said while the copy is brought up to date."""
    said: list[str] = []
    copy.bring_up_to_date(store, read_manifest(store), said.append)
    return said


def test_a_copy_that_is_as_the_store_has_it_is_left_alone(copy: WorkingCopy, store: ObjectStore) -> None:
    write(copy.folder, STREAM, b"later", at_s=1001)
    assert update(copy, store) == []
    assert not copy.is_raw
    assert (copy.folder / STREAM).read_bytes() == b"later"


def test_files_that_were_lost_here_come_back_and_are_not_removed_there(copy: WorkingCopy, store: ObjectStore) -> None:
    # Given `rm -rf RUN/*`, which leaves hidden files
    for key in (STREAM, BLOCK, "plan.json", NOTE):
        (copy.folder / key).unlink()
    assert update(copy, store)[0].startswith(f"fetching {store.uri}")
    assert (copy.folder / STREAM).read_bytes() == STREAM.encode()
    assert (copy.folder / "plan.json").read_bytes() == b"plan"
    # And what was fetched is made ready like any run from elsewhere.
    assert open_working_copy(copy.folder).is_raw
    publish(copy.folder, store)
    assert {STREAM, BLOCK, "plan.json"} <= set(store.list())


def test_what_a_launch_itself_removes_is_not_fetched_again(copy: WorkingCopy, store: ObjectStore) -> None:
    for key in (NOTE, "report.html"):
        (copy.folder / key).unlink()
    assert update(copy, store) == []
    publish(copy.folder, store)
    assert NOTE not in store.list()


def test_losses_beside_work_that_was_never_published_are_refused(copy: WorkingCopy, store: ObjectStore) -> None:
    (copy.folder / STREAM).unlink()
    write(copy.folder, BLOCK, b"later", at_s=1001)
    with pytest.raises(ConflictError, match=rf"has lost 1 files that .* such as {STREAM}, and .* holds 1 files"):
        update(copy, store)
    assert STREAM in store.list()


def test_a_copy_that_others_left_behind_takes_their_work_and_keeps_its_own(
    copy: WorkingCopy, store: ObjectStore, tmp_path: Path
) -> None:
    fetch_run(store, tmp_path / "other")
    write(tmp_path / "other", BLOCK, b"theirs")
    publish(tmp_path / "other", store)
    update(copy, store)
    assert (copy.folder / BLOCK).read_bytes() == b"theirs"
    copy.is_ready()
    write(tmp_path / "other", BLOCK, b"theirs again")
    publish(tmp_path / "other", store)
    write(copy.folder, STREAM, b"mine", at_s=1001)
    with pytest.raises(ConflictError, match=rf"has gone on elsewhere \(generation 3\), and .* {STREAM} first"):
        update(copy, store)
    assert (copy.folder / STREAM).read_bytes() == b"mine"


def test_what_a_fetch_wrote_before_it_died_is_no_work_of_the_copy(
    copy: WorkingCopy, store: ObjectStore, client: MemoryClient, tmp_path: Path
) -> None:
    other = open_working_copy(tmp_path / "other")
    # Given a fetch that dies after a manifest for us and one for it, and two of five files
    client.lose(4)
    with pytest.raises(DeadError):
        update(other, store)
    client.lose(None)
    # And a store that moves on
    for key in (STREAM, BLOCK, "plan.json"):
        write(copy.folder, key, b"newer", at_s=1001)
    publish(copy.folder, store)
    update(open_working_copy(other.folder), store)
    assert {(other.folder / key).read_bytes() for key in (STREAM, BLOCK, "plan.json")} == {b"newer"}
