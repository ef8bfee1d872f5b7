"""The sentences that a reader of a report must know beside its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from memcon_platform.config import RunRecord
from memcon_platform.report.data import CellResult, GroupResult, shape_of, short_labels, short_memories, without_shape
from memcon_platform.report.grouping import LEARNED, NO_MEMORY, is_outcome_matrix
from memcon_platform.report.yardsticks import REFERENCE

__all__ = ["notes"]

# What a row is called.
_Named: TypeAlias = Callable[[GroupResult], str]

_PROTOCOL = (
    "Rows marked shared table, pooled keys or warm follow another protocol than the paper's, one stream with a table "
    "of its own: a shared table sees the feedback of all its streams, a warm one has seen other tasks. Intervals speak "
    "for other tables of the kind, never for other sources of a warm start."
)
_SHARED = "Streams that share a learned table are one repetition: intervals for other seeds resample tables."
# Reasons that a sentence names, and characters of each.
_REASONS, _SHOWN = 3, 300


def notes(record: RunRecord, cells: Sequence[CellResult], groups: Sequence[GroupResult]) -> tuple[str, ...]:
    """What a reader must know beside the numbers."""
    named = _names(groups)
    found = _unfinished(cells)
    if record.continued_with:
        found.append(
            "The run was continued under another version, Python, commit or endpoint than it was begun with "
            "(plan.json, `continued_with`): its rows may mix both."
        )
    found += [
        f"{named(group)}: {group.success.unevaluable} of {group.found} tasks could not be evaluated and are outside "
        "every rate."
        for group in groups
        if group.success.unevaluable
    ]
    found += _reasons(cells)
    if any(group.mark.startswith("best") for group in groups):
        found.append(
            "The best static arm is chosen with hindsight, after the fact on these same tasks, which flatters it."
        )
    found += [*_repetitions(groups, named), *_protocol(groups, named), *_beside(groups, named)]
    found += _reference(record.plan.settings.study.reference, groups, named)
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


def _names(groups: Sequence[GroupResult]) -> _Named:
    """Names of rows without what all rows share: the benchmark, the memory, the number of streams."""
    titles = short_labels(group.labels["benchmark"] for group in groups)
    memories = short_memories(group.labels["memory"] for group in groups if group.role != NO_MEMORY)
    arenas, shape = {group.arena for group in groups}, shape_of(group.name for group in groups)

    def named(group: GroupResult) -> str:
        memory = f"{memories[group.labels['memory']]} " if len(memories) > 1 and group.role != NO_MEMORY else ""
        name = without_shape(f"{memory}{group.name}", shape)
        benchmark, framework, backbone = group.arena
        places = (
            (titles[benchmark], {arena[0] for arena in arenas}),
            (framework, {arena[1] for arena in arenas}),
            (backbone, {arena[2] for arena in arenas}),
        )
        return ", ".join([*(place for place, known in places if len(known) > 1), name])

    return named


def _reasons(cells: Sequence[CellResult]) -> Iterator[str]:
    """What most tasks that could not be evaluated failed of: whoever has to mend it reads it here."""
    counts = Counter[str]()
    for cell in cells:
        counts.update(cell.reasons)
    if counts:
        told = "; ".join(f"{reason[:_SHOWN]} ({count:,} tasks)" for reason, count in counts.most_common(_REASONS))
        more = f"; and {len(counts) - _REASONS:,} other reasons" if len(counts) > _REASONS else ""
        yield f"Not evaluated because: {told}{more}."


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
    told = {
        "one stream only, so its intervals cover the choice of tasks and not that of seeds": [
            group for group in groups if group.num_streams == 1
        ],
        "one shared table only, so its intervals cover the choice of tasks and not what another table would learn": [
            group for group in groups if group.num_tables == 1 < group.num_streams
        ],
    }
    for sentence, rows in told.items():
        if rows:
            yield f"{_which(rows, groups, named)}: {sentence}."


def _protocol(groups: Sequence[GroupResult], named: _Named) -> Iterator[str]:
    if any(group.tags for group in groups):
        yield _PROTOCOL
    for phrase, rows in _by_phrase((phrase, group) for group in groups for phrase in group.origins):
        yield f"{phrase}: {_which(rows, groups, named)}."


def _beside(groups: Sequence[GroupResult], named: _Named) -> Iterator[str]:
    """What is not beside a learned row, or not under the same conditions."""
    learned = [group for group in groups if group.role == LEARNED]
    missing = (("; ".join(group.missing_yardsticks), group) for group in learned if group.missing_yardsticks)
    for phrase, rows in _by_phrase(missing):
        yield f"{_which(rows, learned, named)}: nothing stands beside it as {phrase}."
    unlike = (
        (f"{yard.kind} ran with {', '.join(yard.differs)}, since none ran as this row did", group)
        for group in learned
        for yard in group.yardsticks
        # What a reference differs in is what is asked.
        if yard.differs and yard.kind != REFERENCE
    )
    for phrase, rows in _by_phrase(unlike):
        yield f"{_which(rows, learned, named)}: {phrase}."


def _reference(policy: str | None, groups: Sequence[GroupResult], named: _Named) -> Iterator[str]:
    """A reference that no row has, or rows that it cannot stand beside."""
    if policy is None:
        return
    if all(group.labels["policy"] != policy for group in groups if group.role != NO_MEMORY):
        known = ", ".join(dict.fromkeys(group.labels["policy"] for group in groups if group.role != NO_MEMORY))
        yield (
            f"study.reference '{policy}': no row with a memory has this policy, so none is compared with it; "
            f"policies of the run: {known}."
        )
        return
    without = [
        group
        for group in groups
        if group.role != NO_MEMORY
        and group.labels["policy"] != policy
        and all(yard.kind != REFERENCE for yard in group.yardsticks)
    ]
    if without:
        yield f"{_which(without, groups, named)}: no row of '{policy}' has its benchmark and memory to stand beside it."


def _by_phrase(told: Iterable[tuple[str, GroupResult]]) -> Iterable[tuple[str, list[GroupResult]]]:
    """Each phrase with the rows that it is told of."""
    rows: dict[str, list[GroupResult]] = {}
    for phrase, group in told:
        rows.setdefault(phrase, []).append(group)
    return rows.items()


def _which(rows: Sequence[GroupResult], among: Sequence[GroupResult], named: _Named) -> str:
    if len(rows) == len(among) > 1:
        return "Every learned row" if all(group.role == LEARNED for group in among) else "Every row"
    return "; ".join(named(group) for group in rows)
