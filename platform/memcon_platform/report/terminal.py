"""The terminal form: tables whose rows are single lines at 80 columns, and that do not need colour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from memcon_platform.report import wording
from memcon_platform.report.data import GroupResult, ReportData, Section, Yardstick
from memcon_platform.report.grouping import LEARNED, NO_MEMORY

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

__all__ = ["render"]

_PAIRS_MARK = "†"


def render(data: ReportData) -> Group:
    """What `memcon report RUN` prints."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(_head(data), style="bold")]
    for section in data.sections:
        parts += ["", Text(_title(section), style="bold")]
        for table in _tables(section):
            parts += ["", table]
        if note := wording.pairs_note(section):
            parts.append(Text(f"{_PAIRS_MARK} {note}.", style="dim"))
    parts += ["", _listed([*_legend(data), *data.notes])]
    return Group(*parts)


def _head(data: ReportData) -> str:
    done = sum(cell.status == "done" for cell in data.cells)
    found, planned = sum(cell.found for cell in data.cells), sum(cell.planned for cell in data.cells)
    lost = sum(cell.success.unevaluable for cell in data.cells)
    cells = f"{done} of {len(data.cells)} cells done"
    return f"Run {data.run}: {cells}, {found:,} of {planned:,} tasks, {lost} not evaluable"


def _title(section: Section) -> str:
    memory = f", memory {section.memories[0]}" if len(section.memories) == 1 else ""
    return f"{section.title}: {section.provenance} tasks, backbone {section.backbone}{memory}"


def _legend(data: ReportData) -> Iterator[str]:
    yield f"[..]: {wording.interval_method(data)}. Differences: percent points over the same seed, stream and task."
    if any(group.decisions for group in data.groups):
        own = ", those of memory for its own calls" if any(_own_tokens(group) for group in data.groups) else ""
        yield (
            f"Tokens: means a task{own}. Forced: decisions that had to try an arm which is new at their state key. "
            "Keys: state keys that a table has met."
        )


def _listed(sentences: Sequence[str]) -> Table:
    from rich.table import Table

    listed = Table.grid(padding=(0, 1))
    for sentence in sentences:
        listed.add_row("-", sentence)
    return listed


# --- tables -----------------------------------------------------------------------------------------------------------


def _tables(section: Section) -> Iterator[Table]:
    yield _success_table(section)
    yield _cost_table(section)
    if any(_rivals(group) for group in section.groups):
        yield _yardstick_table(section)


def _table(columns: Sequence[str], *, num_text: int = 1, title: str | None = None) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="italic",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for place, column in enumerate(columns):
        # Names wrap between words when they must; numbers never.
        table.add_column(
            column,
            justify="left" if place < num_text else "right",
            no_wrap=place > 0,
            overflow="fold",
            vertical="bottom",
        )
    return table


def _fill(table: Table, section: Section, cells: Callable[[GroupResult], Sequence[str]]) -> Table:
    """One row a group; where there are several memories, each has a heading."""
    above = ""
    for group in section.groups:
        memory = group.labels["memory"]
        if len(section.memories) > 1 and group.role != NO_MEMORY and memory != above:
            table.add_row(memory, style="italic")
            above = memory
        table.add_row(group.name, *cells(group), style="bold" if group.role == LEARNED else "")
    return table


def _success_table(section: Section) -> Table:
    marked = any(wording.few_pairs(group) for group in section.groups)

    def cells(group: GroupResult) -> Sequence[str]:
        tasks = wording.count(group.success.num_tasks)
        if group.found < group.planned:
            tasks += f"/{wording.count(group.planned)}"
        against = wording.difference(group.difference)
        if marked:
            against += _PAIRS_MARK if wording.few_pairs(group) else " "
        return wording.role(group), tasks, wording.success(group.success), against

    columns = ["policy", "role", "tasks", "success %", "vs no memory" + " " * marked]
    return _fill(_table(columns, num_text=2), section, cells)


def _cost_table(section: Section) -> Table:
    # Memories that call a model of their own are few.
    own = any(_own_tokens(group) for group in section.groups)

    def cells(group: GroupResult) -> Sequence[str]:
        purposes, did = group.tokens.by_purpose, group.decisions
        return (
            wording.percent(group.last_quarter.rate),
            wording.count(purposes.get("agent_prompt")),
            wording.count(group.tokens.injected if purposes else None),
            *([wording.count(_own_tokens(group))] if own else []),
            wording.count(did.per_task, 2) if did else "-",
            wording.percent(did.forced_share) if did else "-",
            wording.count(did.keys_visited, 1) if did else "-",
        )

    # Eight columns fit 80 characters under short heads only.
    columns = ["policy", "last\n1/4 %" if own else "% in last\nquarter", "prompt\ntokens", "injected\ntokens"]
    columns += ["memory\ntokens"] if own else []
    columns += ["dec. a\ntask" if own else "decisions\na task", "forced\n%", "keys a\ntable"]
    return _fill(_table(columns), section, cells)


def _own_tokens(group: GroupResult) -> float:
    purposes = group.tokens.by_purpose
    return purposes.get("memory_read", 0.0) + purposes.get("memory_write", 0.0)


def _rivals(group: GroupResult) -> tuple[Yardstick, ...]:
    # No memory stands in the first table.
    return tuple(yard for yard in group.yardsticks if yard.kind != "no memory")


def _yardstick_table(section: Section) -> Table:
    learned = [group for group in section.groups if _rivals(group)]
    kinds = list(dict.fromkeys(yard.kind for group in learned for yard in _rivals(group)))
    marked = any(wording.few_pairs(group) for group in learned)
    columns = ["learned policy", *(f"vs {kind}{' ' * marked}" for kind in kinds)]
    table = _table(columns, title="reported, not arranged")
    for group in learned:
        found = {yard.kind: yard.difference for yard in _rivals(group)}
        mark = (_PAIRS_MARK if wording.few_pairs(group) else " ") if marked else ""
        table.add_row(section.name(group), *(wording.difference(found.get(kind)) + mark for kind in kinds))
    return table
