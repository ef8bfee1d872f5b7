"""Outcome matrices from the Parquet tables of a matrix run. A matrix is read whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memcon import registry
from memcon.errors import InvariantError, NotFoundError
from memcon_platform.config import Cell
from memcon_platform.study.matrix import OutcomeMatrix
from memcon_platform.trajectory import read_run

__all__ = ["read_matrix"]

_UNEVALUABLE = "unevaluable"
_UNSUPPORTED = "unsupported"
_COLUMNS = {
    "episodes": ("task_id", "max_steps", "benchmark", "goal_type"),
    "decisions": ("position", "feature_memory_size", "feature_plan_available", "feature_task_number", "feature_setup"),
    "trials": ("action_id", "outcome_class", "success", "num_steps", "tokens_injected", "degraded"),
}


def read_matrix(run_dir: Path, cells: Sequence[Cell]) -> OutcomeMatrix:
    """The outcome matrix of `cells`, which differ in their seed only: rows by cell, then stream; tasks by ordinal.

    Raises:
        NotFoundError: some stream has not ended.
        DamagedFileError: a file of the run cannot be trusted.
        InvariantError: streams of different lengths, or tasks without all arms.
    """
    tables = read_run(run_dir, tables=tuple(_COLUMNS), columns=_COLUMNS)
    units = [(cell, stream) for cell in cells for stream in range(cell.streams)]
    num_tasks = cells[0].stream_tasks[0]
    rows = {(cell.cell_id, stream): row for row, (cell, stream) in enumerate(units)}
    shape = (len(units), num_tasks)
    episodes = _Placed(tables.episodes, rows, shape)
    episodes.check_whole(run_dir)
    decisions = _Placed(tables.decisions, rows, shape)
    trials = _Placed(tables.trials, rows, shape)
    arms = _arm_order(trials)
    trial = _Cube(trials, arms, shape)
    budgets = _step_budgets(cells[0])
    task_ids, task = np.unique(episodes.of("task_id").astype(str), return_inverse=True)
    return OutcomeMatrix(
        action_ids=arms,
        units=tuple((cell.seed, stream) for cell, stream in units),
        success=np.where(trial.of("outcome_class") == _UNEVALUABLE, np.nan, trial.of("success").astype(np.float64)),
        num_steps=trial.of("num_steps").astype(np.int64),
        tokens=trial.of("tokens_injected").astype(np.int64),
        max_steps=episodes.of("max_steps").astype(np.int64),
        has_step_budget=np.vectorize(budgets.__getitem__, otypes=[np.bool_])(episodes.of("task_id")),
        task_ids=tuple(task_ids.tolist()),
        task=task.reshape(shape).astype(np.int64),
        benchmark=episodes.of("benchmark").astype(str),
        goal_type=episodes.of("goal_type").astype(str),
        plan_available=decisions.of("feature_plan_available").astype(np.bool_),
        memory_size=decisions.of("feature_memory_size").astype(np.int64),
        task_number=decisions.of("feature_task_number").astype(np.int64),
        setup=str(decisions.of("feature_setup")[0, 0]),
        unsupported=_unsupported(trial, arms),
    )


def _unsupported(trial: _Cube, arms: Sequence[str]) -> frozenset[str]:
    """Arms that the memory lacks: marked so wherever they could be evaluated; a task that failed has no marks."""
    marked, failed = trial.of("degraded") == _UNSUPPORTED, trial.of("outcome_class") == _UNEVALUABLE
    lacking = (marked | failed).all(axis=(0, 1)) & marked.any(axis=(0, 1))
    return frozenset(arm for arm, lacks in zip(arms, lacking, strict=True) if lacks)


class _Placed:
    """The rows of a table that belong to the matrix, each with its place in it."""

    def __init__(self, table: Any, rows: Mapping[tuple[str, int], int], shape: tuple[int, int]) -> None:
        names = zip(table["cell"].to_pylist(), table["stream"].to_pylist(), strict=True)
        found = np.array([rows.get(name, -1) for name in names], dtype=np.int64)
        self.kept = found >= 0
        self.row = found[self.kept]
        self.task = table["ordinal"].to_numpy()[self.kept].astype(np.int64)
        self._table, self._shape = table, shape

    def column(self, name: str) -> NDArray[Any]:
        """Values of the rows that belong to the matrix."""
        values: NDArray[Any] = self._table[name].to_numpy(zero_copy_only=False)[self.kept]
        return values

    def of(self, name: str) -> NDArray[Any]:
        """Column `name` laid out as (streams, tasks); a table of one row a task."""
        values = self.column(name)
        found = np.empty(self._shape, dtype=values.dtype)
        found[self.row, self.task] = values
        return found

    def check_whole(self, run_dir: Path) -> None:
        """Every task of every stream has ended."""
        missing = self._shape[0] * self._shape[1] - len(self.row)
        if missing:
            raise NotFoundError(
                f"the outcome matrix in {run_dir} lacks {missing} of {self._shape[0] * self._shape[1]} tasks; "
                "the same command again continues it"
            )


class _Cube:
    """Trials laid out as (streams, tasks, arms)."""

    def __init__(self, trials: _Placed, arms: Sequence[str], shape: tuple[int, int]) -> None:
        self._trials, self._shape = trials, (*shape, len(arms))
        index = {arm: i for i, arm in enumerate(arms)}
        self._arm = np.array([index[arm] for arm in trials.column("action_id")], dtype=np.int64)
        if len(self._arm) != shape[0] * shape[1] * len(arms):
            raise InvariantError(
                f"outcome matrix: {len(self._arm)} trials for {shape[0]} streams, {shape[1]} tasks and {len(arms)} arms"
            )

    def of(self, name: str) -> NDArray[Any]:
        values = self._trials.column(name)
        found = np.empty(self._shape, dtype=values.dtype)
        found[self._trials.row, self._trials.task, self._arm] = values
        return found


def _arm_order(trials: _Placed) -> tuple[str, ...]:
    """Arms in the order of a task's trials, which is arm order."""
    return tuple(dict.fromkeys(str(arm) for arm in trials.column("action_id")))


def _step_budgets(cell: Cell) -> dict[str, bool]:
    """Whether the step budget enters the reward, by task id."""
    entry = cell.benchmark
    benchmark = registry.build("benchmark", entry.name, entry.parameters)
    return {task.task_id: bool(benchmark.part_of(task).has_step_budget) for task in benchmark.tasks()}
