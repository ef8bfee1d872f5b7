"""Which arm is best where: cross-fitted choices, and how many pulls a gap needs. Pure numpy.

An arm that is picked on the very outcomes that it is then judged by looks better than it is. The oracles here pick
their arms on the streams of *other* seeds (learning_value.md section 8, 1); only the best single arm is picked in
hindsight, which errs against headroom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memcon.errors import InvariantError
from memcon_platform.study.estimates import Estimate, estimate
from memcon_platform.study.matrix import Floats, Ints, OutcomeMatrix

__all__ = ["Need", "best_single", "contexts", "cross_fitted", "folds", "needs", "taken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """How many pulls it takes to tell a context's best arm from the best single arm."""

    level: str
    context: str
    # Evaluable tasks of the context over all streams.
    tasks: int
    # Picked most often over the folds; None when it is the best single arm itself.
    arm: str | None
    # Mean reward of the cross-fitted arm above that of the best single arm, over streams; None when it is that arm.
    gap: Estimate | None
    # Standard deviation of one reward of either arm.
    sd: float
    # 8 sd^2 / gap^2: pulls of each of two arms until their difference is two standard errors; None without a gap.
    pulls: int | None


def folds(matrix: OutcomeMatrix) -> tuple[Ints, str]:
    """Fold of each stream, shape (streams,), and in words what a pick was made on: other seeds if there are several."""
    if len(set(matrix.seeds.tolist())) > 1:
        return matrix.seeds, "other seeds"
    return np.arange(matrix.num_streams, dtype=np.int64), "other streams"


def contexts(matrix: OutcomeMatrix, level: str) -> NDArray[Any]:
    """Context of each task, shape (streams, tasks): `level` is "benchmark" or "goal_type"; goal types stand alone."""
    found: NDArray[Any] = getattr(matrix, level)
    return found


def best_single(values: Floats, costs: Floats) -> int:
    """The arm with the highest mean of `values`, in hindsight; equal ones by lower `costs`, then by arm order."""
    return _best(values.reshape(-1, values.shape[2]), costs.reshape(-1, costs.shape[2]))


def cross_fitted(values: Floats, costs: Floats, *, labels: NDArray[Any], fold: Ints) -> Ints:
    """The arm for each task that was best in its context on the streams of the other folds, shape (streams, tasks).

    A context that no other fold has gets the arm that is best over all contexts there.

    Args:
        values: shape (streams, tasks, arms), NaN where there is none.
        costs: same shape (`OutcomeMatrix.costs`); decides between equal means.
        labels: context of each task, shape (streams, tasks).
        fold: fold of each stream, shape (streams,).

    Raises:
        InvariantError: there is one fold only, so that nothing can be picked elsewhere.
    """
    if len(np.unique(fold)) < 2:
        raise InvariantError("cross-fitted choice of arms: one fold; expected at least two seeds or streams")
    picks = np.zeros(labels.shape, dtype=np.int64)
    for own in np.unique(fold):
        others = fold != own
        fallback = best_single(values[others], costs[others])
        for label in np.unique(labels):
            train = (labels == label) & others[:, None]
            pick = _best(values[train], costs[train]) if train.any() else fallback
            picks[(labels == label) & (fold == own)[:, None]] = pick
    return picks


def taken(values: NDArray[Any], picks: Ints) -> Floats:
    """The value of the picked arm of each task, shape (streams, tasks)."""
    found: Floats = np.take_along_axis(values, picks[:, :, None], axis=2)[:, :, 0].astype(np.float64)
    return found


def needs(matrix: OutcomeMatrix, rewards: Floats, level: str) -> list[Need]:
    """For each context of `level`: the gap of its best arm over the best single arm, and the pulls that it needs."""
    labels, (fold, _) = contexts(matrix, level), folds(matrix)
    single = best_single(rewards, matrix.costs)
    picks = cross_fitted(rewards, matrix.costs, labels=labels, fold=fold)
    gaps = taken(rewards, picks) - rewards[:, :, single]
    found = []
    for label in np.unique(labels):
        here = labels == label
        arm = int(np.bincount(picks[here]).argmax())
        sd = float(np.nanstd(rewards[here][:, [arm, single]], axis=0).mean())
        gap = None if (picks[here] == single).all() else estimate(gaps, mask=here)
        found.append(
            Need(
                level=level,
                context=str(label),
                tasks=int((~np.isnan(gaps[here])).sum()),
                arm=None if gap is None else matrix.action_ids[arm],
                gap=gap,
                sd=sd,
                pulls=math.ceil(8 * sd**2 / gap.mean**2) if gap and gap.mean > 0 else None,
            )
        )
    return found


def _best(values: Floats, costs: Floats) -> int:
    """Best column of (outcomes, arms): highest mean, then lowest cost, then arm order."""
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    means = np.where(counts > 0, np.where(known, values, 0.0).sum(axis=0) / np.maximum(counts, 1), -np.inf)
    # 12 digits: sums of the same outcomes in another order are equal.
    order = np.lexsort((np.arange(values.shape[1]), costs.mean(axis=0), -means.round(12)))
    return int(order[0])
