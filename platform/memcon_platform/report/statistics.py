"""Intervals: a two-way bootstrap over streams and tasks, drawn from the seed tree, so that a report repeats to the bit.

A success depends on the seed and on the task, and both were sampled: resampling single tasks only would take the same
task under five seeds for five independent ones (Owen 2007, the pigeonhole bootstrap). Owns no data access.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from memcon.seeds import SeedTree

__all__ = ["LEVEL", "RESAMPLES", "Interval", "mean_interval", "success_interval"]

Matrix = NDArray[np.float64]

RESAMPLES = 2000
LEVEL = 0.95
# Standard normal quantile of LEVEL, for the Wilson interval.
_Z = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval at LEVEL."""

    low: float
    high: float
    # "two-way bootstrap", or "wilson" where all outcomes are equal and a bootstrap would have no width.
    method: str = "two-way bootstrap"


def mean_interval(values: Matrix) -> Interval | None:
    """Percentile interval of the mean of `values`, shape (streams, tasks), NaN where there is no value.

    Streams and tasks are resampled with replacement, independently; with one row only the tasks are. None without a
    value.
    """
    present = ~np.isnan(values)
    if not present.any():
        return None
    row_counts, column_counts = _draws(*values.shape)
    filled = np.where(present, values, 0.0)
    totals = ((row_counts @ filled) * column_counts).sum(axis=1)
    weights = ((row_counts @ present.astype(np.float64)) * column_counts).sum(axis=1)
    # A resample may miss every present value of a sparse matrix.
    means = totals[weights > 0] / weights[weights > 0]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(low=float(low), high=float(high))


def success_interval(values: Matrix) -> Interval | None:
    """`mean_interval` of 0/1 values; the Wilson interval over the distinct tasks when all of them are equal."""
    present = values[~np.isnan(values)]
    if present.size and np.all(present == present[0]):
        # Repeats of a task under other seeds are not counted as new evidence.
        return _wilson(float(present[0]), int((~np.isnan(values)).any(axis=0).sum()))
    return mean_interval(values)


def _wilson(rate: float, count: int) -> Interval:
    """Wilson score interval of `rate` in `count` trials."""
    scale = 1 + _Z**2 / count
    middle = (rate + _Z**2 / (2 * count)) / scale
    half = _Z * math.sqrt(rate * (1 - rate) / count + _Z**2 / (4 * count**2)) / scale
    return Interval(low=max(0.0, middle - half), high=min(1.0, middle + half), method="wilson")


@lru_cache(maxsize=64)
def _draws(rows: int, columns: int) -> tuple[Matrix, Matrix]:
    """How often each row and each column is drawn, shapes (RESAMPLES, rows) and (RESAMPLES, columns).

    A function of the shape only: groups of equal shape share their resamples, which also makes them comparable.
    """
    place = SeedTree(("report", "bootstrap", RESAMPLES, rows, columns))
    return _counts(place.child("rows"), rows), _counts(place.child("columns"), columns)


def _counts(place: SeedTree, size: int) -> Matrix:
    drawn = np.array(place.generator().choices(range(size), k=RESAMPLES * size), dtype=np.int64)
    drawn += np.repeat(np.arange(RESAMPLES, dtype=np.int64) * size, size)
    return np.bincount(drawn, minlength=RESAMPLES * size).reshape(RESAMPLES, size).astype(np.float64)
