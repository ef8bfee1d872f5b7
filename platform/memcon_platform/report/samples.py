"""Parquet rows of each cell as numpy columns, and the (streams, tasks) matrices that the statistics work on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memcon.errors import DamagedFileError
from memcon_platform.config import Cell
from memcon_platform.report.grouping import table_of
from memcon_platform.trajectory import read_run

__all__ = ["PURPOSES", "SOURCES", "CellSample", "Matrices", "Unit", "common", "load", "matrix", "pair", "quarter_of"]

PURPOSES = ("agent_prompt", "agent_completion", "memory_read", "memory_write", "memory_maintenance", "judge")
SOURCES = ("items", "insights", "plan", "hint")

Column: TypeAlias = NDArray[Any]
Matrix: TypeAlias = NDArray[np.float64]
# What is resampled as one: (seed, stream); (seed, 0) when the streams of a cell share the tasks out.
Unit: TypeAlias = tuple[int, int]

_EPISODES = (
    "section",
    "task_id",
    "benchmark",
    "goal_type",
    "provenance",
    "outcome_class",
    "success",
    "score",
    "num_steps",
    "model_ids",
    "error",
    *(f"tokens_{purpose}" for purpose in PURPOSES),
)
# What `_tasks` reads.
_TASK_COLUMNS = ("stream", "section", "task_id", "benchmark", "goal_type", "success")
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
    def decided(self) -> NDArray[np.int64]:
        """Index of the task of each decision, shape (decisions,)."""
        places = zip(self.episodes["stream"].tolist(), self.episodes["ordinal"].tolist(), strict=True)
        task_at = {place: task for task, place in enumerate(places)}
        asked = zip(self.decisions["stream"].tolist(), self.decisions["ordinal"].tolist(), strict=True)
        return np.array([task_at[place] for place in asked], dtype=np.int64)

    @property
    def injected(self) -> Matrix:
        """Tokens that memory put into the prompts of each task, shape (tasks,)."""
        of_decision = np.sum([self.decisions[f"tokens_{source}"] for source in SOURCES], axis=0)
        found: Matrix = np.bincount(self.decided, weights=of_decision, minlength=self.num_found).astype(np.float64)
        return found

    @property
    def reasons(self) -> dict[str, int]:
        """Why tasks could not be evaluated, one line each, and how many of them."""
        return dict(Counter(" ".join(str(error).split()) for error in self.episodes["error"][~self.evaluated]))

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
    """What the evaluated tasks of a row, or pairs of two rows, came to; NaN where there is none.

    `success`, `injected` and `quarter` are float64 of shape (units, tasks).
    """

    # 0 or 1; in pairs the difference of two.
    success: Matrix
    # Tokens that memory put into the prompts of the task; in pairs the difference of two.
    injected: Matrix
    # Quarter of its stream that the task lies in, 0..3; in pairs NaN where the two rows do not agree.
    quarter: Matrix
    units: tuple[Unit, ...]
    # "section/task id"; family (benchmark) and goal type of each.
    tasks: tuple[str, ...]
    families: tuple[str, ...]
    goal_types: tuple[str, ...]
    # What each unit shares with those that it is not independent of (`memcon_platform.report.grouping.table_of`).
    tables: tuple[str, ...]

    @property
    def num_values(self) -> int:
        """Units and tasks with a value."""
        return int((~np.isnan(self.success)).sum())

    @property
    def clusters(self) -> tuple[int, ...]:
        """`tables` as numbers."""
        places = {name: place for place, name in enumerate(dict.fromkeys(self.tables))}
        return tuple(places[name] for name in self.tables)

    @property
    def last_quarter(self) -> Matrices:
        """What lies in the last quarter."""
        return self.where(self.quarter == 3)

    def where(self, kept: NDArray[np.bool_]) -> Matrices:
        """The values at `kept`, which is broadcast to (units, tasks)."""
        success, injected = np.where(kept, self.success, np.nan), np.where(kept, self.injected, np.nan)
        return replace(self, success=success, injected=injected)


def matrix(samples: Sequence[CellSample]) -> Matrices:
    """The evaluated tasks of `samples`, which differ in the seed."""
    found: dict[tuple[Unit, str], tuple[float, float, float]] = {}
    kinds: dict[str, tuple[str, str]] = {}
    tables: dict[Unit, str] = {}
    for sample in samples:
        for unit, task, kind, values in _tasks(sample):
            found[unit, task] = values
            kinds[task] = kind
            tables.setdefault(unit, table_of(sample.cell, unit[1]))
    units, tasks = tuple(sorted(tables)), tuple(sorted(kinds))
    numbers: Matrix = np.full((3, len(units), len(tasks)), np.nan)
    row, column = {unit: i for i, unit in enumerate(units)}, {task: i for i, task in enumerate(tasks)}
    for (unit, task), three in found.items():
        numbers[:, row[unit], column[task]] = three
    return Matrices(
        success=numbers[0],
        injected=numbers[1],
        quarter=numbers[2],
        units=units,
        tasks=tasks,
        families=tuple(kinds[task][0] for task in tasks),
        goal_types=tuple(kinds[task][1] for task in tasks),
        tables=tuple(tables[unit] for unit in units),
    )


def _tasks(sample: CellSample) -> Iterator[tuple[Unit, str, tuple[str, str], tuple[float, float, float]]]:
    """Unit, task, (family, goal type) and (success, injected tokens, quarter) of each evaluated task."""
    kept, cell = sample.evaluated, sample.cell
    columns = [sample.episodes[name][kept].tolist() for name in _TASK_COLUMNS]
    numbers = [sample.injected[kept].tolist(), quarter_of(sample, sample.episodes)[kept].tolist()]
    for stream, section, task, family, goal_type, success, injected, quarter in zip(*columns, *numbers, strict=True):
        unit = (cell.seed, 0 if cell.split == "partition" else stream)
        values = float(success), float(injected), float(quarter)
        yield unit, f"{section}/{task}", (family, goal_type), values


def pair(first: Matrices, second: Matrices) -> Matrices:
    """First minus second where both have a value, over common units and tasks; NaN elsewhere.

    Units that share a table in either are one repetition.
    """
    units = [unit for unit in first.units if unit in second.units]
    tasks = sorted(set(first.tasks) & set(second.tasks))
    one, other = _part(first, units, tasks), _part(second, units, tasks)
    return replace(
        one,
        success=one.success - other.success,
        injected=one.injected - other.injected,
        quarter=np.where(one.quarter == other.quarter, one.quarter, np.nan),
        tables=_connected(one.tables, other.tables),
    )


def common(rows: Sequence[Matrices]) -> list[Matrices]:
    """Each of `rows` on the units and tasks that all have, with values where all have one."""
    units = [unit for unit in rows[0].units if all(unit in row.units for row in rows)]
    tasks = sorted(set(rows[0].tasks).intersection(*(row.tasks for row in rows)))
    parts = [_part(row, units, tasks) for row in rows]
    everywhere: NDArray[np.bool_] = np.all([~np.isnan(part.success) for part in parts], axis=0)
    return [part.where(everywhere) for part in parts]


def _part(whole: Matrices, units: Sequence[Unit], tasks: Sequence[str]) -> Matrices:
    rows = [whole.units.index(unit) for unit in units]
    place = {task: i for i, task in enumerate(whole.tasks)}
    columns = [place[task] for task in tasks]
    part = np.ix_(rows, columns)
    return Matrices(
        success=whole.success[part],
        injected=whole.injected[part],
        quarter=whole.quarter[part],
        units=tuple(units),
        tasks=tuple(tasks),
        families=tuple(whole.families[i] for i in columns),
        goal_types=tuple(whole.goal_types[i] for i in columns),
        tables=tuple(whole.tables[i] for i in rows),
    )


def _connected(*labelings: Sequence[str]) -> tuple[str, ...]:
    """One label for all units that a chain of equal labels joins."""
    joined = [str(unit) for unit in range(len(labelings[0]))]
    for labels in labelings:
        first: dict[str, int] = {}
        for unit, label in enumerate(labels):
            old, new = joined[unit], joined[first.setdefault(label, unit)]
            joined = [new if name == old else name for name in joined]
    return tuple(joined)


def _columns(table: Any) -> dict[str, Column]:
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def _by_cell(table: Any) -> dict[str, dict[str, Column]]:
    """Columns of each cell; rows of a cell lie together (memcon_platform.trajectory.reader)."""
    columns = _columns(table)
    cells = columns.pop("cell").tolist()
    columns["cell"] = np.array(cells, dtype=object)
    starts = [i for i, cell in enumerate(cells) if i == 0 or cells[i - 1] != cell]
    return {
        cells[start]: {name: column[start:end] for name, column in columns.items()}
        for start, end in pairwise([*starts, len(cells)])
    }
