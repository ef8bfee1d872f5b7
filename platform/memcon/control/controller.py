"""MemoryController: the backend-agnostic wrapper that asks the policy at each decision point (MC-38, reading A-1).

Puts the parts of one stream together and owns what happens between its tasks: practice before the first one,
maintenance on a schedule after each. A task is `memcon.control.task_memory`; what an arm does,
`memcon.control.operations`; who chooses it, `memcon.control.choosing`. No model calls, no chance, no clock of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memcon.control.choosing import Chooser, FixedChooser, PolicyChooser, masked_arms
from memcon.control.decisions import Finished
from memcon.control.operations import Operations
from memcon.control.parts import ControllerParts, StreamPlace
from memcon.control.settings import ControlSettings
from memcon.control.task_memory import TaskMemory
from memcon.errors import ConfigError, InvariantError, UnknownNameError
from memcon.learning import actions
from memcon.types import MemoryAction, Operation, Task, Trajectory

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
_EVERY_ARM = "every_arm"


class MemoryController:
    """Memory control of one stream; one task at a time.

    Raises:
        ConfigError: the policy's arms are not the arms known here, none of them is supported, or the backend cannot
            carry out the schedule of maintenance.
    """

    def __init__(self, parts: ControllerParts) -> None:
        self.parts = parts
        self.operations = Operations(
            benchmark=parts.benchmark,
            backend=parts.backend,
            store=parts.store,
            control=parts.control,
            memory_frozen=parts.memory_frozen,
        )
        self._chooser = self._make_chooser()
        self._schedule = self._make_schedule()

    # --- a task ------------------------------------------------------------------------------------------------------

    def begin(self, task: Task, *, ordinal: int, episode_id: str) -> TaskMemory:
        """Memory of the task at `ordinal` (0-based) of the stream.

        Raises:
            BoundaryError: the backend cannot tell its size.
        """
        return TaskMemory(self.parts, self.operations, self._chooser, task, ordinal=ordinal, episode_id=episode_id)

    def start_arms(self, action_set: str) -> dict[str, str]:
        """Arms of `action_set` that may be played at task start, in arm order -> why one cannot do what it says, or "".

        Raises:
            UnknownNameError: no such set.
        """
        arms = _arms_of(action_set)
        masked = self._masked_at_start(arms)
        return {name: self.operations.unsupported(arm) for name, arm in arms.items() if name not in masked}

    def begin_fixed(self, task: Task, *, ordinal: int, episode_id: str, action_id: str, action_set: str) -> TaskMemory:
        """Memory of a task on which the arm `action_id` of `action_set` is played once, at its start, by no policy.

        The decision's propensity is that of a uniform draw from `start_arms` (policy `every_arm`).

        Raises:
            UnknownNameError: no such set, or no such arm in it that may be played at task start.
            BoundaryError: the backend cannot tell its size.
        """
        arms = _arms_of(action_set)
        masked = self._masked_at_start(arms)
        allowed = tuple(name for name in arms if name not in masked)
        if action_id not in allowed:
            raise UnknownNameError(f"arm of action set '{action_set}' at task start", action_id, allowed)
        chooser = FixedChooser(
            policy=_EVERY_ARM, action_id=action_id, arm=arms[action_id], allowed=allowed, masked=masked
        )
        return TaskMemory(self.parts, self.operations, chooser, task, ordinal=ordinal, episode_id=episode_id)

    # --- between tasks -----------------------------------------------------------------------------------------------

    def learn(self, trajectory: Trajectory) -> int:
        """Store an attempt at a practice task and its plan, inside the commit that fills a fresh memory.

        No decision is taken, and a frozen memory takes it too: this is what it begins with. Returns the tokens of the
        backend's own model calls.

        Raises:
            BoundaryError: the backend failed.
            StorageError: the disk refuses.
        """
        tokens = self.operations.record(trajectory)
        self.operations.learn_plan(trajectory)
        return tokens

    def scheduled(self, ordinal: int) -> tuple[Operation, ...]:
        """Maintenance that is due after the task at `ordinal` (0-based): Consolidate before Forget."""
        return tuple(operation for operation, every in self._schedule.items() if (ordinal + 1) % every == 0)

    def upkeep(self, operations: Sequence[Operation]) -> tuple[int, Mapping[str, str]]:
        """Run maintenance inside the commit of a task's end; a hook that fails takes only itself back.

        Returns the tokens of the backend's own model calls and, for each operation, "" or "ErrorClass: text".

        Raises:
            StorageError: the disk refuses.
        """
        done = {operation.value: self.operations.maintain(operation) for operation in operations}
        tokens = sum(applied.maintenance_tokens for applied in done.values())
        return tokens, {name: applied.hook_error for name, applied in done.items()}

    def memory_size(self) -> int:
        """Items in the backend now.

        Raises:
            BoundaryError: the backend failed.
        """
        return self.operations.memory_size()

    def _masked_at_start(self, arms: Mapping[str, MemoryAction]) -> Mapping[str, str]:
        return masked_arms(arms, self.operations, self.parts.control, is_stuck=False)

    # --- set-up ------------------------------------------------------------------------------------------------------

    def _make_chooser(self) -> Chooser:
        policy, learning = self.parts.policy, self.parts.learning
        if policy is not None and learning is not None:
            return PolicyChooser(self.parts, self.operations, policy=policy, learning=learning)
        if policy is None and learning is None:
            return FixedChooser(
                policy=_NO_POLICY, action_id=DEFAULT_ACTION_ID, arm=None, allowed=(DEFAULT_ACTION_ID,), masked={}
            )
        raise InvariantError("a controller needs a policy client and learning settings, or neither")

    def _make_schedule(self) -> dict[Operation, int]:
        control = self.parts.control
        schedule: dict[Operation, int] = {}
        for operation, every in (
            (Operation.CONSOLIDATE, control.consolidate_every),
            (Operation.FORGET, control.forget_every),
        ):
            if every is None:
                continue
            if reason := self.operations.cannot_maintain(operation):
                raise ConfigError(
                    f"{operation.value}_every = {every}: {reason}; leave it out, or take a memory with that hook "
                    "(metagpt: maintenance: true)"
                )
            schedule[operation] = every
        return schedule


def _arms_of(action_set: str) -> dict[str, MemoryAction]:
    return {arm.action_id: arm for arm in actions.action_set(action_set).actions}
