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
from memcon.control.plans import PlanIndex, PlanTemplate, Rewriter, extract
from memcon.control.progress import ProgressMatcher
from memcon.control.settings import ControlSettings
from memcon.errors import Boundary, BoundaryError, boundary
from memcon.protocols import Benchmark, MemoryBackend
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
        augmented: bool,
    ) -> None:
        self._benchmark, self._backend, self._store, self._control = benchmark, backend, store, control
        # The paper's static backend (policy `none`) keeps no templates and gives no hint.
        self._injects = augmented and control.plan_injection
        self._decomposes = augmented and control.goal_decomposition
        self.matcher = ProgressMatcher(benchmark.progress_rules)
        self._rewriter = Rewriter(benchmark.vocabulary)
        self._plans = PlanIndex(store, choice=control.choice)

    def unsupported(self, action: MemoryAction) -> str:
        """Why `action` cannot do what it says, or ""."""
        if action.op in _MAINTENANCE and action.op not in self._backend.maintains:
            return f"memory '{self._backend.name}' has no {action.op.value} hook"
        if action.op is Operation.PLAN_INJECT and not self._injects:
            return "plan injection is switched off"
        return ""

    def plan_available(self, goal_type: str) -> bool:
        """PlanInject would find a template for `goal_type` (MC-9)."""
        return self._injects and self._plans.get(goal_type) is not None

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
            return await self._maintain(action)
        return await self._fetch(action, task)

    async def retrieve_default(self, task: Task) -> Applied:
        """The backend's own default retrieval: what the static memory of the paper does.

        Raises:
            BoundaryError: the backend failed.
        """
        found = await self._call("retrieve", lambda: self._backend.retrieve(task.goal))
        return Applied(context=MemoryContext(items=found.items, insights=found.insights), read_tokens=found.tokens)

    def record(self, trajectory: Trajectory) -> int:
        """Store a finished attempt and learn its plan, inside the commit of the task's end; returns the tokens it cost.

        Raises:
            BoundaryError: the backend failed.
            StorageError: the disk refuses.
        """
        with boundary(Boundary.MEMORY, "record"):
            tokens = self._backend.record(trajectory)
        if self._injects or self._decomposes:
            actions = extract(trajectory, rewriter=self._rewriter, matcher=self.matcher)
            if actions:
                task = trajectory.task
                self._plans.offer(task.goal_type, PlanTemplate(source_goal=task.goal, actions=actions))
        return tokens

    async def _fetch(self, action: MemoryAction, task: Task) -> Applied:
        declared = self._backend.capabilities
        limits = {"top_k": action.top_k, "insight_k": action.insight_k, "hop": action.hop}
        parameters = {name: value for name, value in limits.items() if value is not None and name in declared}
        query = task.goal + action.query_suffix
        found = await self._call("retrieve", lambda: self._backend.retrieve(query, **parameters))
        plan, degraded = self._plan(action, task)
        context = MemoryContext(items=found.items, insights=found.insights, plan=plan, hint=self._hint(task))
        return Applied(context=context, degraded=degraded, read_tokens=found.tokens)

    def _plan(self, action: MemoryAction, task: Task) -> tuple[str, str]:
        """The plan text of the arm PlanInject, and why there is none (MC-18)."""
        if action.op is not Operation.PLAN_INJECT:
            return "", ""
        if not self._injects:
            return "", "plan_off"
        template = self._plans.get(task.goal_type)
        return (self._rewriter.render(template, self._control.form), "") if template else ("", "no_plan")

    def _hint(self, task: Task) -> str:
        if not self._decomposes:
            return ""
        types = self._benchmark.single_object_types
        return decomposition.hint(task.goal_type, types, self._plans, rewriter=self._rewriter, form=self._control.form)

    async def _maintain(self, action: MemoryAction) -> Applied:
        if self.unsupported(action):
            return Applied(degraded="unsupported")
        try:
            with self._store.maintenance():
                tokens = await self._call(action.op.value, lambda: self._backend.maintain(action.op))
        except BoundaryError as error:
            cause = error.__cause__ or error
            _log.warning(
                "memory.hook_failed",
                extra={"backend": self._backend.name, "operation": action.op.value, "error": type(cause).__name__},
                exc_info=cause,
            )
            return Applied(degraded="hook_failed", hook_error=f"{type(cause).__name__}: {cause}")
        return Applied(maintained=True, maintenance_tokens=tokens)

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
