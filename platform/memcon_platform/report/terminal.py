"""The terminal form: tables whose rows are single lines at 80 columns, and that do not need colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memcon_platform.report import wording
from memcon_platform.report.comparisons import comparisons
from memcon_platform.report.data import STREAMS, GroupResult, ReportData, Section, shared_parameters
from memcon_platform.report.terminal_differences import differences
from memcon_platform.report.terminal_learning import learning
from memcon_platform.report.terminal_table import fill, make_table, titled

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

__all__ = ["render"]


def render(data: ReportData) -> Group:
    """What `memcon report RUN` prints."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(_head(data), style="bold")]
    for section in data.sections:
        parts += ["", Text(_title(section), style="bold")]
        for table in _tables(section):
            parts += ["", table]
    said = [*data.disclosures, *_interval_notes(data), *_cost_notes(data), *_model_notes(data), *data.notes]
    parts += ["", _listed(said)]
    return Group(*parts)


def _head(data: ReportData) -> str:
    done = sum(cell.status == "done" for cell in data.cells)
    found, planned = sum(cell.found for cell in data.cells), sum(cell.planned for cell in data.cells)
    lost = sum(cell.success.unevaluable for cell in data.cells)
    cells = f"{done} of {len(data.cells)} cells done"
    return f"Run {data.run}: {cells}, {found:,} of {planned:,} tasks, {lost} not evaluable"


def _title(section: Section) -> str:
    memory = f", memory {section.memories[0]}" if len(section.memories) == 1 else ""
    if shared := shared_parameters(section.memories):
        memory = f", all memories {' '.join(shared)}"
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


def _model_notes(data: ReportData) -> Iterator[str]:
    known = data.model_ids
    if known:
        named = (f"{label}: {', '.join(ids)}" if len(known) > 1 else ", ".join(ids) for label, ids in known.items())
        yield f"Model ids that the provider reported: {'; '.join(named)}."


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

    # Where nothing learns, a headroom that cannot be told is of no interest.
    told = [found for found in section.headrooms if found.difference or section.learned]
    verdicts = [f"{wording.of_memory(section, found)}{wording.verdict(found)}" for found in told]
    if verdicts:
        yield Text("\n".join(verdicts))
    yield _success_table(section)
    yield from differences(section)
    yield _cost_table(section)
    yield from learning(section)


def _success_table(section: Section) -> RenderableType:
    # Where numbers of streams differ, they have a column, and names go without them.
    streams = any(STREAMS.search(group.name) for group in section.groups) and not section.shape
    tagged = wording.legend_of_tags(section.groups)

    def rows(group: GroupResult) -> Sequence[Sequence[str]]:
        tasks = wording.count(group.success.num_tasks)
        if group.found < group.planned:
            tasks += f"/{wording.count(group.planned)}"
        cells = (
            STREAMS.sub("", group.name),
            wording.role(group),
            *([f"{group.num_streams // len(group.seeds)}"] if streams else []),
            tasks,
            wording.success(group.success),
            wording.percent(group.last_quarter.rate),
            wording.count(group.tokens.injected if group.tokens.by_purpose else None),
        )
        return [cells]

    columns = ["policy", "role", *(["streams\na seed"] if streams else [])]
    columns += ["tasks", "success %", "last\nquarter", "inj.\ntokens"]
    table = fill(make_table(columns, num_text=2, roomy=not streams), section, rows)
    return titled(tagged, table) if tagged else table


def _cost_table(section: Section) -> Table:
    # Memories that call a model of their own are few.
    own = any(_own_tokens(group) for group in section.groups)

    def rows(group: GroupResult) -> Sequence[Sequence[str]]:
        did = group.decisions
        cells = (
            section.short(group.name),
            wording.count(group.tokens.by_purpose.get("agent_prompt")),
            *([wording.count(_own_tokens(group))] if own else []),
            wording.count(did.per_task, 2) if did else "-",
            wording.percent(did.forced_share) if did else "-",
            wording.count(did.keys_visited, 1) if did else "-",
        )
        return [cells]

    columns = ["policy", "prompt\ntokens", *(["memory\ntokens"] if own else [])]
    return fill(make_table([*columns, "decisions\na task", "forced\n%", "keys a\ntable"]), section, rows)


def _own_tokens(group: GroupResult) -> float:
    purposes = group.tokens.by_purpose
    return sum(purposes.get(f"memory_{what}", 0.0) for what in ("read", "write", "maintenance"))
