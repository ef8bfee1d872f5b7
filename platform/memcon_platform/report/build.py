"""build: a run folder to `ReportData`. Joins plan, samples and statistics; draws nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from memcon_platform.config import Cell, read_record
from memcon_platform.config.plan import PLUGIN_AXES
from memcon_platform.report import wording
from memcon_platform.report.data import (
    CellResult,
    GroupResult,
    PairedDifference,
    ReportData,
    Success,
    Yardstick,
)
from memcon_platform.report.grouping import (
    LEARNED,
    NO_MEMORY,
    RANDOM_ARM,
    STATIC_ARM,
    PlannedGroup,
    group,
    is_exact,
)
from memcon_platform.report.samples import CellSample, Matrices, load, matrix, pair, quarter_of
from memcon_platform.report.statistics import LEVEL, RESAMPLES, mean_interval, success_interval, these_seeds_interval
from memcon_platform.report.summaries import by_goal_type, curve, decisions, mean_of, tokens

__all__ = ["build"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A group with its data."""

    planned: PlannedGroup
    samples: tuple[CellSample, ...]
    matrices: Matrices


def build(run_dir: Path) -> ReportData:
    """The report of a finished or unfinished run, from plan.json and Parquet alone.

    Raises:
        NotFoundError: no run folder, no plan, or no finished task yet.
        DamagedFileError: plan.json or a Parquet file is broken; names it.
        SchemaVersionError: a file of another schema version.
    """
    record = read_record(run_dir)
    plan = record.plan
    samples = load(run_dir, plan.cells)
    rows = []
    for planned in group(plan.cells):
        members = tuple(samples[cell.cell_id] for cell in planned.cells)
        rows.append(_Row(planned=planned, samples=members, matrices=matrix(members)))
    goal_types = _goal_types(rows)
    groups = [_group(row, rows, goal_types[row.planned.first.benchmark.label]) for row in rows]
    groups = _marked(groups, rows)
    label_of = {cell.cell_id: row.planned.label for row in rows for cell in row.planned.cells}
    cells = tuple(_cell(samples[cell.cell_id], label_of[cell.cell_id]) for cell in plan.cells)
    return ReportData(
        run=plan.run,
        created_at=record.created_at,
        provenance=record.provenance,
        groups=tuple(groups),
        cells=cells,
        backbones=_backbones(plan.cells),
        resamples=RESAMPLES,
        level=LEVEL,
        notes=wording.notes(record, cells, groups),
    )


# --- success ---------------------------------------------------------------------------------------------------------


def _success(matrices: Matrices, samples: Sequence[CellSample]) -> Success:
    values = matrices.values[~np.isnan(matrices.values)]
    return Success(
        num_tasks=values.size,
        successes=int(values.sum()),
        unevaluable=sum(int((~sample.evaluated).sum()) for sample in samples),
        interval=success_interval(matrices.values),
    )


def _last_quarter(samples: Sequence[CellSample]) -> Success:
    found = matrix(samples, lambda sample: sample.evaluated & (quarter_of(sample, sample.episodes) == 3))
    return replace(_success(found, samples), unevaluable=0)


def _difference(row: _Row, other: _Row) -> PairedDifference | None:
    """Success of `row` minus `other` on the same (seed, stream, task)."""
    differences = pair(row.matrices, other.matrices)
    interval, these_seeds = mean_interval(differences), these_seeds_interval(differences)
    if interval is None or these_seeds is None:
        return None
    return PairedDifference(
        mean=float(np.nanmean(differences)),
        interval_these_seeds=these_seeds,
        interval=interval,
        num_pairs=int((~np.isnan(differences)).sum()),
        num_streams=int((~np.isnan(differences)).any(axis=1).sum()),
    )


# --- rows ------------------------------------------------------------------------------------------------------------


def _group(row: _Row, rows: Sequence[_Row], num_goal_types: int) -> GroupResult:
    planned, samples = row.planned, row.samples
    nothing = [other for other in _rivals(row, rows) if other.planned.role == NO_MEMORY]
    return GroupResult(
        labels={axis: planned.first.entry(axis).label for axis in PLUGIN_AXES},
        name=planned.name,
        label=planned.label,
        role=planned.role,
        mark="",
        seeds=tuple(sorted({cell.seed for cell in planned.cells})),
        num_streams=sum(cell.streams for cell in planned.cells),
        exact=all(is_exact(cell) for cell in planned.cells),
        planned=sum(cell.num_tasks for cell in planned.cells),
        found=sum(sample.num_found for sample in samples),
        success=_success(row.matrices, samples),
        mean_score=mean_of(samples, "score"),
        mean_steps=mean_of(samples, "num_steps"),
        last_quarter=_last_quarter(samples),
        quarters=curve(samples, 4),
        curve=curve(samples, _num_windows(planned.cells)),
        difference=_difference(row, nothing[0]) if nothing and planned.role != NO_MEMORY else None,
        yardsticks=_yardsticks(row, rows) if _has_tasks(row, LEARNED) else (),
        tokens=tokens(samples),
        decisions=decisions(samples, num_goal_types),
        by_goal_type=by_goal_type(samples),
        cell_ids=tuple(cell.cell_id for cell in planned.cells),
        provenance=_provenance(samples),
    )


def _num_windows(cells: Sequence[Cell]) -> int:
    # At least eight tasks a window, at most ten windows.
    return max(1, min(10, min(min(cell.stream_tasks, default=0) for cell in cells) // 8))


def _rivals(row: _Row, rows: Sequence[_Row]) -> list[_Row]:
    """Other rows that may stand beside `row`, those with the same shape of streams first."""
    rivals = [other for other in rows if other is not row and other.planned.arena == row.planned.arena]
    return sorted(rivals, key=lambda other: other.planned.first.streams != row.planned.first.streams)


def _best_static(rivals: Sequence[_Row]) -> list[_Row]:
    """Static arms with the highest success rate: all of them when they tie exactly (RP-3)."""
    static = [(row, np.nanmean(row.matrices.values)) for row in _static(rivals)]
    best = max((rate for _, rate in static), default=None)
    return [row for row, rate in static if rate == best]


def _static(rows: Sequence[_Row]) -> list[_Row]:
    return [row for row in rows if _has_tasks(row, STATIC_ARM)]


def _best_word(rows: Sequence[_Row]) -> str:
    # Where one static arm ran, "best" would claim a comparison that was not made.
    return "best static arm" if len(_static(rows)) > 1 else "only static arm"


def _has_tasks(row: _Row, role: str) -> bool:
    return row.planned.role == role and row.matrices.values.size > 0


def _yardsticks(row: _Row, rows: Sequence[_Row]) -> tuple[Yardstick, ...]:
    rivals = _rivals(row, rows)
    memory = row.planned.first.memory.label
    same_memory = [other for other in rivals if other.planned.first.memory.label == memory]
    shape = [other for other in same_memory if other.planned.first.streams == row.planned.first.streams]
    static = shape if _static(shape) else same_memory
    found = [(_best_word(static), other) for other in _best_static(static)[:1]]
    found += [("random arm", other) for other in same_memory if _has_tasks(other, RANDOM_ARM)][:1]
    found += [("no memory", other) for other in rivals if _has_tasks(other, NO_MEMORY)][:1]
    return tuple(
        Yardstick(
            kind=kind,
            name=other.planned.name,
            label=other.planned.label,
            rate=_success(other.matrices, ()).rate,
            difference=_difference(row, other),
        )
        for kind, other in found
    )


def _marked(groups: Sequence[GroupResult], rows: Sequence[_Row]) -> list[GroupResult]:
    """Rows with the mark of the best static arm of their arena, memory and shape of streams."""
    blocks: dict[tuple[object, ...], list[_Row]] = {}
    for row in rows:
        block = (row.planned.arena, row.planned.first.memory.label, row.planned.first.streams)
        blocks.setdefault(block, []).append(row)
    marks: dict[str, str] = {}
    for block_rows in blocks.values():
        best = _best_static(block_rows)
        mark = _best_word(block_rows) + (" (tie)" if len(best) > 1 else "")
        marks |= {row.planned.first.cell_id: mark for row in best}
    return [replace(result, mark=marks.get(result.cell_ids[0], "")) for result in groups]


# --- cells -----------------------------------------------------------------------------------------------------------


def _cell(sample: CellSample, label: str) -> CellResult:
    cell = sample.cell
    status = "pending" if not sample.num_found else "done" if sample.num_found >= cell.num_tasks else "partial"
    return CellResult(
        cell_id=cell.cell_id,
        labels={axis: cell.entry(axis).label for axis in PLUGIN_AXES},
        group=label,
        seed=cell.seed,
        streams=cell.streams,
        status=status,
        planned=cell.num_tasks,
        found=sample.num_found,
        success=_success(matrix([sample]), [sample]),
        mean_score=mean_of([sample], "score"),
        tokens=tokens([sample]),
        provenance=_provenance([sample]),
        exact=is_exact(cell),
    )


def _backbones(cells: Sequence[Cell]) -> dict[str, tuple[Mapping[str, Any], ...]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        known, settings = found.setdefault(cell.backbone.label, []), cell.settings.get("backbone", {})
        if settings not in known:
            known.append(settings)
    return {label: tuple(known) for label, known in found.items()}


def _provenance(samples: Sequence[CellSample]) -> str:
    return ", ".join(sorted({text for sample in samples for text in sample.episodes["provenance"].tolist()}))


def _goal_types(rows: Sequence[_Row]) -> dict[str, int]:
    """Goal types seen in each benchmark, over all its cells."""
    seen: dict[str, set[str]] = {}
    for row in rows:
        types = seen.setdefault(row.planned.first.benchmark.label, set())
        for sample in row.samples:
            types.update(sample.episodes["goal_type"].tolist())
    return {benchmark: len(types) for benchmark, types in seen.items()}
