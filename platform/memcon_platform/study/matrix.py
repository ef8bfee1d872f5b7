"""The outcome matrix: every arm on every task of a set of streams, under common seeds. A value; knows no files.

Each arm is played on the same memory with the same environment and agent seeds, and the memory then grows by the
outcome of one arm that is drawn uniformly, so that no arm decides what the others find (docs/prototype.md, 1).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memcon.errors import InvariantError
from memcon.learning import credit
from memcon.learning.credit import RewardSettings
from memcon.types import Operation, OutcomeClass, StateFeatures

__all__ = ["Bools", "Floats", "Ints", "OutcomeMatrix"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# Arm ids of operations that change the memory and bring nothing into the prompt (Table 7).
_MAINTENANCE = (Operation.CONSOLIDATE.value, Operation.FORGET.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeMatrix:
    """Outcomes of shape (streams, tasks, arms); what is known of a task before its decision, (streams, tasks).

    Raises:
        InvariantError: the shapes do not fit together.
    """

    # Arms in arm order.
    action_ids: tuple[str, ...]
    # (seed, stream) of each row: the unit of resampling.
    units: tuple[tuple[int, int], ...]
    # 1 or 0; NaN = unevaluable.
    success: Floats
    # Environment steps.
    num_steps: Ints
    # Estimated tokens that the arm put into the prompt (MC-42).
    tokens: Ints
    # Step horizon, and whether it enters the reward (Eq. 5).
    max_steps: Ints
    has_step_budget: Bools
    # Ids of the distinct tasks, which all streams have in orders of their own; and the number of each place's task.
    task_ids: tuple[str, ...]
    task: Ints
    # Benchmark of the task, text, and its goal type.
    benchmark: NDArray[Any]
    goal_type: NDArray[Any]
    plan_available: Bools
    # Items in memory before the task.
    memory_size: Ints
    # 1-based.
    task_number: Ints
    # Hash of framework, backbone and memory (`StateFeatures.setup`): one matrix has one.
    setup: str = ""
    # Arms that the memory backend lacks: they share the outcome of NoOp.
    unsupported: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        shape = self.success.shape
        expected = (len(self.units), self.num_tasks, len(self.action_ids))
        if len(shape) != 3 or shape != expected or min(shape) < 1:
            raise InvariantError(f"outcome matrix: outcomes of shape {shape} for {expected} streams, tasks and arms")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray) and value.shape not in {shape, shape[:2]}:
                raise InvariantError(f"outcome matrix: {field.name} has shape {value.shape}, outcomes have {shape}")
        ordered = np.sort(self.task, axis=1)
        if ordered[:, 0].min() < 0 or ordered[:, -1].max() >= len(self.task_ids) or (np.diff(ordered) == 0).any():
            raise InvariantError(
                f"outcome matrix: a stream plays a task twice, or one that is none of {len(self.task_ids)} task ids; "
                "give each task of a benchmark an id of its own"
            )

    @property
    def num_streams(self) -> int:
        """Rows: streams of all seeds."""
        return len(self.units)

    @property
    def num_tasks(self) -> int:
        """Tasks of each stream."""
        return int(self.success.shape[1])

    @property
    def seeds(self) -> Ints:
        """Seed of each row, shape (streams,)."""
        return np.array([seed for seed, _ in self.units], dtype=np.int64)

    @property
    def costs(self) -> Floats:
        """What decides between arms of equal success: tokens; an arm that also works on the memory counts as dearer.

        Shape (streams, tasks, arms).
        """
        works = np.array([arm in _MAINTENANCE for arm in self.action_ids])
        return self.tokens + 0.5 * works

    @property
    def families(self) -> tuple[str, ...]:
        """Benchmarks of the tasks, sorted."""
        return tuple(sorted({str(name) for name in self.benchmark.ravel()}))

    @property
    def last_quarter(self) -> Bools:
        """Tasks in the last quarter of their stream, shape (tasks,)."""
        found: Bools = np.arange(self.num_tasks) * 4 // self.num_tasks == 3
        return found

    def rewards(self, settings: RewardSettings) -> Floats:
        """Eq. 5 of every outcome under `settings`, NaN where unevaluable; shape (streams, tasks, arms)."""
        found = np.full(self.success.shape, np.nan)
        for place in np.ndindex(*self.success.shape):
            if not np.isnan(self.success[place]):
                found[place] = credit.reward(
                    settings,
                    outcome_class=OutcomeClass.SUCCESS if self.success[place] else OutcomeClass.FAILURE,
                    num_steps=int(self.num_steps[place]),
                    max_steps=int(self.max_steps[place[:2]]),
                    has_step_budget=bool(self.has_step_budget[place[:2]]),
                )
        return found

    def arm(self, action_id: str) -> int:
        """Index of `action_id`.

        Raises:
            InvariantError: the arm was not played.
        """
        if action_id not in self.action_ids:
            raise InvariantError(f"outcome matrix: no arm '{action_id}'; played: {', '.join(self.action_ids)}")
        return self.action_ids.index(action_id)

    def features(self, row: int, task: int) -> StateFeatures:
        """What a policy sees at the start of a task: no step taken, nothing held or visited."""
        return StateFeatures(
            goal_type=str(self.goal_type[row, task]),
            step=0,
            is_stuck=False,
            objects_held=0,
            locations_visited=0,
            memory_size=int(self.memory_size[row, task]),
            plan_available=bool(self.plan_available[row, task]),
            task_number=int(self.task_number[row, task]),
            benchmark=str(self.benchmark[row, task]),
            setup=self.setup,
        )
