"""build: a run folder to `ReportData`. Joins plan, samples, statistics and served tables; draws nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memcon_platform.config import Cell, read_record
from memcon_platform.config.plan import PLUGIN_AXES
from memcon_platform.report import protocol
from memcon_platform.report.contexts import context_levels
from memcon_platform.report.data import CellResult, GroupResult, ReportData
from memcon_platform.report.disclosures import disclosures
from memcon_platform.report.families import gains
from memcon_platform.report.grouping import LEARNED, PlannedGroup, group, is_exact, is_outcome_matrix, table_of
from memcon_platform.report.measures import HeatMap
from memcon_platform.report.models import mixtures, reported_ids
from memcon_platform.report.notes import notes
from memcon_platform.report.oracle import headroom, oracle, static_blocks
from memcon_platform.report.rows import Row, difference, success_of
from memcon_platform.report.samples import CellSample, load, matrix
from memcon_platform.report.served import ServedTables, read_served
from memcon_platform.report.statistics import LEVEL, RESAMPLES
from memcon_platform.report.summaries import curve, decisions, mean_of, success_by, tokens
from memcon_platform.report.yardsticks import Block, beside_reference, marks, no_memory, yardsticks

__all__ = ["build"]

# How a cell of an outcome matrix is named where others name their row.
OUTCOME_MATRIX = "outcome matrix"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What all rows are made from."""

    rows: Sequence[Row]
    # Static arms with the oracle that chooses between them.
    blocks: Sequence[Block]
    samples: Mapping[str, CellSample]
    served: ServedTables
    # Label of the policy that every row is compared with.
    reference: str | None


def build(run_dir: Path) -> ReportData:
    """The report of a finished or unfinished run, from plan.json, Parquet and the served tables alone.

    Raises:
        NotFoundError: no run folder, no plan, or no finished task yet.
        DamagedFileError: plan.json or a Parquet file is broken; names it.
        SchemaVersionError: a file of another schema version.
    """
    record = read_record(run_dir)
    plan = record.plan
    samples = load(run_dir, plan.cells)
    rows = [_row(planned, samples) for planned in group([cell for cell in plan.cells if not is_outcome_matrix(cell)])]
    blocks = [(block, oracle(block)) for block in static_blocks(rows)]
    reference = plan.settings.study.reference
    run = _Run(rows=rows, blocks=blocks, samples=samples, served=read_served(run_dir), reference=reference)
    marked = marks(blocks)
    groups = [replace(_group(row, run), mark=marked.get(row.planned.first.cell_id, "")) for row in rows]
    label_of = {cell.cell_id: row.planned.label for row in rows for cell in row.planned.cells}
    cells = tuple(_cell(samples[cell.cell_id], label_of.get(cell.cell_id, OUTCOME_MATRIX)) for cell in plan.cells)
    return ReportData(
        run=plan.run,
        created_at=record.created_at,
        provenance=record.provenance,
        groups=tuple(groups),
        cells=cells,
        backbones=_backbones(plan.cells),
        resamples=RESAMPLES,
        level=LEVEL,
        disclosures=(
            *disclosures(plan.cells, {family for group in groups for family in group.by_family}),
            *mixtures(cells),
        ),
        notes=notes(record, cells, groups),
        headrooms=tuple(headroom(block, found) for block, found in blocks),
    )


def _row(planned: PlannedGroup, samples: Mapping[str, CellSample]) -> Row:
    members = tuple(samples[cell.cell_id] for cell in planned.cells)
    return Row(planned=planned, samples=members, matrices=matrix(members))


# --- rows ------------------------------------------------------------------------------------------------------------


def _group(row: Row, run: _Run) -> GroupResult:
    planned, samples = row.planned, row.samples
    empty = None if planned.is_no_memory else no_memory(row, run.rows)
    found = GroupResult(
        labels={axis: planned.first.entry(axis).label for axis in PLUGIN_AXES},
        name=planned.name,
        label=planned.label,
        role=planned.role,
        mark="",
        seeds=tuple(sorted({cell.seed for cell in planned.cells})),
        num_streams=sum(cell.streams for cell in planned.cells),
        num_tables=len({table_of(cell, stream) for cell in planned.cells for stream in range(cell.streams)}),
        exact=all(is_exact(cell) for cell in planned.cells),
        planned=sum(cell.num_tasks for cell in planned.cells),
        found=sum(sample.num_found for sample in samples),
        success=success_of(row.matrices, unevaluable=sum(int((~sample.evaluated).sum()) for sample in samples)),
        mean_score=mean_of(samples, "score"),
        mean_steps=mean_of(samples, "num_steps"),
        last_quarter=success_of(row.matrices.last_quarter),
        quarters=curve(samples, 4),
        curve=curve(samples, _num_windows(planned.cells)),
        difference=difference(row, empty) if empty else None,
        yardsticks=beside_reference(row, run.rows, run.reference),
        tokens=tokens(samples),
        decisions=decisions(samples, _goal_types(row, run.rows)),
        by_goal_type=success_by(samples, "goal_type"),
        cell_ids=tuple(cell.cell_id for cell in planned.cells),
        provenance=_provenance(samples),
        tags=protocol.tags(planned),
        origins=protocol.origins(planned),
        by_family=success_by(samples, "benchmark"),
        by_section=success_by(samples, "section"),
    )
    return _learned(found, row, run) if planned.role == LEARNED and row.has_tasks else found


def _learned(found: GroupResult, row: Row, run: _Run) -> GroupResult:
    """`found` with what is told of a learned row only."""
    beside, missing = yardsticks(row, run.rows, run.blocks)
    return replace(
        found,
        yardsticks=(*beside, *found.yardsticks),
        missing_yardsticks=missing,
        gains=gains(row, run.rows),
        contexts=context_levels(_sharing(row, run)),
        heat_map=_heat_map(row, run.served),
    )


def _sharing(row: Row, run: _Run) -> list[CellSample]:
    """Samples of all cells that learn in the tables of `row`."""
    names = {cell.table_scope for cell in row.planned.cells} - {"cell", "stream"}
    others = [
        sample
        for other in run.rows
        if other is not row and other.planned.role == LEARNED
        for sample in other.samples
        if sample.cell.table_scope in names
    ]
    return [*row.samples, *others]


def _heat_map(row: Row, served: ServedTables) -> HeatMap:
    seeds: dict[str, int] = {}
    for sample in row.samples:
        for table in sorted(set(sample.decisions["table"].tolist())):
            seeds[table] = min(seeds.get(table, sample.cell.seed), sample.cell.seed)
    return served.heat_map(seeds)


def _num_windows(cells: Sequence[Cell]) -> int:
    # At least eight tasks a window, at most ten windows.
    return max(1, min(10, min(min(cell.stream_tasks, default=0) for cell in cells) // 8))


def _goal_types(row: Row, rows: Sequence[Row]) -> dict[str, int]:
    """Goal types and families that the row's benchmark has shown, over all its cells."""
    benchmark = row.planned.first.benchmark.label
    same = [sample for other in rows if other.planned.first.benchmark.label == benchmark for sample in other.samples]
    return {
        column: len({value for sample in same for value in sample.episodes[column].tolist()})
        for column in ("goal_type", "benchmark")
    }


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
        success=success_of(matrix([sample]), unevaluable=int((~sample.evaluated).sum())),
        mean_score=mean_of([sample], "score"),
        tokens=tokens([sample]),
        provenance=_provenance([sample]),
        exact=is_exact(cell),
        model_ids=reported_ids(sample),
        reasons=sample.reasons,
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
