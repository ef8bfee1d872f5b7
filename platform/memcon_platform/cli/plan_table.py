"""The plan of a sweep as a table: one row for the cells that differ in their seed alone, what all share said once."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from memcon_platform.config import CellSummary, PlanSummary

__all__ = ["ranges", "render"]


def render(summary: PlanSummary) -> Group:
    """The table of `summary`, for a terminal."""
    axes = list(summary.cells[0].axes)
    same = [axis for axis in axes if len({cell.axes[axis] for cell in summary.cells}) == 1]
    columns = [axis for axis in axes if axis not in same]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in (*columns, "seeds", "streams"):
        table.add_column(name, overflow="fold")
    for name in ("tasks", "decisions"):
        table.add_column(name, justify="right")
    for cells in _rows(summary.cells):
        first = cells[0]
        counts = (sum(cell.tasks for cell in cells), sum(cell.decisions for cell in cells))
        texts = [first.axes[axis] for axis in columns]
        texts += [ranges([cell.seed for cell in cells]), _streams(first)]
        # As text: a label in brackets is no markup.
        table.add_row(*map(Text, texts), *(str(count) for count in counts))
    shared = "; ".join(f"{axis} {summary.cells[0].axes[axis]}" for axis in same)
    head = Text(f"run {summary.run}", "bold") + Text(f"\nin all cells: {shared}\n" if same else "\n")
    return Group(head, table, Text())


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in short, such as "0-4, 7"."""
    ordered = sorted(numbers)
    starts = [n for i, n in enumerate(ordered) if i == 0 or ordered[i - 1] != n - 1]
    ends = [n for i, n in enumerate(ordered) if i == len(ordered) - 1 or ordered[i + 1] != n + 1]
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in zip(starts, ends, strict=True))


def _rows(cells: Sequence[CellSummary]) -> list[list[CellSummary]]:
    """Cells by all that is told of them but their seed, in the order of the plan."""
    rows: dict[tuple[object, ...], list[CellSummary]] = {}
    for cell in cells:
        rows.setdefault((*cell.axes.values(), cell.split, cell.table_scope, cell.stream_tasks), []).append(cell)
    return list(rows.values())


def _streams(cell: CellSummary) -> str:
    """Streams of each cell of a row, and how they share tasks and tables."""
    count = len(cell.stream_tasks)
    if count == 1:
        return "1"
    parts = "" if cell.split == "replicate" else " parts"
    return f"{count}{parts}, " + ("1 table" if cell.table_scope == "cell" else f"{count} tables")
