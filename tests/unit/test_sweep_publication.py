"""A launch whose working copy is emptied under it: the store keeps what it has, and one line says what was lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from memcon.errors import DamagedFileError, LockedError
from memcon_platform.config import RunPlan
from memcon_platform.mirror import publish
from memcon_platform.objects import ObjectStore
from memcon_platform.run_store.lock import LOCK_KEY, driver_of, take, this_driver
from memcon_platform.run_store.working_copy import open_working_copy
from memcon_platform.sweep import publication
from memcon_platform.sweep.publication import Publication, published
from support.memory_objects import MemoryClient, memory_store, run_folder, write

STREAM, NOTE = "streams/a/000.sqlite", "streams/b/000.error"


@pytest.fixture
def client() -> MemoryClient:
    return MemoryClient()


@pytest.fixture
def store(client: MemoryClient) -> ObjectStore:
    return memory_store(client)


@pytest.fixture
def folder(tmp_path: Path, store: ObjectStore) -> Path:
    """A working copy that is as the store has it, with nothing of a plan."""
    made = open_working_copy(run_folder(tmp_path / "run")).folder
    for key in (STREAM, NOTE):
        write(made, key, key.encode())
    publish(made, store)
    return made


@pytest.fixture
def launch(folder: Path, store: ObjectStore) -> Publication:
    copy = open_working_copy(folder)
    driver = this_driver(folder, copy.name)
    take(store, driver)
    return Publication(copy, store, driver, lambda _: None)


def data(client: MemoryClient) -> dict[str, bytes]:
    return {key: content for key, content in client.objects.items() if not key.endswith(LOCK_KEY)}


def empty(folder: Path) -> None:
    """As `rm -rf RUN/*`: what is hidden stays."""
    for path in folder.iterdir():
        if not path.name.startswith("."):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_file_that_is_lost_here_is_kept_there(
    launch: Publication, folder: Path, store: ObjectStore, client: MemoryClient
) -> None:
    before = data(client)
    (folder / STREAM).unlink()
    write(folder, "episodes/cell=a/50.parquet", b"played meanwhile")

    said = launch.finish()

    assert said.startswith(f"{folder} is damaged: 1 files that {store.uri} has are gone from it, {STREAM} first; ")
    assert "nothing was published" in said
    assert data(client) == before
    # This machine may put the file back and go on.
    assert driver_of(store) is not None


def test_a_copy_that_is_emptied_is_not_the_end_of_its_run(
    launch: Publication, folder: Path, client: MemoryClient
) -> None:
    before = data(client)
    empty(folder)

    assert "are gone from it" in launch.finish()
    assert data(client) == before


def test_a_copy_that_is_removed_holds_nobody_up(
    launch: Publication, folder: Path, store: ObjectStore, client: MemoryClient
) -> None:
    before = data(client)
    shutil.rmtree(folder)
    # What streams go on to write makes it no working copy again.
    write(folder, STREAM, b"less than was there")

    said = launch.finish()

    assert said.startswith(f"{folder} is damaged: the working copy was removed or emptied while its run went on; ")
    assert data(client) == before
    assert driver_of(store) is None


def test_what_a_launch_itself_removes_goes_there_too(
    launch: Publication, folder: Path, store: ObjectStore, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The plan of this folder is none.
    monkeypatch.setattr(publication, "undelivered", lambda _folder: [])
    (folder / NOTE).unlink()

    assert launch.finish() == ""
    assert not [key for key in client.objects if key.endswith(NOTE)]
    assert driver_of(store) is None


def test_the_loss_is_told_in_place_of_what_came_of_it(
    folder: Path, store: ObjectStore, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, said = data(client), list[str]()
    monkeypatch.setattr(publication, "open_objects", lambda _uri: store)
    plan = cast(RunPlan, SimpleNamespace(uri=store.uri, run_dir=folder))

    def failing() -> None:
        with published(plan, said.append):
            shutil.rmtree(folder)
            raise LockedError("the policy folder has another owner")

    with pytest.raises(DamagedFileError, match="removed or emptied") as caught:
        failing()

    assert "another owner" in str(caught.value.__cause__)
    assert said == []
    assert data(client) == before
