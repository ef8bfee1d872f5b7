"""Which arm is best where: cross-fitted choices, and how many pulls a gap needs. Pure numpy.

An arm that is picked on the very outcomes that it is then judged by looks better than it is. So does one that is picked
on the same tasks under another seed, since what an arm comes to depends on the task. The oracles here pick their arms
on *other* tasks of the streams of *other* seeds (docs/prototype.md, 8); only the best single arm is picked in
hindsight, which errs against headroom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memcon.errors import InvariantError
from memcon_platform.report.folds import task_folds
from memcon_platform.study.estimates import Estimate, estimate
from memcon_platform.study.matrix import Floats, Ints, OutcomeMatrix

__all__ = ["Folds", "Need", "best_single", "contexts", "cross_fitted", "folds", "needs", "taken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """How many pulls it takes to tell a context's best arm from the best single arm."""

    level: str
    context: str
    # Evaluable tasks of the context over all streams.
    tasks: int
    # Picked most often over the folds; None when it is the best single arm itself.
    arm: str | None
    # The best single arm by reward, which may be another than by success.
    than: str
    # Mean reward of the cross-fitted arms above that of the best single arm; None when that is picked most often.
    gap: Estimate | None
    # Of one reward: the root of the mean of the variances under the picked arms and under the best single arm.
    sd: float
    # 8 sd^2 / gap^2 = 4 (s1^2 + s2^2) / gap^2: pulls of each of two arms until their difference is two standard errors;
    # None without a gap that is clear of noise: there is nothing to tell apart.
    pulls: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Folds:
    """What a pick leaves out: all streams of its own fold, and in all others the tasks of its own fold."""

    # Fold of each stream, shape (streams,), and of the task at each place, shape (streams, tasks).
    stream: Ints
    task: Ints
    # In words, what a pick is made on: other seeds if there are several.
    words: str

    @property
    def missing(self) -> str:
        """Why nothing can be picked elsewhere; "" when it can."""
        for values, name in ((self.stream, "stream"), (self.task, "task")):
            if len(np.unique(values)) < 2:
                return f"one {name} only: no oracle, since arms can be picked on no other {name}"
        return ""


def folds(matrix: OutcomeMatrix) -> Folds:
    """Streams by seed, or one by one where there is one seed; tasks by `task_folds`."""
    several = len(set(matrix.seeds.tolist())) > 1
    ids = np.array(matrix.task_ids)[matrix.task]
    known = zip(matrix.benchmark.ravel().tolist(), matrix.goal_type.ravel().tolist(), ids.ravel().tolist(), strict=True)
    fold_of = task_folds(known)
    by_task = np.array([fold_of[task] for task in matrix.task_ids], dtype=np.int64)
    return Folds(
        stream=matrix.seeds if several else np.arange(matrix.num_streams, dtype=np.int64),
        task=by_task[matrix.task],
        words=f"other {'seeds' if several else 'streams'} and tasks",
    )


def contexts(matrix: OutcomeMatrix, level: str) -> NDArray[Any]:
    """Context of each task, shape (streams, tasks): `level` is "benchmark" or "goal_type"; goal types stand alone."""
    found: NDArray[Any] = getattr(matrix, level)
    return found


def best_single(values: Floats, costs: Floats) -> int:
    """The arm with the highest mean of `values`, in hindsight; equal ones by lower `costs`, then by arm order."""
    return _best(values.reshape(-1, values.shape[2]), costs.reshape(-1, costs.shape[2]))


def cross_fitted(values: Floats, costs: Floats, *, labels: NDArray[Any], fold: Folds) -> Ints:
    """The arm for each task that was best in its context on streams and tasks of other folds, shape (streams, tasks).

    A context that has no other task there gets the arm that is best over all contexts there.

    Args:
        values: shape (streams, tasks, arms), NaN where there is none.
        costs: same shape (`OutcomeMatrix.costs`); decides between equal means.
        labels: context of each task, shape (streams, tasks).
        fold: of streams and tasks.

    Raises:
        InvariantError: there is one fold only, so that nothing can be picked elsewhere.
    """
    if fold.missing:
        raise InvariantError(
            f"cross-fitted choice of arms: {fold.missing}; expected at least two streams and two tasks"
        )
    picks = np.zeros(labels.shape, dtype=np.int64)
    for stream, task in product(np.unique(fold.stream), np.unique(fold.task)):
        own = (fold.stream == stream)[:, None] & (fold.task == task)
        others = (fold.stream != stream)[:, None] & (fold.task != task)
        fallback = _best(values[others], costs[others])
        for label in np.unique(labels[own]):
            train = (labels == label) & others
            pick = _best(values[train], costs[train]) if train.any() else fallback
            picks[(labels == label) & own] = pick
    return picks


def taken(values: NDArray[Any], picks: Ints) -> Floats:
    """The value of the picked arm of each task, shape (streams, tasks)."""
    found: Floats = np.take_along_axis(values, picks[:, :, None], axis=2)[:, :, 0].astype(np.float64)
    return found


def needs(matrix: OutcomeMatrix, rewards: Floats, level: str) -> list[Need]:
    """For each context of `level`: the gap of its best arm over the best single arm, and the pulls that it needs."""
    labels = contexts(matrix, level)
    single = best_single(rewards, matrix.costs)
    picks = cross_fitted(rewards, matrix.costs, labels=labels, fold=folds(matrix))
    chosen, alone = taken(rewards, picks), rewards[:, :, single]
    gaps, found = chosen - alone, []
    # The largest gap that these rewards allow.
    most = float(np.nanmax(rewards) - np.nanmin(rewards))
    for label in np.unique(labels):
        here = labels == label
        arm = int(np.bincount(picks[here]).argmax())
        sd = math.sqrt((np.nanvar(chosen[here]) + np.nanvar(alone[here])) / 2)
        gap = None if arm == single else estimate(gaps, tasks=matrix.task, mask=here, bounds=(-most, most))
        found.append(
            Need(
                level=level,
                context=str(label),
                tasks=int((~np.isnan(gaps[here])).sum()),
                arm=None if gap is None else matrix.action_ids[arm],
                than=matrix.action_ids[single],
                gap=gap,
                sd=sd,
                pulls=max(1, math.ceil(8 * sd**2 / gap.mean**2)) if gap and gap.is_clear else None,
            )
        )
    return found


def _best(values: Floats, costs: Floats) -> int:
    """Best column of (outcomes, arms): highest mean, then lowest cost, then arm order; the first of no outcomes."""
    if not len(values):
        return 0
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    means = np.where(counts > 0, np.where(known, values, 0.0).sum(axis=0) / np.maximum(counts, 1), -np.inf)
    # 12 digits: sums of the same outcomes in another order are equal.
    order = np.lexsort((np.arange(values.shape[1]), costs.mean(axis=0), -means.round(12)))
    return int(order[0])
