"""A row of the report with its data, which rows may stand beside it, and what two rows differ by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from memcon_platform.report.grouping import PlannedGroup, conditions
from memcon_platform.report.measures import PairedDifference, Success
from memcon_platform.report.samples import CellSample, Matrices, pair
from memcon_platform.report.statistics import mean_interval, standard_error, success_interval, these_seeds_interval

__all__ = [
    "Row",
    "difference",
    "differs",
    "family_of",
    "mean_injected",
    "nearest",
    "paired",
    "references",
    "success_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A group of cells with its data."""

    planned: PlannedGroup
    samples: tuple[CellSample, ...]
    matrices: Matrices

    @property
    def has_tasks(self) -> bool:
        """A task of it was evaluated."""
        return self.matrices.num_values > 0

    @property
    def rate(self) -> float:
        """Success rate of a row that has tasks."""
        return float(np.nanmean(self.matrices.success))


def success_of(matrices: Matrices, *, unevaluable: int = 0) -> Success:
    """Success rate of `matrices` with its interval."""
    values = matrices.success[~np.isnan(matrices.success)]
    return Success(
        num_tasks=values.size,
        successes=int(values.sum()),
        unevaluable=unevaluable,
        interval=success_interval(matrices.success, tables=matrices.clusters),
    )


def mean_injected(matrices: Matrices) -> float | None:
    """Tokens that memory put into the prompts of a task; None without a task."""
    return float(np.nanmean(matrices.injected)) if matrices.num_values else None


def difference(row: Row, other: Row) -> PairedDifference | None:
    """Success of `row` minus `other` on the same (seed, stream, task); None when no task is in both."""
    return paired(pair(row.matrices, other.matrices))


def paired(pairs: Matrices, *, with_quarter: bool = True) -> PairedDifference | None:
    """What pairs of tasks differ by over the whole stream and, `with_quarter`, in its last quarter; None without one.

    Args:
        pairs: as `memcon_platform.report.samples.pair` gives them.
        with_quarter: tell the last quarter too.
    """
    interval = mean_interval(pairs.success, tables=pairs.clusters)
    these_seeds = these_seeds_interval(pairs.success)
    if interval is None or these_seeds is None:
        return None
    with_value = ~np.isnan(pairs.success)
    present = [bool(unit.any()) for unit in with_value]
    return PairedDifference(
        mean=float(np.nanmean(pairs.success)),
        interval_these_seeds=these_seeds,
        interval=interval,
        num_pairs=int(with_value.sum()),
        num_streams=sum(present),
        num_tables=len({table for table, has in zip(pairs.tables, present, strict=True) if has}),
        standard_error=standard_error(pairs.success, tables=pairs.clusters),
        injected=float(np.nanmean(pairs.injected)),
        last_quarter=paired(pairs.last_quarter, with_quarter=False) if with_quarter else None,
    )


def nearest(row: Row, rows: Sequence[Row], role: str) -> list[Row]:
    """Rows of `role` that may stand beside `row`: of its arena, as like to it beside the policy as there are.

    No memory stands beside every memory; every other role beside its own memory only.
    """
    rivals = [other for other in rows if other.planned.role == role and _is_rival(row, other)]
    return _most_alike(row, rivals)


def references(row: Row, rows: Sequence[Row], policy: str) -> list[Row]:
    """Rows whose policy has the label `policy` that may stand beside `row`: of its arena and its memory, most alike."""
    if row.planned.first.policy.label == policy:
        return []
    rivals = [
        other
        for other in rows
        if other.planned.first.policy.label == policy and _memory(other) == _memory(row) and _is_rival(row, other)
    ]
    return _most_alike(row, rivals)


def _is_rival(row: Row, other: Row) -> bool:
    same_memory = other.planned.is_no_memory or _memory(other) == _memory(row)
    return other is not row and other.planned.arena == row.planned.arena and other.has_tasks and same_memory


def _most_alike(row: Row, rivals: Sequence[Row]) -> list[Row]:
    unlike = [len(differs(row, other)) for other in rivals]
    return [other for other, count in zip(rivals, unlike, strict=True) if count == min(unlike)]


def differs(row: Row, other: Row) -> tuple[str, ...]:
    """Conditions beside the policy in which two rows differ, as "path=value" of `other`."""
    mine, theirs = conditions(row.planned.first), conditions(other.planned.first)
    paths = sorted(path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path))
    return tuple(f"{path.rpartition('.')[2]}={theirs.get(path, 'none')}" for path in paths)


def family_of(rows: Sequence[Row]) -> tuple[str, Callable[[Matrices], tuple[str, ...]]]:
    """By what tasks are told apart, "family" or "goal type", and how to read it off matrices.

    A family is the benchmark that made a task; where one made all, goal types take its place.
    """
    if len({family for row in rows for family in row.matrices.families}) > 1:
        return "family", lambda matrices: matrices.families
    return "goal type", lambda matrices: matrices.goal_types


def _memory(row: Row) -> str:
    return row.planned.first.memory.label
