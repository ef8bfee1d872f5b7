"""The words and numbers of a report: sentences that a reader must know, and how values are printed."""

from __future__ import annotations

from collections.abc import Sequence

from memcon_platform.report.data import CellResult, GroupResult, PairedDifference, Success
from memcon_platform.report.grouping import LEARNED
from memcon_platform.trajectory import PlanFile

__all__ = ["ARM_ORDER", "arm_place", "count", "difference", "interval", "notes", "percent", "success"]

IMITATOR = (
    "The backbone of these cells is the imitator: a rule program written by hand that copies steps out of its prompt. "
    "It is not a language model, and its numbers say nothing about one. Success is the environments' own goal test, "
    "but how much memory helps or harms follows from the program's rules (how it spreads attention, how it discounts "
    "failures), which we chose. The results show that the whole pipeline works and how a learner behaves "
    "statistically (forced first visits, how many samples it needs); they are evidence neither for nor against "
    "published figures."
)
# Table 7; tables and charts keep this order.
ARM_ORDER = (
    "retrieve_shallow",
    "retrieve_medium",
    "retrieve_deep",
    "plan_inject",
    "re_retrieve",
    "consolidate",
    "forget",
    "insight_only",
    "noop",
)


def arm_place(action_id: str) -> tuple[int, str]:
    """Sorting key of an arm: Table 7 first, others after it by name."""
    place = ARM_ORDER.index(action_id) if action_id in ARM_ORDER else len(ARM_ORDER)
    return place, action_id


def percent(share: float | None, digits: int = 1) -> str:
    """A share in percent without the sign, "-" when there is none."""
    return "-" if share is None else f"{100 * share:.{digits}f}"


def count(value: float | None, digits: int = 0) -> str:
    """A number with thousands separated, "-" when there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def interval(low: float, high: float, *, signed: bool = False) -> str:
    """An interval in percent points."""
    form = "+.1f" if signed else ".1f"
    return f"[{100 * low:{form}}, {100 * high:{form}}]"


def success(value: Success) -> str:
    """Rate and interval in percent."""
    if value.interval is None:
        return percent(value.rate)
    return f"{percent(value.rate)} {interval(value.interval.low, value.interval.high)}"


def difference(value: PairedDifference | None) -> str:
    """Paired difference and interval in percent points."""
    if value is None:
        return "-"
    return f"{100 * value.mean:+.1f} {interval(value.interval.low, value.interval.high, signed=True)}"


def notes(plan: PlanFile, cells: Sequence[CellResult], groups: Sequence[GroupResult]) -> tuple[str, ...]:
    """What a reader must know before the numbers."""
    found = [IMITATOR] if any(cell.name("backbone") == "imitator" for cell in plan.cells) else []
    found += _unfinished(cells)
    if plan.continued_with:
        found.append(
            "The run was continued under another version, Python or commit than it was begun with (plan.json, "
            "`continued_with`): its rows may mix both."
        )
    found += [
        f"{group.benchmark}, {group.label}: {group.success.unevaluable} of {group.found} tasks could not be evaluated "
        "and are outside every rate."
        for group in groups
        if group.success.unevaluable
    ]
    if any(group.role == LEARNED for group in groups):
        found.append(
            "Learned policies stand beside the best static arm, the random arm and no memory, as far as these ran: "
            "reported, not arranged."
        )
    if any(group.mark.startswith("best") for group in groups):
        found.append("The best static arm is picked after the fact on these same tasks, which flatters it.")
    found += [_few_units(group) for group in groups if group.num_streams == 1][:1]
    if not all(group.exact for group in groups):
        found.append(
            "Rows with a table shared by several streams are not exact: nothing is lost or doubled, but the order of "
            "updates, and so their numbers, depend on the machine."
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


def _few_units(group: GroupResult) -> str:
    return (
        f"{group.benchmark}, {group.label}: one stream only, so its interval covers the choice of tasks and not that "
        "of seeds."
    )
