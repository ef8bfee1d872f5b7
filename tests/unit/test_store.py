"""The stream file: task protocol, and maintenance inside a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memcon.errors import InvariantError, StorageError
from memcon.store import StreamStore
from memcon.testing.memory import commit, episode_of
from memcon.types import Episode
from support.stream_files import note, noted, notes, opened, outcome


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "streams" / "0.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[StreamStore]:
    with opened(path) as store:
        yield store


# --- task protocol ----------------------------------------------------------------------------------------------------


def test_a_new_stream_has_nothing(store: StreamStore) -> None:
    assert (store.epoch, store.num_ended, store.open_task(), store.outbox()) == (0, 0, None, [])
    assert list(store.episodes()) == []


def test_each_claim_raises_the_epoch_also_over_a_restart(path: Path) -> None:
    for epoch in (1, 2, 3):
        with opened(path) as store:
            assert store.raise_epoch() == epoch


def test_a_started_task_is_open_until_it_ends(store: StreamStore) -> None:
    epoch = store.raise_epoch()
    store.begin(0, epoch, worker_deaths=2)
    task = store.open_task()
    assert task is not None
    assert (task.ordinal, task.epoch, task.worker_deaths) == (0, 1, 2)
    store.end(lambda: episode_of(0), [])
    assert store.open_task() is None
    assert store.num_ended == 1


def test_a_repeated_task_is_open_under_its_latest_epoch(store: StreamStore) -> None:
    for _ in range(2):
        store.begin(0, store.raise_epoch(), worker_deaths=store.epoch - 1)
    task = store.open_task()
    assert task is not None
    assert (task.epoch, task.worker_deaths) == (2, 1)


def test_the_end_commits_everything_of_a_task(path: Path) -> None:
    with opened(path) as store:
        store.begin(0, 1)
        ended = store.end(lambda: noted(store, "memory", episode_of(0)), [outcome("b", 1), outcome("a", 0)])
    with opened(path) as store:
        assert list(store.episodes()) == [ended]
        assert [row.decision_id for row in store.outbox()] == ["a", "b"]
        assert notes(store) == ["memory"]
        store.delivered()
        assert store.outbox() == []


def test_outcomes_go_out_task_by_task(store: StreamStore) -> None:
    for ordinal, names in enumerate((("z1", "z2"), ("a1", "a2"))):
        store.begin(ordinal, 1)
        store.end(lambda n=ordinal: episode_of(n), [outcome(name, at) for at, name in enumerate(names)])  # type: ignore[misc]
    assert [row.decision_id for row in store.outbox()] == ["z1", "z2", "a1", "a2"]


def test_an_end_that_fails_leaves_nothing(store: StreamStore) -> None:
    store.begin(0, 1)

    def make() -> Episode:
        note(store, "memory")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.end(make, [outcome("a", 0)])
    assert (store.num_ended, store.outbox(), notes(store), store.rollbacks) == (0, [], [], 1)
    assert store.open_task() is not None
    store.end(lambda: episode_of(0), [])
    assert store.num_ended == 1


def test_ordinals_follow_each_other(store: StreamStore) -> None:
    with pytest.raises(InvariantError, match="task 1 cannot start, the next ordinal is 0"):
        store.begin(1, 1)
    with pytest.raises(InvariantError, match="task 3 cannot end, the next is 0"):
        store.end(lambda: episode_of(3), [])


def test_the_same_decision_twice_in_the_outbox_is_a_bug(store: StreamStore) -> None:
    with pytest.raises(InvariantError, match=r"outbox\.decision_id"):
        store.end(lambda: episode_of(0), [outcome("a", 0), outcome("a", 0)])
    assert store.num_ended == 0


def test_episodes_come_by_range(store: StreamStore) -> None:
    for _ in range(4):
        commit(store, lambda: None)
    assert [episode.ordinal for episode in store.episodes(1, 3)] == [1, 2]
    assert [episode.ordinal for episode in store.episodes(2)] == [2, 3]


# --- maintenance ------------------------------------------------------------------------------------------------------


def test_maintenance_waits_for_the_end(path: Path) -> None:
    with opened(path) as store:
        store.begin(0, 1)
        with store.maintenance():
            note(store, "first")
        with store.maintenance():
            note(store, "second")
        store.end(lambda: episode_of(0), [])
    with opened(path) as store:
        assert notes(store) == ["first", "second"]


def test_failed_maintenance_takes_only_itself_back(store: StreamStore) -> None:
    commit(store, lambda: note(store, "before"))
    store.begin(1, 1)
    with store.maintenance():
        note(store, "kept")

    def fail() -> None:
        with store.maintenance():
            note(store, "gone")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    store.end(lambda: episode_of(1), [])
    assert notes(store) == ["before", "kept"]
    assert store.rollbacks == 1


def test_discarded_maintenance_is_gone(store: StreamStore) -> None:
    store.discard()
    assert store.rollbacks == 0
    store.begin(0, 1)
    with store.maintenance():
        note(store, "gone")
    store.discard()
    store.end(lambda: episode_of(0), [])
    assert notes(store) == []
    assert store.rollbacks == 1


def test_nothing_else_commits_open_maintenance(store: StreamStore) -> None:
    with store.maintenance():
        note(store, "held")
    for step in (store.raise_epoch, store.delivered, lambda: store.begin(0, 1)):
        with pytest.raises(InvariantError, match="neither ended nor discarded"):
            step()


def test_a_transaction_that_the_disk_ended_ends_no_task(store: StreamStore) -> None:
    # On a full disk SQLite may roll back on its own: the episode would be committed without what it stands for.
    store.begin(0, 1)

    def make() -> Episode:
        note(store, "memory")
        store.connection.execute("ROLLBACK")
        return episode_of(0)

    with pytest.raises(StorageError, match="no transaction is open; a full disk ends one"):
        store.end(make, [outcome("a", 0)])
    assert (store.num_ended, store.outbox(), notes(store)) == (0, [], [])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"first_observation": 7}, r"Episode\.first_observation: expected str, got 7"),
        ({"reward": float("nan")}, "not JSON compliant"),
        ({"steps": ({1, 2},)}, "set is not JSON serializable"),
    ],
)
def test_an_episode_that_could_not_be_read_again_is_not_stored(
    wrong: dict[str, Any], told: str, store: StreamStore
) -> None:
    # Such a value comes from a plug-in; once it is committed the stream is lost.
    store.begin(0, 1)

    def make() -> Episode:
        note(store, "memory")
        return replace(episode_of(0), **wrong)

    with pytest.raises(InvariantError, match=rf"task 0 cannot be stored: .*{told}.*a plug-in gave a value"):
        store.end(make, [])
    assert (store.num_ended, notes(store)) == (0, [])


def test_a_transaction_that_the_disk_ended_is_no_failure_of_the_hook(store: StreamStore) -> None:
    store.begin(0, 1)
    with store.maintenance():
        note(store, "first")

    def fail() -> None:
        with store.maintenance():
            store.connection.execute("ROLLBACK")
            raise ZeroDivisionError

    with pytest.raises(StorageError, match="no transaction is open"):
        fail()
    assert (notes(store), store.rollbacks) == ([], 1)
