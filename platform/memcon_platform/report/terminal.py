"""The terminal form: tables whose rows are single lines at 80 columns, and that do not need colour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from memcon_platform.report import wording
from memcon_platform.report.comparisons import Comparison, comparisons
from memcon_platform.report.data import GroupResult, ReportData, Section
from memcon_platform.report.grouping import LEARNED, NO_MEMORY
from memcon_platform.report.measures import PairedDifference
from memcon_platform.report.terminal_learning import learning
from memcon_platform.report.terminal_table import make_table

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

__all__ = ["render"]

_LAST_QUARTER = "  last quarter"


def render(data: ReportData) -> Group:
    """What `memcon report RUN` prints."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(_head(data), style="bold")]
    for section in data.sections:
        parts += ["", Text(_title(section), style="bold")]
        for table in _tables(section):
            parts += ["", table]
    parts += ["", _listed([*_interval_notes(data), *_cost_notes(data), *data.notes])]
    return Group(*parts)


def _head(data: ReportData) -> str:
    done = sum(cell.status == "done" for cell in data.cells)
    found, planned = sum(cell.found for cell in data.cells), sum(cell.planned for cell in data.cells)
    lost = sum(cell.success.unevaluable for cell in data.cells)
    cells = f"{done} of {len(data.cells)} cells done"
    return f"Run {data.run}: {cells}, {found:,} of {planned:,} tasks, {lost} not evaluable"


def _title(section: Section) -> str:
    memory = f", memory {section.memories[0]}" if len(section.memories) == 1 else ""
    shape = f", {section.shape} a seed" if section.shape else ""
    return f"{section.title}: {section.provenance} tasks, backbone {section.backbone}{memory}{shape}"


def _interval_notes(data: ReportData) -> Iterator[str]:
    compared = [one for section in data.sections for one in comparisons(section)]
    rest = "Other seeds too, and success" if compared else "Success"
    these = f"These seeds: for {wording.THESE_SEEDS}. " if compared else ""
    yield f"[..]: {wording.interval_method(data)}. {these}{rest}: for {wording.OTHER_SEEDS}."
    yield from (f"{note}." for note in wording.footnotes(compared))


def _cost_notes(data: ReportData) -> Iterator[str]:
    if any(group.decisions for group in data.groups):
        own = ", those of memory for its own calls" if any(_own_tokens(group) for group in data.groups) else ""
        yield (
            f"Tokens: means a task{own}; injected by memory; in differences, injected ones. Forced: decisions that had "
            "to try an arm which is new at their state key. Keys: state keys that a table has met."
        )


def _listed(sentences: Sequence[str]) -> Table:
    from rich.table import Table

    listed = Table.grid(padding=(0, 1))
    listed.add_column()
    listed.add_column(overflow="fold")
    for sentence in sentences:
        listed.add_row("-", sentence)
    return listed


# --- tables -----------------------------------------------------------------------------------------------------------


def _tables(section: Section) -> Iterator[RenderableType]:
    from rich.text import Text

    for found in section.headrooms:
        yield Text(f"{wording.of_memory(section, found)}{wording.headroom(found)} {wording.choices(found)}".rstrip())
    yield _success_table(section)
    if compared := comparisons(section):
        yield _difference_table(section, compared)
    yield _cost_table(section)
    yield from learning(section)


def _fill(table: Table, section: Section, rows: Callable[[GroupResult], Sequence[Sequence[str]]]) -> Table:
    """The rows of each group; where there are several memories, each has a heading."""
    above = ""
    for group in section.groups:
        memory = group.labels["memory"]
        if len(section.memories) > 1 and group.role != NO_MEMORY and memory != above:
            table.add_row(memory, style="italic")
            above = memory
        for cells in rows(group):
            table.add_row(*cells, style="bold" if group.role == LEARNED else "")
    return table


def _success_table(section: Section) -> Table:
    def rows(group: GroupResult) -> Sequence[Sequence[str]]:
        tasks = wording.count(group.success.num_tasks)
        if group.found < group.planned:
            tasks += f"/{wording.count(group.planned)}"
        rates = wording.success(group.success), wording.percent(group.last_quarter.rate)
        injected = wording.count(group.tokens.injected if group.tokens.by_purpose else None)
        return [(section.short(group.name), wording.role(group), tasks, *rates, injected)]

    columns = ["policy", "role", "tasks", "success %", "last\nquarter", "injected\ntokens"]
    return _fill(make_table(columns, num_text=2), section, rows)


def _cost_table(section: Section) -> Table:
    # Memories that call a model of their own are few.
    own = any(_own_tokens(group) for group in section.groups)

    def rows(group: GroupResult) -> Sequence[Sequence[str]]:
        purposes, did = group.tokens.by_purpose, group.decisions
        cells = (
            section.short(group.name),
            wording.count(purposes.get("agent_prompt")),
            wording.count(group.tokens.injected if purposes else None),
            *([wording.count(_own_tokens(group))] if own else []),
            wording.count(did.per_task, 2) if did else "-",
            wording.percent(did.forced_share) if did else "-",
            wording.count(did.keys_visited, 1) if did else "-",
        )
        return [cells]

    columns = ["policy", "prompt\ntokens", "injected\ntokens", *(["memory\ntokens"] if own else [])]
    return _fill(make_table([*columns, "decisions\na task", "forced\n%", "keys a\ntable"]), section, rows)


def _own_tokens(group: GroupResult) -> float:
    purposes = group.tokens.by_purpose
    return sum(purposes.get(f"memory_{what}", 0.0) for what in ("read", "write", "maintenance"))


# --- differences ------------------------------------------------------------------------------------------------------


def _difference_table(section: Section, compared: Sequence[Comparison]) -> Table:
    heads = ("pairs", "diff.", "these\nseeds", "other\nseeds too", "tokens")
    lines = [
        line
        for one in compared
        for line in (_numbers(one, one.difference, compared), _numbers(one, _last(one.difference), compared))
    ]
    titles, *numbers = zip(*[_aligned(texts) for texts in zip(heads, *lines, strict=True)], strict=True)

    def rows(group: GroupResult) -> Sequence[Sequence[str]]:
        found: list[Sequence[str]] = []
        for place, one in enumerate(compared):
            if one.group is group:
                name = f"{section.short(group.name)} - {one.subtrahend}"
                found += [(name, *numbers[2 * place]), (_LAST_QUARTER, *numbers[2 * place + 1])]
        return found

    title = "paired differences of success, percent points"
    if section.learned:
        title += " (reported, not arranged)"
    return _fill(make_table(["policy - other", *titles], num_text=6, title=title, roomy=False), section, rows)


def _last(whole: PairedDifference | None) -> PairedDifference | None:
    return whole.last_quarter if whole else None


def _aligned(texts: Sequence[str]) -> list[str]:
    """`texts` with their lines set to the right of one width: rich would strip the space that stands for a mark."""
    width = max(len(line) for text in texts for line in text.split("\n"))
    return ["\n".join(line.rjust(width) for line in text.split("\n")) for text in texts]


def _numbers(
    one: Comparison, found: PairedDifference | None, compared: Sequence[Comparison]
) -> tuple[str, str, str, str, str]:
    """Pairs, difference, both intervals and tokens; where some have a mark, the others have a space for it."""
    partial = _mark(wording.PARTIAL, one.is_partial, any(other.is_partial for other in compared))
    single = _mark(wording.ONE_STREAM, one.is_one_table, any(other.is_one_table for other in compared))
    return (
        wording.count(found.num_pairs if found else 0) + partial,
        wording.points(found),
        wording.these_seeds(found),
        wording.other_seeds(found) + single,
        wording.signed(found.injected if found else None),
    )


def _mark(mark: str, here: bool, somewhere: bool) -> str:
    return (mark if here else " ") if somewhere else ""
