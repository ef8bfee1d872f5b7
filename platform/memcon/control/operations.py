"""Carries out an arm over any memory backend: retrieval, plan, hint, maintenance (MC-15 to MC-21, MC-40).

Knows what a backend declares and nothing else of it; no model calls of its own. When to decide, and what, is the
controller's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from memcon.control import decomposition
from memcon.control.plans import PlanIndex, PlanTemplate, extract
from memcon.control.settings import ControlSettings
from memcon.control.worlds import Worlds
from memcon.errors import Boundary, BoundaryError, boundary
from memcon.protocols import Benchmark, MemoryBackend, Retrieval
from memcon.store import StreamStore
from memcon.types import MemoryAction, MemoryContext, Operation, Task, Trajectory

__all__ = ["Applied", "Operations"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_MAINTENANCE = frozenset({Operation.CONSOLIDATE, Operation.FORGET})


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What an arm did."""

    # The new memory block; None = the arm brings none.
    context: MemoryContext | None = None
    # As in `Decision`.
    degraded: str = ""
    hook_error: str = ""
    # A maintenance hook ran to its end: the memory may have another size now.
    maintained: bool = False
    # Tokens of the backend's own model calls, Consolidate and Forget apart (MC-21).
    read_tokens: int = 0
    maintenance_tokens: int = 0


class Operations:
    """The operations of one stream over its backend, plan templates and goal decomposition."""

    def __init__(
        self,
        *,
        benchmark: Benchmark,
        backend: MemoryBackend,
        store: StreamStore,
        control: ControlSettings,
        memory_frozen: bool,
    ) -> None:
        self._backend, self._store, self._control = backend, store, control
        self._memory_frozen = memory_frozen
        self._plans = PlanIndex(store, choice=control.choice)
        self.worlds = Worlds(benchmark)

    def unsupported(self, action: MemoryAction) -> str:
        """Why `action` cannot do what it says, or ""."""
        if action.op in _MAINTENANCE:
            return self.cannot_maintain(action.op)
        if action.op is Operation.PLAN_INJECT and not self._control.plan_injection:
            return "plan injection is switched off"
        return ""

    def cannot_maintain(self, operation: Operation) -> str:
        """Why the hook `operation` cannot run, or ""."""
        if operation not in self._backend.maintains:
            return f"memory '{self._backend.name}' has no {operation.value} hook"
        return f"memory '{self._backend.name}' is frozen" if self._memory_frozen else ""

    def plan_available(self, goal_type: str) -> bool:
        """PlanInject would find a template for `goal_type` (MC-9)."""
        return self._control.plan_injection and self._plans.get(goal_type) is not None

    def memory_size(self) -> int:
        """Items in the backend.

        Raises:
            BoundaryError: the backend failed.
        """
        with boundary(Boundary.MEMORY, "size"):
            return self._backend.size()

    async def apply(self, action: MemoryAction, task: Task) -> Applied:
        """Carry out `action` for `task`.

        Raises:
            BoundaryError: the backend failed to retrieve; a failing maintenance hook is told in the result instead.
        """
        if action.op is Operation.NOOP:
            return Applied()
        if action.op in _MAINTENANCE:
            return await self._maintain(action.op)
        return await self._fetch(action, task)

    async def retrieve_default(self, task: Task) -> Applied:
        """The backend's own default retrieval: what the static memory of the paper does.

        Raises:
            BoundaryError: the backend failed.
        """
        found = await self._retrieve(lambda: self._backend.retrieve(task.goal))
        return Applied(context=MemoryContext(items=found.items, insights=found.insights), read_tokens=found.tokens)

    def record(self, trajectory: Trajectory) -> int:
        """Store a finished attempt, inside a commit of the stream's file; returns the tokens it cost.

        Raises:
            BoundaryError: the backend failed.
            StorageError: the disk refuses.
        """
        with boundary(Boundary.MEMORY, "record"):
            return self._backend.record(trajectory)

    def learn_plan(self, trajectory: Trajectory) -> None:
        """Offer the plan of a finished attempt, inside the same commit.

        Raises:
            StorageError: the disk refuses.
        """
        if not (self._control.plan_injection or self._control.goal_decomposition):
            return
        task = trajectory.task
        world = self.worlds.of(task)
        steps = extract(trajectory, rewriter=world.rewriter, matcher=world.matcher)
        if steps:
            self._plans.offer(task.goal_type, PlanTemplate(source_goal=task.goal, actions=steps))

    def maintain(self, operation: Operation) -> Applied:
        """Run a maintenance hook at once, in this thread; one that fails is rolled back and told in the result.

        Raises:
            StorageError: the disk refuses.
        """
        try:
            with self._store.maintenance(), boundary(Boundary.MEMORY, operation.value):
                tokens = self._backend.maintain(operation)
        except BoundaryError as error:
            return self._hook_failed(operation, error)
        return Applied(maintained=True, maintenance_tokens=tokens)

    async def _fetch(self, action: MemoryAction, task: Task) -> Applied:
        declared = self._backend.capabilities
        limits = {"top_k": action.top_k, "insight_k": action.insight_k, "hop": action.hop}
        parameters = {name: value for name, value in limits.items() if value is not None and name in declared}
        query = task.goal + action.query_suffix
        found = await self._retrieve(lambda: self._backend.retrieve(query, **parameters))
        plan, degraded = self._plan(action, task)
        context = MemoryContext(items=found.items, insights=found.insights, plan=plan, hint=self._hint(task))
        return Applied(context=context, degraded=degraded, read_tokens=found.tokens)

    def _plan(self, action: MemoryAction, task: Task) -> tuple[str, str]:
        """The plan text of the arm PlanInject, and why there is none (MC-18)."""
        if action.op is not Operation.PLAN_INJECT:
            return "", ""
        if not self._control.plan_injection:
            return "", "plan_off"
        template = self._plans.get(task.goal_type)
        if template is None:
            return "", "no_plan"
        return self.worlds.of(task).rewriter.render(template, self._control.form), ""

    def _hint(self, task: Task) -> str:
        if not self._control.goal_decomposition:
            return ""
        world = self.worlds.of(task)
        return decomposition.hint(
            task.goal_type,
            world.benchmark.single_object_types,
            self._plans,
            rewriter=world.rewriter,
            form=self._control.form,
        )

    async def _maintain(self, operation: Operation) -> Applied:
        if self.cannot_maintain(operation):
            return Applied(degraded="unsupported")
        try:
            with self._store.maintenance():
                tokens = await self._call(operation.value, lambda: self._backend.maintain(operation))
        except BoundaryError as error:
            return self._hook_failed(operation, error)
        return Applied(maintained=True, maintenance_tokens=tokens)

    def _hook_failed(self, operation: Operation, error: BoundaryError) -> Applied:
        cause = error.__cause__ or error
        _log.warning(
            "memory.hook_failed",
            extra={"backend": self._backend.name, "operation": operation.value, "error": type(cause).__name__},
            exc_info=cause,
        )
        return Applied(degraded="hook_failed", hook_error=f"{type(cause).__name__}: {cause}")

    async def _retrieve(self, ask: Callable[[], Retrieval]) -> Retrieval:
        found = await self._call("retrieve", ask)
        with boundary(Boundary.MEMORY, "retrieve"):
            # Otherwise whoever reads it first is blamed.
            if not isinstance(found, Retrieval):
                raise TypeError(f"it gave a {type(found).__name__}, not a memcon.protocols.Retrieval")
        return found

    async def _call(self, doing: str, call: Callable[[], T]) -> T:
        with boundary(Boundary.MEMORY, doing):
            return await _in_thread(call) if self._backend.blocking else call()


async def _in_thread(call: Callable[[], T]) -> T:
    work = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        # A thread cannot be stopped, and the stream's file has one user at a time: let it finish first.
        await asyncio.wait({work})
        raise
