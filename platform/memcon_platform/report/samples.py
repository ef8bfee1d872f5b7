"""Parquet rows of each cell as numpy columns, and the (streams, tasks) matrices that the statistics work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memcon.errors import DamagedFileError
from memcon_platform.config import Cell
from memcon_platform.trajectory import read_run

__all__ = ["PURPOSES", "SOURCES", "CellSample", "Matrices", "Unit", "load", "matrix", "pair", "quarter_of"]

PURPOSES = ("agent_prompt", "agent_completion", "memory_read", "memory_write", "memory_maintenance", "judge")
SOURCES = ("items", "insights", "plan", "hint")

Column: TypeAlias = NDArray[Any]
Matrix: TypeAlias = NDArray[np.float64]
# What is resampled as one: (seed, stream); (seed, 0) when the streams of a cell share the tasks out.
Unit: TypeAlias = tuple[int, int]

_EPISODES = (
    "section",
    "task_id",
    "goal_type",
    "provenance",
    "outcome_class",
    "success",
    "score",
    "num_steps",
    *(f"tokens_{purpose}" for purpose in PURPOSES),
)
_DECISIONS = (
    "state_key",
    "table",
    "action_id",
    "forced",
    "is_fallback",
    "degraded",
    "hook_error",
    *(f"tokens_{source}" for source in SOURCES),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSample:
    """The finished tasks of one cell; every column of a table has the same length."""

    cell: Cell
    episodes: Mapping[str, Column]
    decisions: Mapping[str, Column]

    @property
    def evaluated(self) -> NDArray[np.bool_]:
        """Tasks inside the denominators, shape (tasks,)."""
        found: NDArray[np.bool_] = self.episodes["outcome_class"] != "unevaluable"
        return found

    @property
    def num_found(self) -> int:
        """Finished tasks, unevaluable ones included."""
        return len(self.episodes["ordinal"])


def load(run_dir: Path, cells: Sequence[Cell]) -> dict[str, CellSample]:
    """Sample of each cell of the plan by its id; a cell without finished tasks has empty columns.

    Raises:
        NotFoundError, DamagedFileError, SchemaVersionError: as in `read_run`.
    """
    tables = read_run(
        run_dir, tables=("episodes", "decisions"), columns={"episodes": _EPISODES, "decisions": _DECISIONS}
    )
    episodes, decisions = _by_cell(tables.episodes), _by_cell(tables.decisions)
    for cell in cells:
        found = episodes.get(cell.cell_id, {}).get("stream")
        if found is not None and int(found.max()) >= cell.streams:
            problem = f"cell {cell.cell_id} has stream {int(found.max())}, the plan promises {cell.streams} streams"
            raise DamagedFileError(run_dir, problem, "look at it with `memcon data check`")
    none_yet = {name: column[:0] for name, column in _columns(tables.episodes).items()}
    none_decided = {name: column[:0] for name, column in _columns(tables.decisions).items()}
    return {
        cell.cell_id: CellSample(
            cell=cell,
            episodes=episodes.get(cell.cell_id, none_yet),
            decisions=decisions.get(cell.cell_id, none_decided),
        )
        for cell in cells
    }


def quarter_of(sample: CellSample, columns: Mapping[str, Column], parts: int = 4) -> NDArray[np.int64]:
    """Which of `parts` equal windows of its stream each row lies in, shape (rows,)."""
    lengths = np.array(sample.cell.stream_tasks, dtype=np.int64)[columns["stream"]]
    windows: NDArray[np.int64] = np.minimum(columns["ordinal"].astype(np.int64) * parts // lengths, parts - 1)
    return windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices:
    """Values by unit and task, NaN where there is none."""

    # float64, shape (units, tasks)
    values: Matrix
    units: tuple[Unit, ...]
    tasks: tuple[str, ...]


def matrix(
    samples: Sequence[CellSample], keep: Callable[[CellSample], NDArray[np.bool_]] = lambda sample: sample.evaluated
) -> Matrices:
    """Success of the kept tasks of `samples`, which differ in the seed."""
    found: dict[tuple[Unit, str], float] = {}
    for sample in samples:
        chosen = keep(sample)
        columns = [sample.episodes[name][chosen].tolist() for name in ("stream", "section", "task_id", "success")]
        shared_out = sample.cell.split == "partition"
        for stream, section, task_id, success in zip(*columns, strict=True):
            unit = (sample.cell.seed, 0 if shared_out else stream)
            found[unit, f"{section}/{task_id}"] = float(success)
    units = tuple(sorted({unit for unit, _ in found}))
    tasks = tuple(sorted({task for _, task in found}))
    values = np.full((len(units), len(tasks)), np.nan)
    row, column = {unit: i for i, unit in enumerate(units)}, {task: i for i, task in enumerate(tasks)}
    for (unit, task), success in found.items():
        values[row[unit], column[task]] = success
    return Matrices(values=values, units=units, tasks=tasks)


def pair(first: Matrices, second: Matrices) -> Matrix:
    """First minus second where both have a value, over common units and tasks; NaN elsewhere."""
    units = [unit for unit in first.units if unit in second.units]
    tasks = sorted(set(first.tasks) & set(second.tasks))
    return _part(first, units, tasks) - _part(second, units, tasks)


def _part(whole: Matrices, units: Sequence[Unit], tasks: Sequence[str]) -> Matrix:
    rows = [whole.units.index(unit) for unit in units]
    place = {task: i for i, task in enumerate(whole.tasks)}
    part: Matrix = whole.values[np.ix_(rows, [place[task] for task in tasks])]
    return part


def _columns(table: Any) -> dict[str, Column]:
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def _by_cell(table: Any) -> dict[str, dict[str, Column]]:
    """Columns of each cell; rows of a cell lie together (memcon_platform.trajectory.reader)."""
    columns = _columns(table)
    cells = columns.pop("cell").tolist()
    columns["cell"] = np.array(cells, dtype=object)
    starts = [i for i, cell in enumerate(cells) if i == 0 or cells[i - 1] != cell]
    ends = [*starts[1:], len(cells)]
    return {
        cells[start]: {name: column[start:end] for name, column in columns.items()}
        for start, end in zip(starts, ends, strict=True)
    }
