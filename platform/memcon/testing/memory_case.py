"""What the tests of a memory are played on: the backend over the store of a stream, and tasks that fill it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memcon.protocols import MemoryBackend
from memcon.store import StreamStore
from memcon.testing.contract import Contract, expect, to_give
from memcon.testing.memory import commit, trajectory_of
from memcon.types import Trajectory

__all__ = ["MakeBackend", "MemoryCase"]

# Opens the backend over the store of a stream.
MakeBackend = Callable[[StreamStore], MemoryBackend]


class MemoryCase(Contract):
    """Fixtures and fillings of `MemoryBackendContract`."""

    # False for a backend that forgets everything.
    keeps = True
    GOALS = ("put a clean mug in the shelf", "heat an egg and put it in the fridge", "examine the book with the lamp")

    @pytest.fixture
    def make(self) -> MakeBackend:
        """Opens the backend under test."""
        to_give(
            self,
            "make",
            "MakeBackend",
            "make(store) opens the backend under test over the stream's StreamStore, which may have been filled before",
        )

    @pytest.fixture
    def store_path(self, tmp_path: Path) -> Path:
        """The file of the stream."""
        return tmp_path / "stream.sqlite"

    @pytest.fixture
    def store(self, store_path: Path) -> Iterator[StreamStore]:
        """The store of the stream."""
        store = StreamStore(store_path, identity="cell/0")
        yield store
        store.close()

    @pytest.fixture
    def backend(self, make: MakeBackend, store: StreamStore) -> MemoryBackend:
        """The backend under test, empty."""
        return make(store)

    def record(self, store: StreamStore, backend: MemoryBackend, attempt: Trajectory) -> int:
        """Record `attempt` in the commit of its task; returns the tokens."""
        tokens: list[int] = []

        def write() -> None:
            tokens.append(backend.record(attempt))
            # Before the store finds out, whose message is about disks.
            expect(
                store.connection.in_transaction,
                "MemoryBackend.record",
                "never commits: the task's end commits memory, episode and outcomes together",
                met="the transaction was over when record came back",
            )

        commit(store, write)
        return tokens[0]

    def fill(self, store: StreamStore, backend: MemoryBackend) -> None:
        """One solved attempt at each goal, each in the commit of its task."""
        for goal in self.GOALS:
            self.record(store, backend, trajectory_of(goal, ["go to shelf 1"]))

    def fill_unevenly(self, store: StreamStore, backend: MemoryBackend) -> None:
        """Each goal several times, solved and not, so that every kind of maintenance has something to do."""
        for success in (True, False, False, True):
            for turn, goal in enumerate(self.GOALS):
                attempt = trajectory_of(goal, ["go to shelf 1"] * (turn + 1), success=success)
                self.record(store, backend, attempt)

    def teach(self, store: StreamStore, backend: MemoryBackend) -> None:
        """Commits tasks until the backend has an insight for the first goal."""
        self.fill_unevenly(store, backend)

    def answers(self, backend: MemoryBackend) -> dict[str, object]:
        """All that can be seen of the memory."""
        return {"size()": backend.size(), **{f"retrieve({goal!r})": backend.retrieve(goal) for goal in self.GOALS}}

    def need_transactions(self, backend: MemoryBackend) -> None:
        """Skip the test for a backend that promises nothing about rollbacks."""
        if backend.durability != "transactional":
            pytest.skip(f"durability is '{backend.durability}'")
