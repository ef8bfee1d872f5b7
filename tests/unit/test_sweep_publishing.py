"""The publisher beside a run: what fails waits and is tried again, and nothing of it reaches the run."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from memcon_platform.object_errors import ObjectStoreError
from memcon_platform.sweep.publishing import BlockWatch, Publisher
from memcon_workers.spec import TaskEnded
from support.waiting import wait_until

ONE, TWO = Path("one"), Path("two")


class Store:
    """Takes files when it is there; `away` makes every publish fail."""

    def __init__(self) -> None:
        self.away = False
        self.tries: list[list[Path]] = []
        self.there: list[Path] = []
        self.hold = threading.Event()
        self.hold.set()

    def publish(self, files: Collection[Path]) -> None:
        self.tries.append(list(files))
        assert self.hold.wait(50)
        if self.away:
            raise ObjectStoreError("write s3://bucket/a", "it cannot be reached", "check the network", away=True)
        self.there += files


def tried(store: Store, times: int) -> None:
    wait_until(lambda: len(store.tries) >= times, within_s=30, what=f"{times} tries")


def test_files_are_published_as_they_come() -> None:
    store, said = Store(), list[str]()
    publisher = Publisher(store.publish, said.append)
    publisher.submit([ONE])
    tried(store, 1)
    publisher.submit([TWO])
    tried(store, 2)
    publisher.join()
    assert (store.there, said) == ([ONE, TWO], [])


def test_what_could_not_be_published_waits_for_the_next_files_and_is_told_once() -> None:
    store, said = Store(), list[str]()
    store.away = True
    publisher = Publisher(store.publish, said.append)
    publisher.submit([ONE])
    wait_until(lambda: said, within_s=30, what="a word")
    publisher.submit([TWO])
    tried(store, 2)
    store.away = False
    three = Path("three")
    publisher.submit([three])
    tried(store, 3)
    publisher.join()

    assert store.tries[1:] == [[ONE, TWO], [ONE, TWO, three]]
    assert store.there == [ONE, TWO, three]
    assert len(said) == 2
    assert "1 files wait" in said[0]
    assert "it cannot be reached" in said[0]
    assert said[1] == "published again: 3 files that waited are there"


def test_a_file_that_changes_while_it_is_published_is_published_again() -> None:
    store = Store()
    store.hold.clear()
    publisher = Publisher(store.publish, lambda _: None)
    publisher.submit([ONE])
    tried(store, 1)
    publisher.submit([ONE])
    store.hold.set()
    tried(store, 2)
    publisher.join()
    assert store.there == [ONE, ONE]


def test_a_publisher_that_is_stopped_begins_nothing_more() -> None:
    store = Store()
    publisher = Publisher(store.publish, lambda _: None)
    publisher.join()
    publisher.submit([ONE])
    assert store.tries == []


class Seen:
    def __init__(self) -> None:
        self.news: list[object] = []

    def task_ended(self, task: TaskEnded) -> None:
        self.news.append(task.ordinal)

    def cell_ended(self, cell: str) -> None:
        self.news.append(cell)


def ended(ordinal: int) -> TaskEnded:
    return TaskEnded(
        cell="c", stream=0, ordinal=ordinal, outcome_class="success", score=1.0, reward=1.0, num_steps=1,
        agent_prompt_tokens=0, agent_completion_tokens=0, memory_tokens=0, num_decisions=0, num_forced=0,
        memory_size=0, duration_s=0.0,
    )  # fmt: skip


@pytest.fixture
def blocks(tmp_path: Path) -> list[Path]:
    """Two blocks of a stream, the second one not full."""
    names = [
        f"{table}/cell=c/stream-000-block-000{block}.parquet" for block in (0, 1) for table in ("episodes", "steps")
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return [tmp_path / name for name in names]


def test_a_block_is_submitted_with_its_last_task_and_a_cells_last_ones_with_its_end(
    tmp_path: Path, blocks: list[Path]
) -> None:
    seen, submitted = Seen(), list[set[Path]]()
    watch = BlockWatch(tmp_path, seen, lambda files: submitted.append(set(files)))
    for ordinal in (0, 48, 49, 50):
        watch.task_ended(ended(ordinal))
    assert submitted == [set(blocks[:2])]
    watch.cell_ended("c")
    assert submitted[1:] == [set(blocks)]
    assert seen.news == [0, 48, 49, 50, "c"]
