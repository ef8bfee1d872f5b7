"""The terminal form: tables that fit 100 columns and do not need colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memcon_platform.report import wording
from memcon_platform.report.data import GroupResult, ReportData
from memcon_platform.report.grouping import LEARNED, STATIC_ARM

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

__all__ = ["render"]


def render(data: ReportData) -> Group:
    """What `memcon report RUN` prints."""
    from rich.console import Group, RenderableType
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = [Text(_head(data), style="bold")]
    for benchmark in data.benchmarks:
        groups = data.of(benchmark)
        parts += [Padding(table, (1, 0, 0, 0)) for table in _tables(benchmark, groups)]
    parts.append(Text(f"\n{_legend(data)}"))
    parts += [Text(f"\nNote: {note}") for note in data.notes]
    return Group(*parts)


def _head(data: ReportData) -> str:
    done = sum(cell.status == "done" for cell in data.cells)
    found, planned = sum(cell.found for cell in data.cells), sum(cell.planned for cell in data.cells)
    lost = sum(cell.success.unevaluable for cell in data.cells)
    cells = f"{done} of {len(data.cells)} cells done"
    return f"Run {data.run}: {cells}, {found:,} of {planned:,} tasks, {lost} not evaluable"


def _legend(data: ReportData) -> str:
    return (
        f"[..] = {100 * data.level:.0f} % interval, two-way bootstrap over streams and tasks, {data.resamples} "
        "resamples. Differences: percent points over pairs of the same seed, stream and task. "
        "Tokens: means per task."
    )


def _tables(benchmark: str, groups: Sequence[GroupResult]) -> Iterator[Table]:
    yield _success_table(benchmark, groups)
    if any(group.yardsticks for group in groups):
        yield _yardstick_table(benchmark, groups)
    yield _cost_table(benchmark, groups)


def _table(title: str, columns: Sequence[str], *, num_text: int = 1) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False)
    for place, column in enumerate(columns):
        if place < num_text:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right", no_wrap=True)
    return table


def _success_table(benchmark: str, groups: Sequence[GroupResult]) -> Table:
    origin = ", ".join(sorted({group.provenance for group in groups if group.provenance}))
    backbone = ", ".join(dict.fromkeys(group.labels["backbone"] for group in groups))
    title = f"{benchmark}: success % ({origin or 'no'} tasks, backbone {backbone})"
    table = _table(title, ["memory, policy", "tasks", "success %", "vs no memory", "last 1/4"])
    for group in groups:
        tasks = wording.count(group.success.num_tasks)
        if group.found < group.planned:
            tasks += f"/{wording.count(group.planned)}"
        against = wording.difference(group.difference)
        table.add_row(
            _name(group), tasks, wording.success(group.success), against, wording.percent(group.last_quarter.rate)
        )
    return table


def _yardstick_table(benchmark: str, groups: Sequence[GroupResult]) -> Table:
    title = f"{benchmark}: learned policies beside their yardsticks (reported, not arranged)"
    table = _table(title, ["learned policy", "yardstick", "its %", "pairs", "learned - it"], num_text=2)
    for group in groups:
        for yard in group.yardsticks:
            kind = f"{yard.kind}: {yard.label}" if yard.kind != "no memory" else yard.kind
            pairs = wording.count(yard.difference.num_pairs if yard.difference else 0)
            table.add_row(group.label, kind, wording.percent(yard.rate), pairs, wording.difference(yard.difference))
    return table


def _cost_table(benchmark: str, groups: Sequence[GroupResult]) -> Table:
    title = f"{benchmark}: tokens a task, and what the policy did"
    columns = ["memory, policy", "prompt", "injected", "memory", "dec./task", "forced %", "keys/table"]
    table = _table(title, columns)
    for group in groups:
        purposes, did = group.tokens.by_purpose, group.decisions
        own = purposes.get("memory_read", 0.0) + purposes.get("memory_write", 0.0)
        table.add_row(
            group.label,
            wording.count(purposes.get("agent_prompt")),
            wording.count(group.tokens.injected if purposes else None),
            wording.count(own if purposes else None),
            wording.count(did.per_task, 2) if did else "-",
            wording.percent(did.forced_share) if did else "-",
            wording.count(did.keys_visited, 1) if did else "-",
        )
    return table


def _name(group: GroupResult) -> str:
    if group.mark:
        return f"{group.label} = {group.mark}"
    if group.role == LEARNED:
        return f"{group.label} = learned"
    return group.label if group.role == STATIC_ARM else f"{group.label} = {group.role}"
