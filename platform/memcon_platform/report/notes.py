"""The sentences that a reader of a report must know beside its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from memcon_platform.config import RunRecord
from memcon_platform.report.data import CellResult, GroupResult, short_labels
from memcon_platform.report.grouping import LEARNED, NO_MEMORY, is_outcome_matrix

__all__ = ["notes"]

# What a row is called.
_Named: TypeAlias = Callable[[GroupResult], str]

IMITATOR = (
    "The backbone is the imitator: a rule program that copies steps out of its prompt, not a language model. How much "
    "memory helps or harms follows from its rules, which we chose. The numbers show that the pipeline works and how a "
    "learner behaves statistically; they are evidence neither for nor against published figures."
)
_PROTOCOL = (
    "Rows marked pooled or warm follow another protocol than the paper's, one stream with a table of its own: a shared "
    "table sees the feedback of all its streams, a warm one has seen other tasks. Intervals speak for other tables of "
    "the kind, never for other sources of a warm start."
)
_SHARED = "Streams that share a learned table are one repetition: intervals for other seeds resample tables."
# Families that this project built so that they want different arms.
_CONSTRUCTED = ("recur", "habit", "audit", "trivia")


def notes(record: RunRecord, cells: Sequence[CellResult], groups: Sequence[GroupResult]) -> tuple[str, ...]:
    """What a reader must know beside the numbers."""
    titles = short_labels(group.labels["benchmark"] for group in groups)

    def named(group: GroupResult) -> str:
        return f"{titles[group.labels['benchmark']]}, {group.name if group.role == NO_MEMORY else group.label}"

    found = [IMITATOR] if any(cell.backbone.name == "imitator" for cell in record.plan.cells) else []
    found += _unfinished(cells)
    if record.continued_with:
        found.append(
            "The run was continued under another version, Python or commit than it was begun with (plan.json, "
            "`continued_with`): its rows may mix both."
        )
    found += [
        f"{named(group)}: {group.success.unevaluable} of {group.found} tasks could not be evaluated and are outside "
        "every rate."
        for group in groups
        if group.success.unevaluable
    ]
    if any(group.mark.startswith("best") for group in groups):
        found.append(
            "The best static arm is chosen with hindsight, after the fact on these same tasks, which flatters it."
        )
    found += [*_repetitions(groups, named), *_protocol(groups, named), *_beside(groups, named), *_constructed(groups)]
    matrices = sum(is_outcome_matrix(cell) for cell in record.plan.cells)
    if matrices:
        found.append(
            f"{matrices} cells play every arm on each task: an outcome matrix, which stands in no row and no "
            "comparison; `memcon study headroom` reads it."
        )
    if not all(group.exact for group in groups):
        found.append(
            "Rows whose streams share a table are not exact: nothing is lost or doubled, but the order of updates, and "
            "so their numbers, depend on the machine."
        )
    return tuple(found)


def _unfinished(cells: Sequence[CellResult]) -> list[str]:
    waiting = [cell for cell in cells if cell.status != "done"]
    if not waiting:
        return []
    missing = sum(cell.planned - cell.found for cell in waiting)
    return [
        f"The run is not finished: {len(waiting)} of {len(cells)} cells lack {missing:,} tasks. The same "
        "`memcon sweep` command continues it; paired differences use the tasks that both rows have."
    ]


def _repetitions(groups: Sequence[GroupResult], named: _Named) -> Iterator[str]:
    if any(group.num_tables < group.num_streams for group in groups):
        yield _SHARED
    yield from _of_rows(
        groups,
        named,
        lambda group: group.num_streams == 1,
        "one stream only, so its intervals cover the choice of tasks and not that of seeds.",
    )
    yield from _of_rows(
        groups,
        named,
        lambda group: group.num_tables == 1 < group.num_streams,
        "one shared table only, so its intervals cover the choice of tasks and not what another table would learn.",
    )


def _protocol(groups: Sequence[GroupResult], named: _Named) -> Iterator[str]:
    if any(group.tags for group in groups):
        yield _PROTOCOL
    yield from _of_rows(groups, named, lambda group: group.origins, "")


def _beside(groups: Sequence[GroupResult], named: _Named) -> Iterator[str]:
    """What is not beside a learned row, or not under the same conditions."""
    learned = [group for group in groups if group.role == LEARNED]
    nothing = "nothing stands beside it as "
    yield from _of_rows(learned, named, lambda group: group.missing_yardsticks, "", before=nothing)
    for group in learned:
        unlike = {yard.differs: None for yard in group.yardsticks if yard.differs}
        for differs in unlike:
            kinds = [yard.kind for yard in group.yardsticks if yard.differs == differs]
            yield f"{named(group)}: {', '.join(kinds)} ran with {', '.join(differs)}, since none ran as this row did."


def _constructed(groups: Sequence[GroupResult]) -> Iterator[str]:
    families = [name for name in _CONSTRUCTED if any(name in group.by_family for group in groups)]
    if families:
        yield (
            f"{', '.join(families)}: constructed families, made so that they want different arms. They show a "
            "mechanism, not how often it occurs in real benchmarks."
        )


def _of_rows(
    groups: Sequence[GroupResult],
    named: _Named,
    told: Callable[[GroupResult], bool | tuple[str, ...]],
    sentence: str,
    *,
    before: str = "",
) -> Iterator[str]:
    """One note for all rows of which the same is told: `sentence`, or the phrases that `told` gives."""
    every = "Every learned row" if all(group.role == LEARNED for group in groups) else "Every row"
    rows: dict[bool | tuple[str, ...], list[GroupResult]] = {}
    for group in groups:
        if found := told(group):
            rows.setdefault(found, []).append(group)
    for phrases, members in rows.items():
        which = every if len(members) == len(groups) > 1 else "; ".join(named(group) for group in members)
        yield f"{which}: {before}{'; '.join(phrases) + '.' if isinstance(phrases, tuple) else sentence}"
