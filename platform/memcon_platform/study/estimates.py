"""Means with their uncertainty over tables and tasks, by the rule of the report (`memcon_platform.report.statistics`).

All differences are paired: two choices on the same tasks of the same streams. A stream is one memory and a group of
streams that share a table is one learner, so each is resampled whole; and all streams have the same list of tasks, so a
task is resampled with all its outcomes (docs/prototype.md, 8).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memcon_platform.report.statistics import mean_interval, standard_error
from memcon_platform.study.matrix import Bools, Floats, Ints

__all__ = ["RATE", "Estimate", "estimate"]

# What a success rate can be; a difference of two lies between -1 and 1.
RATE = (0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over tables and tasks."""

    mean: float
    # Standard error and interval at LEVEL for other tables and tasks than these; with one table for other tasks only.
    # se is None with one task, which says nothing about others.
    se: float | None
    low: float
    high: float
    # Tables (streams where each has its own) and distinct tasks that have a value.
    tables: int
    tasks: int

    @property
    def is_clear(self) -> bool:
        """The mean is above two standard errors, which more than one table stands behind."""
        return self.tables > 1 and self.se is not None and self.mean > 0 and self.mean > 2 * self.se


def estimate(
    values: Floats, *, tasks: Ints, mask: Bools | None = None, group: int = 1, bounds: tuple[float, float] = (-1.0, 1.0)
) -> Estimate | None:
    """The mean of `values` over streams and tasks; None without a value.

    Args:
        values: shape (streams, tasks) in the order of each stream; NaN where there is no value. Rows beyond the last
            whole table are left out.
        tasks: number of the distinct task at each place, of the shape of `values` (`OutcomeMatrix.task`).
        mask: values to keep, of a shape that broadcasts to that of `values`.
        group: consecutive rows that share a table.
        bounds: what the mean can be at least and at most.
    """
    whole = len(values) // group * group
    kept = values if mask is None else np.where(mask, values, np.nan)
    laid: Floats = np.full((whole, int(tasks.max()) + 1), np.nan)
    np.put_along_axis(laid, tasks[:whole], kept[:whole], axis=1)
    present = ~np.isnan(laid)
    laid = laid[:, present.any(axis=0)]
    tables = np.arange(whole) // group
    interval = mean_interval(laid, tables=tables.tolist(), least=bounds[0], most=bounds[1])
    if interval is None:
        return None
    return Estimate(
        mean=float(np.nanmean(laid)),
        se=standard_error(laid, tables=tables.tolist()),
        low=interval.low,
        high=interval.high,
        tables=len(np.unique(tables[present.any(axis=1)])),
        tasks=laid.shape[1],
    )
