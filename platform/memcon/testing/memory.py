"""The memory port under test: the contract body that every backend passes, fakes, and short ways to make attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from memcon.protocols import Durability, MemoryBackend, Retrieval
from memcon.store import StreamStore
from memcon.types import (
    Episode,
    MemoryItem,
    Operation,
    Outcome,
    OutcomeClass,
    Provenance,
    Step,
    StepKind,
    Task,
    Trajectory,
)

__all__ = ["MemoryBackendContract", "SpyBackend", "ToyBackend", "commit", "episode_of", "task_of", "trajectory_of"]


def task_of(goal: str, *, goal_type: str = "put", max_steps: int = 30) -> Task:
    """A task that names its goal and nothing else of interest."""
    return Task(
        task_id=f"task: {goal}",
        benchmark="test",
        goal=goal,
        goal_type=goal_type,
        max_steps=max_steps,
        provenance=Provenance.SELF_MADE,
    )


def trajectory_of(
    task: Task | str, actions: Sequence[str], *, success: bool = True, refused: Sequence[str] = ()
) -> Trajectory:
    """An attempt by action texts; "think: ..." is a thought, actions in `refused` have no effect."""
    steps = tuple(
        Step(
            index=index,
            kind=StepKind.THOUGHT if action.startswith("think: ") else StepKind.ACTION,
            action=action,
            observation="" if action.startswith("think: ") else f"You see what comes of '{action}'.",
            valid=action not in refused and not action.startswith("think: "),
            progress=0.0,
            prompt_tokens=1,
            completion_tokens=1,
        )
        for index, action in enumerate(actions)
    )
    return Trajectory(
        task=task_of(task) if isinstance(task, str) else task,
        first_observation="You are in the middle of a room.",
        steps=steps,
        success=success,
    )


def episode_of(ordinal: int, *, outcome_class: OutcomeClass = OutcomeClass.SUCCESS) -> Episode:
    """An episode without steps and decisions."""
    return Episode(
        run="run",
        cell="cell",
        stream=0,
        ordinal=ordinal,
        section=0,
        task=task_of(f"goal {ordinal}"),
        episode_id=f"episode-{ordinal}",
        epoch=1,
        seed=0,
        first_observation="",
        steps=(),
        decisions=(),
        outcome=Outcome(outcome_class=outcome_class, score=0.0, num_steps=0),
        reward=None,
        memory_size=0,
    )


def commit(store: StreamStore, write: Callable[[], object]) -> None:
    """Run the next task of `store`, which does nothing but `write` at its end."""
    ordinal = store.num_ended
    store.begin(ordinal, store.epoch)

    def make() -> Episode:
        write()
        return episode_of(ordinal)

    store.end(make, ())


class ToyBackend:
    """The shortest backend that does something: gives back the latest attempts, keeps them in memory only."""

    name = "toy"
    capabilities = frozenset({"top_k"})
    maintains: frozenset[Operation] = frozenset()
    durability: Durability = "none"
    blocking = False

    def __init__(self) -> None:
        self.goals: list[str] = []

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        latest = list(enumerate(self.goals))[::-1][: parameters.get("top_k", 1)]
        return Retrieval(items=tuple(MemoryItem(item_id=str(i), source="toy", score=0, text=g) for i, g in latest))

    def record(self, trajectory: Trajectory) -> int:
        self.goals.append(trajectory.task.goal)
        return 0

    def maintain(self, operation: Operation) -> int:
        raise TypeError(operation)

    def size(self) -> int:
        return len(self.goals)


class SpyBackend:
    """Passes everything on to `inner` and keeps the calls: (method, argument, parameters)."""

    def __init__(self, inner: MemoryBackend, *, blocking: bool = False) -> None:
        self.inner = inner
        self.name = inner.name
        self.capabilities, self.maintains = inner.capabilities, inner.maintains
        self.durability = inner.durability
        self.blocking = blocking
        self.calls: list[tuple[str, object, dict[str, int]]] = []

    def named(self, method: str) -> list[tuple[object, dict[str, int]]]:
        """Argument and parameters of each call of `method`."""
        return [(argument, parameters) for name, argument, parameters in self.calls if name == method]

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        self.calls.append(("retrieve", query, parameters))
        return self.inner.retrieve(query, **parameters)

    def record(self, trajectory: Trajectory) -> int:
        self.calls.append(("record", trajectory, {}))
        return self.inner.record(trajectory)

    def maintain(self, operation: Operation) -> int:
        self.calls.append(("maintain", operation, {}))
        return self.inner.maintain(operation)

    def size(self) -> int:
        self.calls.append(("size", None, {}))
        return self.inner.size()


class _TaskDiedError(Exception):
    """Ends a commit in the middle."""


class MemoryBackendContract:
    """What every MemoryBackend does. Override the fixture `make`: it opens the backend over a stream's store."""

    # False for a backend that forgets everything.
    keeps = True
    GOALS = ("put a clean mug in the shelf", "heat an egg and put it in the fridge", "examine the book with the lamp")

    @pytest.fixture
    def make(self) -> Callable[[StreamStore], MemoryBackend]:
        raise NotImplementedError

    @pytest.fixture
    def store_path(self, tmp_path: Path) -> Path:
        return tmp_path / "stream.sqlite"

    @pytest.fixture
    def store(self, store_path: Path) -> StreamStore:
        return StreamStore(store_path, identity="cell/0")

    @pytest.fixture
    def backend(self, make: Callable[[StreamStore], MemoryBackend], store: StreamStore) -> MemoryBackend:
        return make(store)

    @pytest.fixture(autouse=True)
    def _close(self, store: StreamStore) -> object:
        yield
        store.close()

    def fill(self, store: StreamStore, backend: MemoryBackend) -> None:
        for goal in self.GOALS:
            commit(store, lambda goal=goal: backend.record(trajectory_of(goal, ["go to shelf 1"])))  # type: ignore[misc]

    def test_it_is_a_memory_backend(self, backend: MemoryBackend) -> None:
        assert isinstance(backend, MemoryBackend)
        assert backend.capabilities <= {"top_k", "insight_k", "hop", "failed_top_k"}
        assert backend.maintains <= {Operation.CONSOLIDATE, Operation.FORGET}
        assert backend.durability in {"transactional", "snapshot", "none"}

    def test_a_new_one_is_empty(self, backend: MemoryBackend) -> None:
        assert backend.size() == 0
        assert backend.retrieve(self.GOALS[0]).items == ()

    def test_what_was_recorded_comes_back(self, store: StreamStore, backend: MemoryBackend) -> None:
        self.fill(store, backend)
        texts = [item.text for item in backend.retrieve(self.GOALS[-1]).items]
        assert backend.size() == (len(self.GOALS) if self.keeps else 0)
        assert bool(texts) == self.keeps
        assert all(self.GOALS[-1] in text for text in texts[:1])

    def test_top_k_bounds_the_items(self, store: StreamStore, backend: MemoryBackend) -> None:
        if "top_k" not in backend.capabilities:
            pytest.skip("does not declare top_k")
        self.fill(store, backend)
        assert [len(backend.retrieve(self.GOALS[0], top_k=k).items) for k in (0, 1, 2, 3, 8)] == [0, 1, 2, 3, 3]

    def test_the_same_query_gives_the_same_answer(self, store: StreamStore, backend: MemoryBackend) -> None:
        self.fill(store, backend)
        assert backend.retrieve(self.GOALS[1]) == backend.retrieve(self.GOALS[1])

    def test_item_ids_are_unique(self, store: StreamStore, backend: MemoryBackend) -> None:
        self.fill(store, backend)
        self.fill(store, backend)
        found = [item.item_id for item in backend.retrieve(self.GOALS[0]).items]
        assert len(set(found)) == len(found)

    def test_retrieval_writes_nothing(self, store: StreamStore, backend: MemoryBackend) -> None:
        self.fill(store, backend)
        before = store.connection.total_changes
        backend.retrieve(self.GOALS[0])
        assert store.connection.total_changes == before
        assert not store.connection.in_transaction

    def test_it_never_commits(self, store: StreamStore, backend: MemoryBackend) -> None:
        def write() -> None:
            backend.record(trajectory_of(self.GOALS[0], ["look"]))
            assert store.connection.in_transaction

        commit(store, write)

    def test_a_commit_that_failed_leaves_no_trace(self, store: StreamStore, backend: MemoryBackend) -> None:
        if backend.durability != "transactional":
            pytest.skip("promises no such thing")
        self.fill(store, backend)
        before = backend.retrieve(self.GOALS[0])

        def write() -> None:
            backend.record(trajectory_of(self.GOALS[0], ["go to fridge 1"]))
            raise _TaskDiedError

        with pytest.raises(_TaskDiedError):
            commit(store, write)
        assert backend.retrieve(self.GOALS[0]) == before
        assert backend.size() == (len(self.GOALS) if self.keeps else 0)

    def test_a_reopened_one_answers_alike(
        self, make: Callable[[StreamStore], MemoryBackend], store: StreamStore, store_path: Path
    ) -> None:
        backend = make(store)
        if backend.durability != "transactional":
            pytest.skip("promises no such thing")
        self.fill(store, backend)
        before = [backend.retrieve(goal) for goal in self.GOALS]
        store.close()
        again_store = StreamStore(store_path, identity="cell/0")
        try:
            again = make(again_store)
            assert again.size() == (len(self.GOALS) if self.keeps else 0)
            assert [again.retrieve(goal) for goal in self.GOALS] == before
        finally:
            again_store.close()

    # --- maintenance: only what the backend declares ------------------------------------------------------------------

    def fill_unevenly(self, store: StreamStore, backend: MemoryBackend) -> None:
        """Each goal several times, solved and not, so that every kind of maintenance has something to do."""
        for success in (True, False, False, True):
            for turn, goal in enumerate(self.GOALS):
                attempt = trajectory_of(goal, ["go to shelf 1"] * (turn + 1), success=success)
                commit(store, lambda attempt=attempt: backend.record(attempt))  # type: ignore[misc]

    def assert_it_still_finds(self, backend: MemoryBackend) -> None:
        for goal in self.GOALS if self.keeps else ():
            items = backend.retrieve(goal).items
            assert goal in items[0].text
            assert len({item.item_id for item in items}) == len(items)

    def test_maintenance_never_grows_the_memory_and_keeps_it_searchable(
        self, store: StreamStore, backend: MemoryBackend
    ) -> None:
        for operation in self.maintained(backend):
            self.fill_unevenly(store, backend)
            before = backend.size()
            commit(store, lambda operation=operation: backend.maintain(operation))  # type: ignore[misc]
            assert (0 < backend.size() <= before) if self.keeps else backend.size() == 0
            self.assert_it_still_finds(backend)
            # It goes on working: what comes next is found, and maintenance may come again.
            self.fill_unevenly(store, backend)
            commit(store, lambda operation=operation: backend.maintain(operation))  # type: ignore[misc]
            self.assert_it_still_finds(backend)

    def test_maintenance_never_commits(self, store: StreamStore, backend: MemoryBackend) -> None:
        for operation in self.maintained(backend):
            self.fill_unevenly(store, backend)
            with store.maintenance():
                backend.maintain(operation)
            assert store.connection.in_transaction
            store.discard()

    def test_maintenance_that_is_rolled_back_leaves_no_trace(self, store: StreamStore, backend: MemoryBackend) -> None:
        for operation in self.maintained(backend):
            if backend.durability != "transactional":
                pytest.skip("promises no such thing")
            self.fill_unevenly(store, backend)
            before = backend.size(), [backend.retrieve(goal) for goal in self.GOALS]
            with store.maintenance():
                backend.maintain(operation)
            store.discard()
            assert (backend.size(), [backend.retrieve(goal) for goal in self.GOALS]) == before

    def test_maintenance_is_durable(
        self, make: Callable[[StreamStore], MemoryBackend], store: StreamStore, store_path: Path
    ) -> None:
        backend = make(store)
        for operation in self.maintained(backend):
            if backend.durability != "transactional":
                pytest.skip("promises no such thing")
            self.fill_unevenly(store, backend)
            commit(store, lambda operation=operation: backend.maintain(operation))  # type: ignore[misc]
        before = backend.size(), [backend.retrieve(goal) for goal in self.GOALS]
        store.close()
        again_store = StreamStore(store_path, identity="cell/0")
        try:
            again = make(again_store)
            assert (again.size(), [again.retrieve(goal) for goal in self.GOALS]) == before
            self.fill_unevenly(again_store, again)
            self.assert_it_still_finds(again)
        finally:
            again_store.close()

    @staticmethod
    def maintained(backend: MemoryBackend) -> list[Operation]:
        """The declared hooks, in a fixed order; a backend without any is skipped."""
        if not backend.maintains:
            pytest.skip("declares no maintenance")
        return sorted(backend.maintains)
