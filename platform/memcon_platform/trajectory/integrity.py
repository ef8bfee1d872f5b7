"""check: does a run's Parquet hold every task once and whole? For `memcon data check`; it changes nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memcon.errors import DamagedFileError, SchemaVersionError
from memcon_platform.config import Cell, read_plan
from memcon_platform.trajectory.blocks import Block, blocks_of, leftovers
from memcon_platform.trajectory.reader import read_file
from memcon_platform.trajectory.schemas import ALL_TABLES, BLOCK_TASKS, TABLES

__all__ = ["CheckReport", "check"]

# What the check reads of each table.
_COLUMNS = {
    "episodes": ("outcome_class", "num_steps", "num_trials"),
    "steps": ("index", "kind"),
    "decisions": ("position",),
    "trials": ("action_id",),
}
_NUMBER = {"steps": "index", "decisions": "position"}


@dataclass(slots=True, kw_only=True)
class CheckReport:
    """What the check found."""

    run: str
    planned: int = 0
    found: int = 0
    # Each makes the tables untrustworthy.
    problems: list[str] = field(default_factory=list)
    # Worth knowing, not wrong: streams that are not finished, leftovers of killed writers.
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """No problem was found."""
        return not self.problems


def check(run_dir: Path) -> CheckReport:
    """Look for damaged and missing files, gaps and doubles of ordinals, and holes in what is stored of a task.

    Raises:
        NotFoundError: no run folder, or no plan in it.
        DamagedFileError, SchemaVersionError: the plan itself cannot be read.
    """
    plan = read_plan(run_dir)
    report = CheckReport(run=plan.run, planned=sum(cell.num_tasks for cell in plan.cells))
    cells = {cell.cell_id: cell for cell in plan.cells}
    every = sorted({block for table in ALL_TABLES for block in blocks_of(run_dir, table)})
    ordinals: dict[tuple[str, int], list[int]] = defaultdict(list)
    for block in every:
        if block.cell not in cells:
            report.problems.append(f"{block.path(run_dir, 'episodes').parent}: this cell is not in plan.json")
            continue
        ordinals[block.cell, block.stream] += _check_block(run_dir, block, report)
    for cell in plan.cells:
        for stream in range(len(cell.stream_tasks)):
            _check_stream(cell, stream, ordinals.pop((cell.cell_id, stream), []), report)
    for cell_id, stream in sorted(ordinals):
        report.problems.append(f"cell {cell_id}: stream {stream} is not in plan.json")
    report.notes += [f"{path}: left by a killed writer, ignored" for path in leftovers(run_dir)]
    return report


def _check_block(run_dir: Path, block: Block, report: CheckReport) -> list[int]:
    tables = _read_block(run_dir, block, report)
    if "episodes" not in tables:
        return []
    where = f"cell {block.cell}, stream {block.stream}"
    found: list[int] = tables["episodes"]["ordinal"].to_pylist()
    low, high = block.block * BLOCK_TASKS, (block.block + 1) * BLOCK_TASKS
    if outside := [ordinal for ordinal in found if not low <= ordinal < high]:
        report.problems.append(
            f"{where}: ordinal {outside[0]} does not belong to block {block.block} ({low}..{high - 1})"
        )
    for table, number in _NUMBER.items():
        if table in tables:
            _check_numbers(f"{where}: {table}", tables[table], number, report)
    if "steps" in tables:
        _check_steps(where, tables, report)
    if "trials" in tables or not block.path(run_dir, "trials").exists():
        _check_trials(where, tables, report)
    return found


def _read_block(run_dir: Path, block: Block, report: CheckReport) -> dict[str, Any]:
    """The block's tables, as far as they can be read; a block without trials has no file of them."""
    tables: dict[str, Any] = {}
    for table in ALL_TABLES:
        path = block.path(run_dir, table)
        if table not in TABLES and not path.exists():
            continue
        try:
            tables[table] = read_file(path, table, _COLUMNS[table])
        except (DamagedFileError, SchemaVersionError) as error:
            report.problems.append(str(error))
    return tables


def _check_numbers(where: str, rows: Any, number: str, report: CheckReport) -> None:
    """Numbers of each task run 0, 1, 2, ..."""
    of_task: dict[int, list[int]] = defaultdict(list)
    for ordinal, value in zip(rows["ordinal"].to_pylist(), rows[number].to_pylist(), strict=True):
        of_task[ordinal].append(value)
    for ordinal, values in of_task.items():
        if sorted(values) != list(range(len(values))):
            report.problems.append(f"{where} of ordinal {ordinal} are not numbered 0..{len(values) - 1}")


def _check_steps(where: str, tables: dict[str, Any], report: CheckReport) -> None:
    """An evaluated task has as many action rows as it says it took steps."""
    steps = zip(tables["steps"]["ordinal"].to_pylist(), tables["steps"]["kind"].to_pylist(), strict=True)
    actions = Counter(ordinal for ordinal, kind in steps if kind == "action")
    columns = ("ordinal", "outcome_class", "num_steps")
    for ordinal, outcome, num_steps in zip(*(tables["episodes"][name].to_pylist() for name in columns), strict=True):
        if outcome != "unevaluable" and actions[ordinal] != num_steps:
            report.problems.append(f"{where}: ordinal {ordinal} took {num_steps} steps, {actions[ordinal]} are stored")


def _check_trials(where: str, tables: dict[str, Any], report: CheckReport) -> None:
    """A task has as many trials as it says, each of another arm."""
    arms: dict[int, list[str]] = defaultdict(list)
    if "trials" in tables:
        rows = zip(tables["trials"]["ordinal"].to_pylist(), tables["trials"]["action_id"].to_pylist(), strict=True)
        for ordinal, action_id in rows:
            arms[ordinal].append(action_id)
    columns = ("ordinal", "num_trials")
    for ordinal, said in zip(*(tables["episodes"][name].to_pylist() for name in columns), strict=True):
        found = arms[ordinal]
        if len(found) != said:
            report.problems.append(f"{where}: ordinal {ordinal} has {said} trials, {len(found)} are stored")
        elif len(set(found)) < said:
            report.problems.append(f"{where}: ordinal {ordinal} has two trials of one arm")


def _check_stream(cell: Cell, stream: int, ordinals: list[int], report: CheckReport) -> None:
    planned = cell.stream_tasks[stream]
    where = f"cell {cell.cell_id}, stream {stream}"
    counts = Counter(ordinals)
    report.found += len(counts)
    if doubled := sorted(ordinal for ordinal, count in counts.items() if count > 1):
        report.problems.append(f"{where}: ordinals stored more than once: {_listed(doubled)}")
    if beyond := sorted(ordinal for ordinal in counts if ordinal >= planned):
        report.problems.append(f"{where}: ordinals beyond the {planned} planned tasks: {_listed(beyond)}")
    if gaps := [ordinal for ordinal in range(max(counts, default=-1)) if ordinal not in counts]:
        report.problems.append(f"{where}: ordinals missing inside the stream: {_listed(gaps)}")
    if len(counts) < planned:
        report.notes.append(f"{where}: {len(counts)} of {planned} tasks; the same `memcon sweep` command continues")


def _listed(ordinals: list[int], limit: int = 10) -> str:
    shown = ", ".join(str(ordinal) for ordinal in ordinals[:limit])
    return shown + (f" and {len(ordinals) - limit} more" if len(ordinals) > limit else "")
