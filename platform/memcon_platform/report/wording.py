"""The words and numbers of a report: sentences that a reader must know, and how values are printed."""

from __future__ import annotations

from collections.abc import Sequence

from memcon.learning import actions
from memcon_platform.config import RunRecord
from memcon_platform.report.comparisons import Comparison
from memcon_platform.report.data import CellResult, GroupResult, PairedDifference, ReportData, Success
from memcon_platform.report.grouping import LEARNED, NO_MEMORY, RANDOM_ARM, STATIC_ARM

__all__ = [
    "ARM_ORDER",
    "ONE_STREAM",
    "OTHER_SEEDS",
    "PARTIAL",
    "THESE_SEEDS",
    "arm_place",
    "count",
    "footnotes",
    "interval",
    "interval_method",
    "notes",
    "other_seeds",
    "percent",
    "points",
    "role",
    "success",
    "these_seeds",
]

IMITATOR = (
    "The backbone is the imitator: a rule program that copies steps out of its prompt, not a language model. How much "
    "memory helps or harms follows from its rules, which we chose. The numbers show that the pipeline works and how a "
    "learner behaves statistically; they are evidence neither for nor against published figures."
)
# What each interval of a paired difference generalises to.
THESE_SEEDS = "the streams as they ran, on other tasks (tasks resampled, each with all its seeds)"
OTHER_SEEDS = "seeds and tasks that did not run (streams and tasks resampled)"
# Marks of paired differences, see `footnotes`.
PARTIAL = "†"
ONE_STREAM = "‡"
# Table 7; tables and charts keep this order.
ARM_ORDER = actions.action_set("default").action_ids
_ROLE_WORDS = {STATIC_ARM: "static", RANDOM_ARM: "random", LEARNED: "learned"}


def arm_place(action_id: str) -> tuple[int, str]:
    """Sorting key of an arm: Table 7 first, others after it by name."""
    place = ARM_ORDER.index(action_id) if action_id in ARM_ORDER else len(ARM_ORDER)
    return place, action_id


# --- numbers ----------------------------------------------------------------------------------------------------------


def percent(share: float | None, digits: int = 1) -> str:
    """A share in percent without the sign, "-" when there is none."""
    return "-" if share is None else f"{100 * share:.{digits}f}"


def count(value: float | None, digits: int = 0) -> str:
    """A number with thousands separated, "-" when there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def interval(low: float, high: float) -> str:
    """An interval in percent points."""
    # Adding 0 turns a rounded "-0.0" into "0.0".
    return f"[{round(100 * low, 1) + 0.0:.1f}, {round(100 * high, 1) + 0.0:.1f}]"


def success(value: Success) -> str:
    """Rate and interval in percent."""
    if value.interval is None:
        return percent(value.rate)
    return f"{percent(value.rate)} {interval(value.interval.low, value.interval.high)}"


def points(value: PairedDifference | None) -> str:
    """Mean paired difference in percent points."""
    # Adding 0 turns a rounded "-0.0" into "+0.0".
    return "-" if value is None else f"{round(100 * value.mean, 1) + 0.0:+.1f}"


def these_seeds(value: PairedDifference | None) -> str:
    """Interval of a paired difference for the streams as they ran."""
    return "-" if value is None else interval(value.interval_these_seeds.low, value.interval_these_seeds.high)


def other_seeds(value: PairedDifference | None) -> str:
    """Interval of a paired difference for other seeds and tasks."""
    return "-" if value is None else interval(value.interval.low, value.interval.high)


# --- words ------------------------------------------------------------------------------------------------------------


def role(group: GroupResult) -> str:
    """The row's role in one word: "best" for the best static arm; "" where the row's name says it."""
    return "best" if group.mark.startswith("best") else _ROLE_WORDS.get(group.role, "")


def interval_method(data: ReportData) -> str:
    """How the intervals of the report were made."""
    return f"{100 * data.level:.0f} % bootstrap interval, {data.resamples:,} resamples"


def footnotes(found: Sequence[Comparison]) -> tuple[str, ...]:
    """What the marks of the paired differences mean, those that occur, each beginning with its mark."""
    known = [one.difference for one in found if one.difference]
    told = {
        f"{PARTIAL} only the tasks that both rows ran": any(one.is_partial for one in found),
        f"{ONE_STREAM} one stream only: both intervals are the same and say nothing about other seeds": any(
            one.is_one_stream for one in found
        ),
        "[0.0, 0.0]: no pair differs, those of other tasks may": any(
            one.mean == one.interval_these_seeds.low == one.interval_these_seeds.high for one in known
        ),
    }
    return tuple(note for note, occurs in told.items() if occurs)


def notes(record: RunRecord, cells: Sequence[CellResult], groups: Sequence[GroupResult]) -> tuple[str, ...]:
    """What a reader must know beside the numbers."""
    found = [IMITATOR] if any(cell.backbone.name == "imitator" for cell in record.plan.cells) else []
    found += _unfinished(cells)
    if record.continued_with:
        found.append(
            "The run was continued under another version, Python or commit than it was begun with (plan.json, "
            "`continued_with`): its rows may mix both."
        )
    found += [
        f"{_named(group)}: {group.success.unevaluable} of {group.found} tasks could not be evaluated and are outside "
        "every rate."
        for group in groups
        if group.success.unevaluable
    ]
    if any(group.mark.startswith("best") for group in groups):
        found.append("The best static arm is picked after the fact on these same tasks, which flatters it.")
    found += _one_stream(groups)
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


def _one_stream(groups: Sequence[GroupResult]) -> list[str]:
    alone = [_named(group) for group in groups if group.num_streams == 1]
    if not alone:
        return []
    which = "Every row" if len(alone) == len(groups) else "; ".join(alone)
    return [f"{which}: one stream only, so its intervals cover the choice of tasks and not that of seeds."]


def _named(group: GroupResult) -> str:
    place = group.labels["benchmark"]
    return f"{place}, {group.name if group.role == NO_MEMORY else group.label}"
