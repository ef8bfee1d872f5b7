"""The lock of a run in an object store: one driver, taken over by its own working copy alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memcon.errors import LockedError
from memcon_platform.objects import ObjectStore
from memcon_platform.run_store.lock import Driver, break_lock, driver_of, release, take, this_driver
from support.memory_objects import MemoryClient, memory_store

HERE = Driver(host="one", pid=7, folder="runs/s3/bucket/a", since="2030-01-01T00:00:00+00:00", copy="c1")
THERE = replace(HERE, host="two", pid=8, copy="c2")


@pytest.fixture
def store() -> ObjectStore:
    return memory_store(MemoryClient())


def test_a_run_has_one_driver_who_is_told_to_the_second(store: ObjectStore) -> None:
    take(store, HERE)
    with pytest.raises(LockedError) as refused:
        take(store, THERE)
    assert "process 7 on host one in runs/s3/bucket/a, since 2030-01-01" in str(refused.value)
    assert "memcon data unlock s3://bucket/runs/one" in str(refused.value)
    assert driver_of(store) == HERE


def test_the_next_launch_of_a_working_copy_takes_over_from_the_one_that_died(store: ObjectStore) -> None:
    take(store, HERE)
    later = replace(HERE, pid=9)
    take(store, later)
    assert driver_of(store) == later


def test_a_driver_gives_free_only_what_is_its_own(store: ObjectStore) -> None:
    take(store, HERE)
    release(store, THERE)
    assert driver_of(store) == HERE
    release(store, HERE)
    assert driver_of(store) is None
    take(store, THERE)


def test_a_lock_that_is_broken_is_told_and_free(store: ObjectStore) -> None:
    take(store, HERE)
    assert break_lock(store) == HERE
    assert break_lock(store) is None
    take(store, THERE)


@pytest.mark.parametrize("content", [b"\xff", b"{}", b"no json"])
def test_a_lock_that_nobody_can_read_holds_until_it_is_broken(store: ObjectStore, content: bytes) -> None:
    store.put("run.lock", content)
    with pytest.raises(LockedError, match="on host unknown"):
        take(store, HERE)
    assert break_lock(store) is not None
    take(store, HERE)


def test_a_driver_is_this_process_in_its_folder(tmp_path: Path) -> None:
    driver = this_driver(tmp_path, "c1")
    assert (driver.folder, driver.copy) == (str(tmp_path), "c1")
    assert driver.pid > 0
