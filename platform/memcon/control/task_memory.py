"""TaskMemory: memory of one task, between its first model call and its end.

Owns when to decide, the state's features and the memory block that stands. At a later decision Retrieve, Re-Retrieve
and PlanInject replace the block; NoOp, Consolidate and Forget, and arms that the backend lacks, keep it (reading A-6).
At task start there is no block to keep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memcon.control.choosing import Chooser, Moment
from memcon.control.decisions import DecisionLog, Finished, brought
from memcon.control.operations import Operations
from memcon.control.parts import ControllerParts
from memcon.control.progress import ProgressTracker
from memcon.errors import BoundaryError, InvariantError
from memcon.learning import credit, state_key
from memcon.types import MemoryContext, Outcome, OutcomeClass, StateFeatures, Step, Task, Trajectory, Trigger

__all__ = ["TaskMemory"]


@dataclass(slots=True, kw_only=True)
class _Watch:
    """What the last look at the attempt saw."""

    started: bool = False
    phase: str = ""
    is_stuck: bool = False
    num_actions: int = 0


class TaskMemory:
    """Memory of one task (a `MemoryReader`): decides when something is due, else hands out the block that stands.

    Raises:
        BoundaryError: the backend cannot tell its size.
        ConfigError: the progress rules of the task's benchmark are broken.
    """

    def __init__(
        self,
        parts: ControllerParts,
        operations: Operations,
        chooser: Chooser,
        task: Task,
        *,
        ordinal: int,
        episode_id: str,
    ) -> None:
        self._parts, self._operations, self._chooser = parts, operations, chooser
        self._task, self._ordinal, self._episode_id = task, ordinal, episode_id
        self._world = operations.worlds.of(task)
        self._progress = ProgressTracker(self._world.matcher)
        self._watch, self._log = _Watch(), DecisionLog()
        self._block = MemoryContext()
        self._read_tokens = self._maintenance_tokens = 0
        self._recorded = False
        # Asked again only when maintenance has changed it, so that NoOp touches the backend not at all (MC-20).
        self._memory_size, self._is_size_stale = operations.memory_size(), False

    @property
    def read_tokens(self) -> int:
        """Tokens of the backend's own model calls in retrievals so far."""
        return self._read_tokens

    @property
    def maintenance_tokens(self) -> int:
        """Tokens of the backend's own model calls in Consolidate and Forget so far (MC-21)."""
        return self._maintenance_tokens

    async def context(self, steps: Sequence[Step]) -> MemoryContext:
        """The memory block for the next model call, given all steps so far.

        Raises:
            BoundaryError: policy or backend failed.
            ConflictError: this episode was cancelled, since another process claimed its stream.
        """
        self._progress.advance(steps)
        trigger = self._due()
        if trigger is not None:
            await self._decide(trigger)
        return self._block

    def finish(self, outcome: Outcome) -> Finished:
        """Reward, credits and outcomes of the decisions; what an `unevaluable` task changed in memory is dropped."""
        if outcome.outcome_class is OutcomeClass.UNEVALUABLE:
            self._parts.store.discard()
        settings = self._parts.reward
        reward = credit.reward(
            settings,
            outcome_class=outcome.outcome_class,
            num_steps=outcome.num_steps,
            max_steps=self._task.max_steps,
            has_step_budget=self._world.benchmark.has_step_budget,
        )
        return self._log.finish(reward, gamma=self._chooser.gamma, token_cost=settings.token_cost)

    def record(self, trajectory: Trajectory, outcome: Outcome) -> int:
        """Store the attempt, once, inside the commit of the task's end.

        Nothing is stored for `unevaluable` (MC-25) and in a frozen memory (RO-15). Returns the tokens of the backend's
        own model calls for writing.

        Raises:
            BoundaryError: the backend failed.
            StorageError: the disk refuses.
            InvariantError: the attempt was recorded before.
        """
        if outcome.outcome_class is OutcomeClass.UNEVALUABLE:
            return 0
        if self._recorded:
            raise InvariantError(f"task {self._ordinal} of stream {self._parts.place.stream} is recorded twice")
        self._recorded = True
        if self._parts.memory_frozen:
            return 0
        tokens = self._operations.record(trajectory)
        if self._chooser.has_arms:
            self._operations.learn_plan(trajectory)
        return tokens

    # --- when --------------------------------------------------------------------------------------------------------

    def _due(self) -> Trigger | None:
        before = self._watch
        now = _Watch(
            started=True,
            phase=state_key.phase_of(self._progress.num_actions),
            is_stuck=self._progress.is_stuck,
            num_actions=self._progress.num_actions,
        )
        self._watch = now
        if not before.started:
            return Trigger.START
        if self._chooser.points == "start":
            return None
        if now.phase != before.phase:
            return Trigger.PHASE
        if now.is_stuck and not before.is_stuck:
            return Trigger.STUCK
        every_step = self._chooser.points == "every_step"
        return Trigger.EVERY_STEP if every_step and now.num_actions > before.num_actions else None

    # --- what --------------------------------------------------------------------------------------------------------

    async def _decide(self, trigger: Trigger) -> None:
        start = self._parts.clock.monotonic()
        choice = await self._chooser.choose(
            Moment(
                episode_id=self._episode_id,
                ordinal=self._ordinal,
                position=self._log.position,
                trigger=trigger,
                features=self._features(),
            )
        )
        decision = choice.decision
        try:
            if choice.arm is None:
                applied = await self._operations.retrieve_default(self._task)
            else:
                applied = await self._operations.apply(choice.arm, self._task)
        except (BoundaryError, asyncio.CancelledError):
            # The owner has counted this decision: the record of the failed task must show it.
            self._log.append(replace(decision, degraded="backend_failed"), choice.token)
            raise
        kept = applied.context is None and not self._block.is_empty
        self._is_size_stale |= applied.maintained
        if applied.context is not None:
            self._block = applied.context
        self._read_tokens += applied.read_tokens
        self._maintenance_tokens += applied.maintenance_tokens
        latency_s = self._parts.clock.monotonic() - start
        self._log.append(replace(brought(decision, applied), context_kept=kept, latency_s=latency_s), choice.token)

    def _features(self) -> StateFeatures:
        if self._is_size_stale:
            self._memory_size, self._is_size_stale = self._operations.memory_size(), False
        goal_type = self._task.goal_type
        return StateFeatures(
            goal_type=goal_type,
            step=self._progress.num_actions,
            is_stuck=self._progress.is_stuck,
            objects_held=self._progress.objects_held,
            locations_visited=self._progress.locations_visited,
            memory_size=self._memory_size,
            plan_available=self._chooser.has_arms and self._operations.plan_available(goal_type),
            task_number=self._ordinal + 1,
            benchmark=self._task.benchmark,
            setup=self._parts.setup,
        )
