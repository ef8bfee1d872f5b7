"""The memory port under test: the contract body that every backend passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from memcon.protocols import MemoryBackend, Retrieval
from memcon.store import StreamStore
from memcon.testing.contract import accepts, expect, expect_equal, expect_kind, expect_port
from memcon.testing.memory import commit, trajectory_of
from memcon.testing.memory_case import MakeBackend
from memcon.testing.memory_maintenance import MaintenanceSuite
from memcon.types import Operation

__all__ = ["MemoryBackendContract"]

_RETRIEVE, _RECORD, _SIZE = "MemoryBackend.retrieve", "MemoryBackend.record", "MemoryBackend.size"
_PARAMETERS = frozenset({"top_k", "insight_k", "hop", "failed_top_k"})
# Insights that the arms of Table 7 ask for, and none.
_INSIGHT_LIMITS = (0, 2, 3, 5, 8)


class _TaskDiedError(Exception):
    """Ends a commit in the middle."""


class MemoryBackendContract(MaintenanceSuite):
    """What every MemoryBackend does. Override the fixture `make`: it opens the backend over a stream's store.

    A backend that declares `insight_k` and has no insight after `fill_unevenly` also overrides `teach`.
    """

    # --- what is declared ---------------------------------------------------------------------------------------------

    def test_it_is_a_memory_backend(self, backend: MemoryBackend) -> None:
        expect_port(backend, MemoryBackend)
        expect(
            isinstance(backend.capabilities, frozenset) and backend.capabilities <= _PARAMETERS,
            "MemoryBackend.capabilities",
            f"is a frozenset of parameters of retrieve, out of {', '.join(sorted(_PARAMETERS))}",
            met=backend.capabilities,
        )
        expect(
            isinstance(backend.maintains, frozenset) and backend.maintains <= {Operation.CONSOLIDATE, Operation.FORGET},
            "MemoryBackend.maintains",
            "is a frozenset of operations, out of Operation.CONSOLIDATE and Operation.FORGET",
            met=backend.maintains,
        )
        expect(
            backend.durability in {"transactional", "snapshot", "none"},
            "MemoryBackend.durability",
            "is 'transactional', 'snapshot' or 'none'",
            met=backend.durability,
        )

    def test_every_declared_parameter_is_understood(self, store: StreamStore, backend: MemoryBackend) -> None:
        self.fill(store, backend)
        together = dict.fromkeys(sorted(backend.capabilities), 2)
        for parameters in ({}, *({name: 1} for name in together), together):
            wants = f"takes every parameter that `capabilities` names, and none, here {parameters}"
            with accepts(_RETRIEVE, wants=wants):
                found = backend.retrieve(self.GOALS[0], **parameters)
            expect_kind(found, Retrieval, _RETRIEVE)
            expect(found.tokens >= 0, _RETRIEVE, "gives the tokens of its own model calls", met=found.tokens)

    # --- record and retrieve ------------------------------------------------------------------------------------------

    def test_a_new_one_is_empty(self, backend: MemoryBackend) -> None:
        expect_equal(backend.size(), 0, _SIZE, wants="is 0 before the first record")
        expect_equal(
            backend.retrieve(self.GOALS[0]).items, (), _RETRIEVE, wants="finds nothing before the first record"
        )

    def test_what_was_recorded_comes_back(self, store: StreamStore, backend: MemoryBackend) -> None:
        self.fill(store, backend)
        texts = [item.text for item in backend.retrieve(self.GOALS[-1]).items]
        expect_equal(
            backend.size(),
            len(self.GOALS) if self.keeps else 0,
            _SIZE,
            wants="counts the stored items: each attempt that was recorded once is there once",
        )
        if not self.keeps:
            expect_equal(texts, [], _RETRIEVE, wants="finds nothing in a memory that keeps nothing")
            return
        expect(
            texts != [] and self.GOALS[-1] in texts[0],
            _RETRIEVE,
            f"gives the attempt at the equal goal first, its text with the goal '{self.GOALS[-1]}'",
            met=texts,
        )

    def test_record_says_how_many_tokens_it_cost(self, store: StreamStore, backend: MemoryBackend) -> None:
        cost = self.record(store, backend, trajectory_of(self.GOALS[0], ["look"]))
        wants = "gives the tokens of its own model calls, a whole number, 0 without any"
        expect(type(cost) is int and cost >= 0, _RECORD, wants, met=cost)

    def test_top_k_bounds_the_items(self, store: StreamStore, backend: MemoryBackend) -> None:
        if "top_k" not in backend.capabilities:
            pytest.skip("does not declare top_k")
        self.fill(store, backend)
        limits = (0, 1, 2, 3, 8)
        found = [backend.retrieve(self.GOALS[0], top_k=limit).items for limit in limits]
        expect_equal(
            [len(items) for items in found],
            [0, 1, 2, 3, 3],
            _RETRIEVE,
            wants=f"gives top_k items of three, all when there are fewer, here for top_k = {limits}",
        )
        goals = [goal for goal in self.GOALS if any(goal in item.text for item in found[-1])]
        expect_equal(
            len(goals), len(self.GOALS), _RECORD, wants="keeps every attempt, each once: top_k = 8 gives them all"
        )

    def test_insight_k_bounds_the_insights(self, store: StreamStore, backend: MemoryBackend) -> None:
        if "insight_k" not in backend.capabilities:
            pytest.skip("does not declare insight_k")
        self.teach(store, backend)
        for limit in _INSIGHT_LIMITS:
            insights = backend.retrieve(self.GOALS[0], insight_k=limit).insights
            expect(
                len(insights) <= limit,
                _RETRIEVE,
                f"gives at most insight_k = {limit} insights",
                met=[insight.text for insight in insights],
            )
        expect(
            len(insights) > 0,
            _RETRIEVE,
            "gives an insight once the memory was taught some (where its own history is another one, override `teach` "
            "in your class)",
            met="no insight",
        )

    def test_items_come_best_first(self, store: StreamStore, backend: MemoryBackend) -> None:
        self.teach(store, backend)
        found = backend.retrieve(self.GOALS[1], **({"top_k": 8} if "top_k" in backend.capabilities else {}))
        # Sources are ranked each for itself: successes before failures.
        for source in sorted({item.source for item in found.items}):
            scores = [item.score for item in found.items if item.source == source]
            wants = f"gives items best first: scores never rise within source '{source}'"
            expect_equal(scores, sorted(scores, reverse=True), _RETRIEVE, wants=wants)

    def test_the_same_query_gives_the_same_answer(self, store: StreamStore, backend: MemoryBackend) -> None:
        self.fill(store, backend)
        first = backend.retrieve(self.GOALS[1])
        wants = "gives the equal answer for the equal query and memory"
        expect_equal(backend.retrieve(self.GOALS[1]), first, _RETRIEVE, wants=wants)

    def test_equal_histories_give_equal_memories(
        self, make: MakeBackend, store: StreamStore, backend: MemoryBackend, tmp_path: Path
    ) -> None:
        twin_store = StreamStore(tmp_path / "twin.sqlite", identity="cell/0")
        try:
            twin = make(twin_store)
            for one, other in ((store, backend), (twin_store, twin)):
                self.teach(one, other)
            expect_equal(
                self.answers(twin),
                self.answers(backend),
                _RETRIEVE,
                wants="depends on what was recorded and nothing else, no clock, chance or state outside the store: "
                "a repeated run must find the same",
            )
        finally:
            twin_store.close()

    def test_ids_are_unique(self, store: StreamStore, backend: MemoryBackend) -> None:
        self.fill(store, backend)
        self.fill(store, backend)
        retrieval = backend.retrieve(self.GOALS[0])
        for found in ([x.item_id for x in retrieval.items], [x.insight_id for x in retrieval.insights]):
            expect_equal(
                len(set(found)), len(found), _RETRIEVE, wants=f"gives each item and insight its own id: {found}"
            )

    # --- the store ----------------------------------------------------------------------------------------------------

    def test_retrieval_writes_nothing(self, store: StreamStore, backend: MemoryBackend) -> None:
        # A memory that nothing was recorded in may have no tables yet: reading makes none.
        for fill in (None, self.fill):
            if fill:
                fill(store, backend)
            before = _written(store)
            backend.retrieve(self.GOALS[0])
            backend.size()
            wants = "writes nothing into the store, nor does size, not even a table: only the end of a task commits"
            expect_equal(_written(store), before, _RETRIEVE, wants=wants)
            expect(not store.connection.in_transaction, _RETRIEVE, "opens no transaction", met="one is open")

    def test_it_never_commits(self, store: StreamStore, backend: MemoryBackend) -> None:
        # `record` looks after it in every test; here in a memory that holds something.
        self.fill(store, backend)
        self.record(store, backend, trajectory_of(self.GOALS[0], ["look"]))

    def test_a_commit_that_failed_leaves_no_trace(self, store: StreamStore, backend: MemoryBackend) -> None:
        self.need_transactions(backend)
        self.fill(store, backend)
        before, size = self.answers(backend), backend.size()

        def write() -> None:
            backend.record(trajectory_of(self.GOALS[0], ["go to fridge 1"]))
            raise _TaskDiedError

        with pytest.raises(_TaskDiedError):
            commit(store, write)
        wants = "leaves no trace when its transaction was rolled back (rows and caches: see StreamStore.rollbacks)"
        after = self.answers(backend)
        expect_equal(after, before, _RECORD, wants=wants)
        # The task that died is started again, by another claim of the stream.
        store.raise_epoch()
        self.fill(store, backend)
        wants = "goes on after a rollback: what is recorded then is stored"
        expect_equal(backend.size(), 2 * size, _SIZE, wants=wants)

    def test_a_reopened_one_answers_alike(self, make: MakeBackend, store: StreamStore, store_path: Path) -> None:
        backend = make(store)
        self.need_transactions(backend)
        self.teach(store, backend)
        before = self.answers(backend)
        store.close()
        again_store = StreamStore(store_path, identity="cell/0")
        try:
            again = make(again_store)
            expect_equal(
                self.answers(again),
                before,
                _RETRIEVE,
                wants="answers as before when the stream is opened again: durability is 'transactional'",
            )
        finally:
            again_store.close()

    def test_size_does_not_search_the_store(self, store: StreamStore, backend: MemoryBackend) -> None:
        work = []
        for _ in range(2):
            self.fill_unevenly(store, backend)
            work.append(_work_of(store, backend.size))
        wants = (
            "costs the same however much is stored: O(1), no walk over rows (instructions of SQLite, 12 and 24 items)"
        )
        expect(work[1] <= work[0], _SIZE, wants, met=work)


def _written(store: StreamStore) -> dict[str, int]:
    """How often rows and tables were changed."""
    (version,) = store.connection.execute("PRAGMA schema_version").fetchone()
    return {"changes of rows": store.connection.total_changes, "changes of tables": version}


def _work_of(store: StreamStore, call: Callable[[], object]) -> int:
    """Instructions of SQLite's virtual machine that `call` takes."""
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    store.connection.set_progress_handler(count, 1)
    try:
        call()
    finally:
        store.connection.set_progress_handler(None, 1)
    return steps[0]
