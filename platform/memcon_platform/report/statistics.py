"""Intervals over tasks ("these seeds") and over tables and tasks ("other seeds too"). Owns no data access.

A success depends on the seed (its stream) and on the task, and both were sampled: resampling single outcomes would take
the same task under five seeds for five independent ones. How sure a mean is depends on what it is to speak for:

    these seeds      `these_seeds_interval` resamples tasks, each with all its streams together (cluster bootstrap):
                     other tasks of the kind under the streams as they ran; nothing about a seed that did not run.
    other seeds too  `mean_interval` resamples streams and tasks: the populations of both.

The two-way bootstrap (Owen 2007, the pigeonhole bootstrap) counts the noise of single outcomes three times, once
through the streams, the tasks and the outcomes each, so that its intervals are up to 1.7 times too wide. Hence the
distances of the resampled means from the mean (taken to both sides alike, Hall 1988: scaled percentiles would leave 0
out where a single pair differs) are scaled to

    variance of the mean = V(streams) + V(tasks) - V(outcomes)    other seeds too
                           V(tasks)                               these seeds

(two-way clusters: Cameron, Gelbach and Miller 2011; on a full table the random-effects analysis of variance), each part
of the sum at least V(outcomes), with Student's t at Satterthwaite's degrees of freedom, since five streams say little
about their own spread. Both take the tasks of a stream for independent but for their stream, though a memory lets later
ones depend on earlier ones.

Streams that share a learned table learn from each other and are no repetitions: the table is. They are resampled as
one, and what stands for an outcome above is what the streams of a table did on a task, taken together. With one table,
nothing is known about others.

Tables that join streams are few, and many outcomes stand behind each, so that little but their own spread is left: two
that happen to be close would pass for proof that all are. Satterthwaite's degrees of freedom, by chance those of the
tasks, do not help, whatever their floor. There each part has a Student's t of its own: half the interval is

    sqrt(t(tables - 1)^2 V(tables) + t(tasks - 1)^2 (V(tasks) - V(outcomes)))

which is exact where only tables vary (t = 12.7 for two of them) and wider than needed where only tasks do. Share of
2,000 simulated experiments (2 x 64: 500) whose interval holds the mean of all tables, and mean width in percent points:

    tables x streams        5 x 8       3 x 8       2 x 8       2 x 8       2 x 8       2 x 64
    table sd                0.03        0.03        0           0.03        0.05        0.02
    other seeds too         96.5   9.4  97.0  15.5  99.2  18.4  97.2  45.9  97.2  73.5  98.2  31.6
    one t for all           94.5   8.3  94.0  11.8  96.8   7.5  90.0  16.8  89.2  26.6  92.0  11.7
    streams repeat          86.1   5.8  82.4   6.2  95.5   6.2  77.1   6.5  64.4   7.1  82.6   5.3
    width by true spread           7.6         9.0         5.7        10.0        15.2         7.5

The same without shared tables (paired differences, task sd 0.15, residual sd 0.4): share whose 95 % interval holds the
mean of these seeds / of all seeds, and mean width. Both by `python tests/support/interval_coverage.py 2000`:

    streams x tasks,        5 x 134           5 x 134           5 x 134           3 x 134           2 x 40
    stream sd               0.03              0                 0.08              0.03              0.03
    these seeds             94.5/89.5   7.8   95.4/95.4   7.8   94.5/64.1   7.8   95.0/88.1   9.1   95.9/94.0  19.6
    other seeds too         98.4/95.7  10.9   97.0/97.0   8.9   99.8/94.0  20.1   98.1/95.0  17.3   97.7/96.0  36.3
    tasks, unscaled         94.2/88.8   7.7   95.2/95.2   7.7   93.7/63.4   7.7   94.8/87.1   9.0   94.0/93.6  18.7
    two-way, unscaled       99.5/97.8  11.6   99.2/99.2  10.6    100/92.3  16.1   99.2/97.0  13.6   98.5/98.8  25.9
    streams only            84.9/78.0   6.5   73.1/73.1   4.8   96.8/81.3  12.7   79.2/72.3   7.7   49.4/59.4   7.6
    single outcomes         88.1/80.3   6.2   89.1/89.1   6.2   87.0/54.9   6.4   92.3/82.7   8.1   93.3/92.3  17.8
    t of fewest - 1         99.7/98.9  13.3   99.5/99.5  11.6    100/96.5  21.8    100/99.9  25.3    100/100  148.0
    width by true spread    7.7 / 9.4         7.7 / 7.7         8.0 / 16.2        9.1 / 11.4        18.8 / 20.6
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from memcon.seeds import SeedTree

__all__ = [
    "LEVEL",
    "RESAMPLES",
    "TASKS_ONLY",
    "TWO_WAY",
    "Interval",
    "mean_interval",
    "standard_error",
    "success_interval",
    "t_quantile",
    "these_seeds_interval",
]

Matrix = NDArray[np.float64]

RESAMPLES = 2000
LEVEL = 0.95
TWO_WAY = "two-way bootstrap, variance-corrected"
# Also where two ways are asked for and one stream ran: it says nothing about other seeds.
TASKS_ONLY = "bootstrap over tasks"
# Standard normal quantile of LEVEL.
_Z = 1.959963984540054
# With two streams Satterthwaite's estimate falls to 1 (t = 12.7) by chance: the floor leaves the coverage as it is and
# halves the mean width. Not for tables that join streams: they may well differ by more than their outcomes' noise.
_LEAST_FREEDOM = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval at LEVEL."""

    low: float
    high: float
    # TWO_WAY, TASKS_ONLY, or "wilson" where all outcomes are equal and a bootstrap would have no width.
    method: str = TWO_WAY


def mean_interval(
    values: Matrix, *, tables: Sequence[int] | None = None, least: float = -1.0, most: float = 1.0
) -> Interval | None:
    """Interval of the mean of `values` for other seeds and other tasks than those that ran; None without a value.

    Over one table it is `these_seeds_interval`, and its method says so; one task says nothing about others, and the
    interval is all that the mean can be.

    Args:
        values: outcomes or differences, shape (streams, tasks), NaN where there is no value.
        tables: which table each stream shares, shape (streams,); None = each has one of its own.
        least: smallest value that the mean can have.
        most: largest value that the mean can have.
    """
    sums, counts = _by_table(values, tables)
    if not counts.size:
        return None
    mean = float(np.nanmean(values))
    method = TASKS_ONLY if len(counts) == 1 else TWO_WAY
    if counts.shape[1] == 1:
        return _around(mean, np.inf, (least, most), method)
    joined = 1 < len(counts) < int((~np.isnan(values)).any(axis=1).sum())
    reach = _variances(sums, counts).reach(joined=joined)
    half = _half_width(_resampled_means(sums, counts) - mean, reach)
    # Resampled means of two tables have three values, whose quantile falls short of a normal one of the same spread.
    return _around(mean, max(half, reach) if joined else half, (least, most), method)


def standard_error(values: Matrix, *, tables: Sequence[int] | None = None) -> float | None:
    """Standard error of the mean of `values` for other seeds and tasks; None where one task or none has values.

    Over one table it speaks for other tasks only. Arguments as in `mean_interval`.
    """
    sums, counts = _by_table(values, tables)
    return math.sqrt(_variances(sums, counts).of_mean) if counts.shape[1] > 1 else None


def these_seeds_interval(values: Matrix, *, least: float = -1.0, most: float = 1.0) -> Interval | None:
    """Interval of the mean of `values` for other tasks under the very streams that ran; None without a value.

    A resampled task brings its values under all streams with it. Arguments as in `mean_interval`.
    """
    if not (values := _known(values)).size:
        return None
    present, mean = ~np.isnan(values), float(np.nanmean(values))
    counts = present.sum(axis=0, keepdims=True).astype(np.float64)
    sums = np.nansum(values, axis=0, keepdims=True)
    variance = _cluster_variance((sums - counts * mean)[0], int(counts.sum()))
    if values.shape[1] == 1:
        return _around(mean, np.inf, (least, most), TASKS_ONLY)
    reach = t_quantile(_satterthwaite([(variance, values.shape[1] - 1)])) * math.sqrt(variance)
    half = _half_width(_resampled_means(sums, counts) - mean, reach)
    return _around(mean, half, (least, most), TASKS_ONLY)


def success_interval(values: Matrix, *, tables: Sequence[int] | None = None) -> Interval | None:
    """`mean_interval` of 0/1 values; the Wilson interval over the distinct tasks when all of them are equal."""
    present = values[~np.isnan(values)]
    if present.size and np.all(present == present[0]):
        # Repeats of a task under other seeds are not counted as new evidence.
        return _wilson(float(present[0]), int((~np.isnan(values)).any(axis=0).sum()))
    return mean_interval(values, tables=tables, least=0.0)


def _known(values: Matrix) -> Matrix:
    """`values` without streams and tasks that have none."""
    present = ~np.isnan(values)
    return values[present.any(axis=1)][:, present.any(axis=0)]


def _by_table(values: Matrix, tables: Sequence[int] | None) -> tuple[Matrix, Matrix]:
    """Sum and count of the values of each table and task, both of shape (tables, tasks), without empty ones."""
    present = ~np.isnan(values)
    sums, counts = np.where(present, values, 0.0), present.astype(np.float64)
    if tables is not None and len(set(tables)) < len(values):
        _, place = np.unique(np.asarray(tables), return_inverse=True)
        members = np.eye(int(place.max()) + 1)[:, place]
        sums, counts = members @ sums, members @ counts
    rows, columns = counts.any(axis=1), counts.any(axis=0)
    return sums[rows][:, columns], counts[rows][:, columns]


def _half_width(distances: Matrix, reach: float) -> float:
    """Quantile of the resampled means' distances from the mean, scaled so that normal ones would give `reach`."""
    spread = float(distances.std())
    # Equal values have no spread.
    return reach / (_Z * spread) * float(np.quantile(np.abs(distances), LEVEL)) if spread > 0 else 0.0


def _around(mean: float, half: float, bounds: tuple[float, float], method: str) -> Interval:
    return Interval(low=max(bounds[0], mean - half), high=min(bounds[1], mean + half), method=method)


# --- variance ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variances:
    """What the variance of a mean is made of, each with its degrees of freedom."""

    table: tuple[float, int]
    task: tuple[float, int]
    outcome: tuple[float, int]

    @property
    def parts(self) -> list[tuple[float, int]]:
        """Those that add up to the variance of the mean."""
        # A part that is not above the noise of single outcomes has shown nothing of its own.
        found = [part for part in (self.table, self.task) if part[0] > self.outcome[0]]
        if len(found) == 2:
            found.append((-self.outcome[0], self.outcome[1]))
        return found or [self.outcome]

    @property
    def of_mean(self) -> float:
        """Variance of the mean."""
        return sum(part for part, _ in self.parts)

    def reach(self, *, joined: bool) -> float:
        """Half the width of a normal interval; by each part's own Student's t where tables are `joined` streams."""
        if not joined:
            return t_quantile(_satterthwaite(self.parts)) * math.sqrt(self.of_mean)
        by_table = max(self._squared(self.table), self._squared(self.outcome))
        return math.sqrt(by_table + self._squared((max(0.0, self.task[0] - self.outcome[0]), self.task[1])))

    @staticmethod
    def _squared(part: tuple[float, int]) -> float:
        return t_quantile(max(1, part[1])) ** 2 * part[0]


def _variances(sums: Matrix, counts: Matrix) -> _Variances:
    """Arguments as `_by_table` gives them."""
    tables, tasks = counts.shape
    count = int(counts.sum())
    deviations = sums - counts * (sums.sum() / count)
    return _Variances(
        table=(_cluster_variance(deviations.sum(axis=1), count), tables - 1),
        task=(_cluster_variance(deviations.sum(axis=0), count), tasks - 1),
        outcome=_outcome_variance(deviations, counts),
    )


def _cluster_variance(sums: Matrix, count: int) -> float:
    """Variance of a mean of `count` values from the sums of deviations within each cluster; 0 for one cluster."""
    clusters = len(sums)
    if clusters < 2:
        return 0.0
    return float((sums**2).sum()) / count**2 * clusters / (clusters - 1)


def _outcome_variance(deviations: Matrix, counts: Matrix) -> tuple[float, int]:
    """Variance of the mean from what neither table nor task explains, and its degrees of freedom.

    The least squares fit of table and task effects to the means of each table and task, weighted by their counts, tasks
    eliminated, since absent values make it unbalanced. 0 when nothing is left to estimate it from, or with one table or
    task, whose own spread it is then.

    Args:
        deviations: sums of deviations from the mean, shape (tables, tasks).
        counts: how many values each sum has.
    """
    if min(counts.shape) < 2:
        return 0.0, 1
    per_task, task_sums = counts.sum(axis=0), deviations.sum(axis=0)
    shares = counts / per_task
    table_sums = deviations.sum(axis=1) - shares @ task_sums
    effects, _, rank, _ = np.linalg.lstsq(np.diag(counts.sum(axis=1)) - shares @ counts.T, table_sums, rcond=None)
    present = counts > 0
    freedom = int(present.sum()) - counts.shape[1] - int(rank)
    if freedom < 1:
        return 0.0, 1
    squares = float((deviations[present] ** 2 / counts[present]).sum())
    rest = squares - float((task_sums**2 / per_task).sum() + effects @ table_sums)
    return max(0.0, rest) / freedom / int(counts.sum()), freedom


def _satterthwaite(parts: Sequence[tuple[float, int]]) -> float:
    """Degrees of freedom of a sum of variances that have the given ones (Satterthwaite 1946)."""
    whole = sum(part for part, _ in parts)
    spread = sum(part**2 / freedom for part, freedom in parts)
    return max(_LEAST_FREEDOM, whole**2 / spread) if spread else _LEAST_FREEDOM


@lru_cache(maxsize=256)
def t_quantile(freedom: float) -> float:
    """Two-sided quantile of Student's t at LEVEL, `freedom` >= 1.

    With t = sqrt(freedom) tan(x) the density is that of cos(x) ** (freedom - 1), which is integrated on a fine grid.
    """
    grid = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(grid) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    angle = float(np.interp(LEVEL, mass / mass[-1], grid))
    return math.sqrt(freedom) * math.tan(angle)


def _wilson(rate: float, count: int) -> Interval:
    """Wilson score interval of `rate` in `count` trials."""
    scale = 1 + _Z**2 / count
    middle = (rate + _Z**2 / (2 * count)) / scale
    half = _Z * math.sqrt(rate * (1 - rate) / count + _Z**2 / (4 * count**2)) / scale
    return Interval(low=max(0.0, middle - half), high=min(1.0, middle + half), method="wilson")


# --- resampling -------------------------------------------------------------------------------------------------------


def _resampled_means(sums: Matrix, counts: Matrix) -> Matrix:
    """Means under resampled tables and tasks, independently of each other, shape (<= RESAMPLES,).

    Args:
        sums: sum of the values of each table and task, shape (tables, tasks); one row where all stay together.
        counts: how many values each sum has.
    """
    row_counts, column_counts = _draws(*sums.shape)
    totals = ((row_counts @ sums) * column_counts).sum(axis=1)
    weights = ((row_counts @ counts) * column_counts).sum(axis=1)
    # A resample may miss every present value of a sparse matrix.
    means: Matrix = totals[weights > 0] / weights[weights > 0]
    return means


@lru_cache(maxsize=64)
def _draws(rows: int, columns: int) -> tuple[Matrix, Matrix]:
    """How often each row and each column is drawn, shapes (RESAMPLES, rows) and (RESAMPLES, columns).

    A function of the shape only, drawn from the seed tree: a report repeats to the bit, and groups of equal shape share
    their resamples, which also makes them comparable.
    """
    place = SeedTree(("report", "bootstrap", RESAMPLES, rows, columns))
    return _counts(place.child("rows"), rows), _counts(place.child("columns"), columns)


def _counts(place: SeedTree, size: int) -> Matrix:
    drawn = np.array(place.generator().choices(range(size), k=RESAMPLES * size), dtype=np.int64)
    drawn += np.repeat(np.arange(RESAMPLES, dtype=np.int64) * size, size)
    return np.bincount(drawn, minlength=RESAMPLES * size).reshape(RESAMPLES, size).astype(np.float64)
