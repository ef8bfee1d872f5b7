"""MemoryController: the backend-agnostic wrapper that asks the policy at each decision point (MC-38, reading A-1).

Owns when to decide, the state's features and the memory block that stands. What an arm does is
`memcon.control.operations`; what is kept of it, `memcon.control.decisions`; which arm it is, the policy says. No model
calls, no chance, no clock of its own.

At a later decision Retrieve, Re-Retrieve and PlanInject replace the block; NoOp, Consolidate and Forget, and arms that
the backend lacks, keep it (reading A-6). At task start there is no block to keep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memcon import ids
from memcon.control.decisions import DecisionLog, Finished, brought, chosen
from memcon.control.operations import Operations
from memcon.control.progress import ProgressTracker
from memcon.control.settings import ControlSettings
from memcon.errors import Boundary, BoundaryError, ConfigError, InvariantError, UnavailableError, boundary
from memcon.learning import actions, credit, state_key
from memcon.policy_types import DecideReply, DecideRequest, LearningSettings
from memcon.protocols import Benchmark, Clock, MemoryBackend, PolicyClient
from memcon.store import StreamStore
from memcon.types import (
    Decision,
    MemoryAction,
    MemoryContext,
    Outcome,
    OutcomeClass,
    StateFeatures,
    Step,
    Task,
    Trajectory,
    Trigger,
)

__all__ = [
    "DEFAULT_ACTION_ID",
    "ControlSettings",
    "ControllerParts",
    "Finished",
    "MemoryController",
    "StreamPlace",
    "TaskMemory",
]

# What policy `none` does: the backend's default retrieval, once, at task start.
DEFAULT_ACTION_ID = "default"
_NO_POLICY = "none"
_DEFAULT_KEY_SCHEMA = "paper/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlace:
    """The stream whose memory this is; part of every draw's place."""

    cell: str
    stream: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerParts:
    """What a controller works with. `policy` and `learning` are None together: the policy `none`."""

    benchmark: Benchmark
    backend: MemoryBackend
    store: StreamStore
    policy: PolicyClient | None
    learning: LearningSettings | None
    table: str
    control: ControlSettings
    reward: credit.RewardSettings
    clock: Clock
    place: StreamPlace


class MemoryController:
    """Memory control of one stream; one task at a time.

    Raises:
        ConfigError: the policy's arms are not the arms known here, or none of them is supported.
    """

    def __init__(self, parts: ControllerParts) -> None:
        if (parts.policy is None) != (parts.learning is None):
            raise InvariantError("a controller needs a policy client and learning settings, or neither")
        self.parts = parts
        self.operations = Operations(
            benchmark=parts.benchmark,
            backend=parts.backend,
            store=parts.store,
            control=parts.control,
            augmented=parts.learning is not None,
        )
        self.arms = _arms(parts.learning)
        self.masked = self._masked()
        self.allowed = tuple(name for name in self.arms if name not in self.masked)
        if self.arms and not self.allowed:
            raise ConfigError(
                f"memory '{parts.backend.name}' supports none of the arms {', '.join(self.arms)}; "
                "set unsupported_arms: noop, or take another action set"
            )

    def begin(self, task: Task, *, ordinal: int, episode_id: str) -> TaskMemory:
        """Memory of the task at `ordinal` (0-based) of the stream.

        Raises:
            BoundaryError: the backend cannot tell its size.
        """
        return TaskMemory(self, task, ordinal=ordinal, episode_id=episode_id)

    def memory_size(self) -> int:
        """Items in the backend now.

        Raises:
            BoundaryError: the backend failed.
        """
        return self.operations.memory_size()

    def _masked(self) -> dict[str, str]:
        if self.parts.control.unsupported_arms == "noop":
            return {}
        reasons = {name: self.operations.unsupported(arm) for name, arm in self.arms.items()}
        return {name: reason for name, reason in reasons.items() if reason}


@dataclass(slots=True, kw_only=True)
class _Watch:
    """What the last look at the attempt saw."""

    started: bool = False
    phase: str = ""
    is_stuck: bool = False
    num_actions: int = 0


class TaskMemory:
    """Memory of one task (a `MemoryReader`): decides when something is due, else hands out the block that stands."""

    def __init__(self, controller: MemoryController, task: Task, *, ordinal: int, episode_id: str) -> None:
        self._controller, self._parts = controller, controller.parts
        self._task, self._ordinal, self._episode_id = task, ordinal, episode_id
        self._progress = ProgressTracker(controller.operations.matcher)
        self._watch, self._log = _Watch(), DecisionLog()
        self._block = MemoryContext()
        self._read_tokens = self._maintenance_tokens = 0
        self._recorded = False
        # Asked again only when maintenance has changed it, so that NoOp touches the backend not at all (MC-20).
        self._memory_size, self._is_size_stale = controller.memory_size(), False

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
        reward = credit.reward(
            self._parts.reward,
            outcome_class=outcome.outcome_class,
            num_steps=outcome.num_steps,
            max_steps=self._task.max_steps,
            has_step_budget=self._parts.benchmark.has_step_budget,
        )
        learning = self._parts.learning
        return self._log.finish(reward, gamma=learning.gamma if learning else None)

    def record(self, trajectory: Trajectory, outcome: Outcome) -> int:
        """Store the attempt, once, inside the commit of the task's end; nothing for `unevaluable` (MC-25).

        Returns the tokens of the backend's own model calls for writing.

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
        return self._controller.operations.record(trajectory)

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
        if self._parts.learning is None:
            return None
        if now.phase != before.phase:
            return Trigger.PHASE
        if now.is_stuck and not before.is_stuck:
            return Trigger.STUCK
        every_step = self._parts.control.decision_points == "every_step"
        return Trigger.EVERY_STEP if every_step and now.num_actions > before.num_actions else None

    # --- what --------------------------------------------------------------------------------------------------------

    async def _decide(self, trigger: Trigger) -> None:
        start = self._parts.clock.monotonic()
        asked = self._open_decision(trigger)
        operations = self._controller.operations
        if self._parts.policy is None:
            decision, token = asked, ""
            work = operations.retrieve_default(self._task)
        else:
            reply = await self._ask(self._parts.policy, asked)
            decision, token = chosen(asked, reply), reply.token
            work = operations.apply(self._arm(reply.action_id), self._task)
        try:
            applied = await work
        except (BoundaryError, asyncio.CancelledError):
            # The owner has counted this decision: the record of the failed task must show it.
            self._log.append(replace(decision, degraded="backend_failed"), token)
            raise
        kept = applied.context is None and not self._block.is_empty
        self._is_size_stale |= applied.maintained
        if applied.context is not None:
            self._block = applied.context
        self._read_tokens += applied.read_tokens
        self._maintenance_tokens += applied.maintenance_tokens
        latency_s = self._parts.clock.monotonic() - start
        self._log.append(replace(brought(decision, applied), context_kept=kept, latency_s=latency_s), token)

    def _open_decision(self, trigger: Trigger) -> Decision:
        """The decision before anything is chosen: its place, state and arms."""
        parts, controller = self._parts, self._controller
        features = self._features()
        position = self._log.position
        learning = parts.learning
        return Decision(
            decision_id=ids.decision_id(self._episode_id, position),
            episode_id=self._episode_id,
            position=position,
            trigger=trigger,
            state_key=state_key.key_text(learning.key_schema if learning else _DEFAULT_KEY_SCHEMA, features),
            features=features,
            action_id=DEFAULT_ACTION_ID,
            propensity=1.0,
            allowed=controller.allowed if learning else (DEFAULT_ACTION_ID,),
            masked=controller.masked,
            tie_set=() if learning else (DEFAULT_ACTION_ID,),
            policy=learning.rule if learning else _NO_POLICY,
            table=parts.table if learning else "",
        )

    def _features(self) -> StateFeatures:
        if self._is_size_stale:
            self._memory_size, self._is_size_stale = self._controller.memory_size(), False
        return StateFeatures(
            goal_type=self._task.goal_type,
            step=self._progress.num_actions,
            is_stuck=self._progress.is_stuck,
            objects_held=self._progress.objects_held,
            locations_visited=self._progress.locations_visited,
            memory_size=self._memory_size,
            plan_available=self._controller.operations.plan_available(self._task.goal_type),
            task_number=self._ordinal + 1,
        )

    async def _ask(self, policy: PolicyClient, asked: Decision) -> DecideReply:
        place = self._parts.place
        request = DecideRequest(
            table=asked.table,
            decision_id=asked.decision_id,
            episode_id=asked.episode_id,
            position=asked.position,
            keys=(asked.state_key,),
            # Without the epoch: a repeated task decides alike.
            draw=ids.draw64("draw", place.cell, place.stream, self._ordinal, asked.position),
            allowed=asked.allowed if asked.masked else None,
            explain=self._parts.control.explain,
        )
        with boundary(Boundary.POLICY, "decide"):
            try:
                return await policy.decide(request)
            except UnavailableError as error:
                raise BoundaryError(Boundary.POLICY, "decide", error) from error

    def _arm(self, action_id: str) -> MemoryAction:
        arm = self._controller.arms.get(action_id)
        if arm is None:
            raise InvariantError(f"table '{self._parts.table}' chose arm '{action_id}', which is none of its own")
        return arm


def _arms(learning: LearningSettings | None) -> Mapping[str, MemoryAction]:
    """Arms of the policy by id, in arm order; identity is checked, never the position (MC-13)."""
    if learning is None:
        return {}
    known = actions.action_set(learning.action_set)
    if actions.fingerprint(known) != learning.fingerprint:
        raise ConfigError(
            f"action set '{known.name}' has fingerprint {actions.fingerprint(known)} here and {learning.fingerprint} "
            "in the policy's table; use the memcon that made the table, or a new table"
        )
    by_id = {arm.action_id: arm for arm in known.actions}
    return {name: by_id[name] for name in learning.action_ids}
