"""Means with their uncertainty over clusters: streams, or the groups of streams that share a table. Pure arithmetic.

All differences are paired: two choices on the same tasks of the same streams. A cluster is resampled whole, since the
tasks of a stream share its memory and the streams of a group share a table (learning_value.md section 8, 6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from memcon_platform.report.statistics import t_quantile
from memcon_platform.study.matrix import Bools, Floats

__all__ = ["Estimate", "estimate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over clusters."""

    mean: float
    # Standard error over clusters, and interval at LEVEL by Student's t; None with one cluster.
    se: float | None
    low: float | None
    high: float | None
    clusters: int

    @property
    def is_clear(self) -> bool:
        """The mean is above two standard errors."""
        return self.se is not None and self.mean > 0 and self.mean > 2 * self.se


def estimate(values: Floats, *, mask: Bools | None = None, group: int = 1) -> Estimate | None:
    """The mean of `values` over rows and tasks, with clusters of `group` consecutive rows; None without a value.

    Student's t over the clusters' deviations, not a bootstrap: two or three shared tables are all that some studies
    have, and resampling two values cannot show how little they say (t = 12.7 at one degree of freedom).

    Args:
        values: shape (streams, tasks); NaN where there is no value. Rows beyond the last whole cluster are left out.
        mask: values to keep, of a shape that broadcasts to that of `values`.
        group: rows of a cluster.
    """
    if mask is not None:
        values = np.where(mask, values, np.nan)
    whole = len(values) // group * group
    clusters = values[:whole].reshape(whole // group, -1)
    clusters = clusters[(~np.isnan(clusters)).any(axis=1)]
    if not clusters.size:
        return None
    mean, number = float(np.nanmean(clusters)), len(clusters)
    if number < 2:
        return Estimate(mean=mean, se=None, low=None, high=None, clusters=number)
    count = int((~np.isnan(clusters)).sum())
    # A ratio of sums, since clusters may hold different numbers of values.
    deviations = np.nansum(clusters - mean, axis=1)
    se = math.sqrt(float((deviations**2).sum()) * number / (number - 1)) / count
    half = t_quantile(number - 1) * se
    return Estimate(mean=mean, se=se, low=mean - half, high=mean + half, clusters=number)
