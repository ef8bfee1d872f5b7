"""The maintenance hooks of a memory under test: only what the backend declares."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from memcon.protocols import MemoryBackend
from memcon.store import StreamStore
from memcon.testing.contract import expect, expect_equal, refuses
from memcon.testing.memory import commit
from memcon.testing.memory_case import MakeBackend, MemoryCase
from memcon.types import Operation

__all__ = ["MaintenanceSuite"]

_MAINTAIN = "MemoryBackend.maintain"


class MaintenanceSuite(MemoryCase):
    """The part of `MemoryBackendContract` that is about `maintain`."""

    def check_it_still_finds(self, backend: MemoryBackend) -> None:
        """Each goal finds an attempt at it, and no item twice."""
        __tracebackhide__ = True
        for goal in self.GOALS if self.keeps else ():
            items = backend.retrieve(goal).items
            found = items != () and goal in items[0].text
            expect(found, _MAINTAIN, f"keeps the memory searchable: '{goal}' finds an attempt at it", met=items)
            wants = "leaves no item twice"
            expect_equal(len({item.item_id for item in items}), len(items), _MAINTAIN, wants=wants)

    def test_maintenance_never_grows_the_memory_and_keeps_it_searchable(
        self, store: StreamStore, backend: MemoryBackend
    ) -> None:
        for operation in self.maintained(backend):
            self.fill_unevenly(store, backend)
            before = backend.size()
            tokens: list[object] = []
            commit(store, lambda op=operation, t=tokens: t.append(backend.maintain(op)))  # type: ignore[misc]
            expect(type(tokens[0]) is int, _MAINTAIN, "gives the tokens of its own model calls", met=tokens[0])
            after = backend.size()
            holds = (0 < after <= before) if self.keeps else after == 0
            wants = f"({operation.value}) never grows the memory and never empties it; there were {before} items"
            expect(holds, _MAINTAIN, wants, met=after)
            self.check_it_still_finds(backend)
            # It goes on working: what comes next is found, and maintenance may come again.
            self.fill_unevenly(store, backend)
            commit(store, lambda operation=operation: backend.maintain(operation))  # type: ignore[misc]
            self.check_it_still_finds(backend)

    def test_maintenance_never_commits(self, store: StreamStore, backend: MemoryBackend) -> None:
        for operation in self.maintained(backend):
            self.fill_unevenly(store, backend)
            # A store whose transaction is gone raises as well, with a message about disks.
            with suppress(Exception):
                _maintain(store, backend, operation)
            expect(
                store.connection.in_transaction,
                _MAINTAIN,
                f"({operation.value}) never commits: it belongs to the task's commit",
                met="the transaction was over when maintain came back",
            )
            store.discard()

    def test_maintenance_that_is_rolled_back_leaves_no_trace(self, store: StreamStore, backend: MemoryBackend) -> None:
        for operation in self.maintained(backend):
            self.need_transactions(backend)
            self.fill_unevenly(store, backend)
            before = self.answers(backend)
            _maintain(store, backend, operation)
            store.discard()
            after = self.answers(backend)
            wants = f"({operation.value}) leaves no trace when its task is discarded (see StreamStore.rollbacks)"
            expect_equal(after, before, _MAINTAIN, wants=wants)

    def test_maintenance_is_durable(self, make: MakeBackend, store: StreamStore, store_path: Path) -> None:
        backend = make(store)
        for operation in self.maintained(backend):
            self.need_transactions(backend)
            self.fill_unevenly(store, backend)
            commit(store, lambda operation=operation: backend.maintain(operation))  # type: ignore[misc]
        before = self.answers(backend)
        store.close()
        again_store = StreamStore(store_path, identity="cell/0")
        try:
            again = make(again_store)
            after = self.answers(again)
            expect_equal(after, before, _MAINTAIN, wants="is as durable as a record: the reopened memory answers alike")
            self.fill_unevenly(again_store, again)
            self.check_it_still_finds(again)
        finally:
            again_store.close()

    def test_an_operation_that_is_not_declared_is_refused(self, store: StreamStore, backend: MemoryBackend) -> None:
        for operation in sorted({Operation.CONSOLIDATE, Operation.FORGET} - backend.maintains):
            wants = f"refuses {operation.value}, which `maintains` does not name: the policy masks what is not there"
            with refuses(TypeError, _MAINTAIN, wants=wants):
                backend.maintain(operation)

    @staticmethod
    def maintained(backend: MemoryBackend) -> list[Operation]:
        """The declared hooks, in a fixed order; a backend without any is skipped."""
        if not backend.maintains:
            pytest.skip("declares no maintenance")
        return sorted(backend.maintains)


def _maintain(store: StreamStore, backend: MemoryBackend, operation: Operation) -> None:
    """Run a hook inside a task, as the controller does."""
    with store.maintenance():
        backend.maintain(operation)
