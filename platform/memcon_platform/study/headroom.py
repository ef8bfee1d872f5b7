"""What there is to learn: the yardsticks that stand beside every learner, and the verdict on headroom. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memcon.learning.credit import RewardSettings
from memcon_platform.report.conventions import DEFAULT_ARM, NOOP_ARM
from memcon_platform.study.estimates import RATE, Estimate, estimate
from memcon_platform.study.matrix import Floats, Ints, OutcomeMatrix
from memcon_platform.study.oracles import Need, best_single, contexts, cross_fitted, folds, needs, taken

__all__ = ["LEVELS", "ArmAt", "Headroom", "Oracle", "Played", "Yardstick", "headroom", "oracle_picks"]

# Context level -> how it is called.
LEVELS = {"benchmark": "family", "goal_type": "goal type"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What one way of choosing arms got, each of shape (streams, tasks), NaN where unevaluable."""

    success: Floats
    reward: Floats
    tokens: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """One way of choosing arms that learns nothing while it runs."""

    name: str
    # Arm, where it is one, and how it was chosen.
    arm: str | None
    chosen: str
    success: Estimate | None
    last_quarter: Estimate | None
    # Paired with the best single arm in hindsight, in shares of success.
    difference: Estimate | None
    difference_last_quarter: Estimate | None
    reward: float
    # Means a task.
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """The verdict at one level of contexts."""

    level: str
    headroom: Estimate | None
    # Injected tokens saved against the best single arm, as a share of its own.
    tokens_saved: float
    has_headroom: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAt:
    """One arm in one context of a level."""

    level: str
    context: str
    arm: str
    success: Estimate | None
    reward: float
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """All that the matrix says before anything learns."""

    # What cross-fitted picks were made on: "other seeds and tasks" or "other streams and tasks"; "" where
    # nothing can be picked elsewhere, and why.
    picked_on: str
    missing: str
    best_arm: str
    yardsticks: tuple[Yardstick, ...]
    oracles: tuple[Oracle, ...]
    arms: tuple[ArmAt, ...]
    needs: tuple[Need, ...]


def headroom(matrix: OutcomeMatrix, reward: RewardSettings) -> Headroom:
    """Yardsticks, oracles, arms by family and the pulls that gaps need, with rewards under `reward`."""
    rewards = matrix.rewards(reward)
    best = best_single(matrix.success, matrix.costs)
    base = _play_arm(matrix, rewards, best)
    rows: list[tuple[str, str | None, str, Played]] = [
        ("best single arm", matrix.action_ids[best], "in hindsight", base)
    ]
    levels = _levels(matrix)
    fold = folds(matrix)
    picked_on = "" if fold.missing else fold.words
    if fold.missing:
        levels = ()
    else:
        everywhere = np.zeros(matrix.success.shape[:2], dtype=np.int64)
        picks = cross_fitted(matrix.success, matrix.costs, labels=everywhere, fold=fold)
        rows.append(("best single arm", None, f"on {picked_on}", _played(matrix, rewards, picks)))
    for name, arm in (("default arm", DEFAULT_ARM), ("no memory", NOOP_ARM)):
        if arm in matrix.action_ids:
            rows.append((name, arm, "fixed", _play_arm(matrix, rewards, matrix.arm(arm))))
    rows.append(("random arm", None, "expectation", _random(matrix, rewards)))
    oracles = []
    for level in levels:
        picks = oracle_picks(matrix, level)
        played = _played(matrix, rewards, picks)
        rows.append((f"oracle per {LEVELS[level]}", None, f"on {picked_on}", played))
        oracles.append(_oracle(matrix, level, played, base))
    return Headroom(
        picked_on=picked_on,
        missing=fold.missing,
        best_arm=matrix.action_ids[best],
        yardsticks=tuple(_yardstick(matrix, row, base) for row in rows),
        oracles=tuple(oracles),
        arms=tuple(_arms(matrix, rewards)),
        needs=tuple(need for level in levels for need in needs(matrix, rewards, level)),
    )


def oracle_picks(matrix: OutcomeMatrix, level: str) -> Ints:
    """The arm of the cross-fitted oracle at `level` for each task, shape (streams, tasks)."""
    return cross_fitted(matrix.success, matrix.costs, labels=contexts(matrix, level), fold=folds(matrix))


def _play_arm(matrix: OutcomeMatrix, rewards: Floats, arm: int) -> Played:
    """What arm number `arm` got everywhere."""
    tokens = matrix.tokens[:, :, arm].astype(np.float64)
    return Played(success=matrix.success[:, :, arm], reward=rewards[:, :, arm], tokens=tokens)


def _levels(matrix: OutcomeMatrix) -> tuple[str, ...]:
    """Levels with more than one context: over one alone the oracle is a single arm."""
    return tuple(level for level in LEVELS if len(np.unique(contexts(matrix, level))) > 1)


def _played(matrix: OutcomeMatrix, rewards: Floats, picks: Ints) -> Played:
    return Played(
        success=taken(matrix.success, picks), reward=taken(rewards, picks), tokens=taken(matrix.tokens, picks)
    )


def _random(matrix: OutcomeMatrix, rewards: Floats) -> Played:
    """The mean over arms: what a uniform draw gets on average, without the noise of drawing."""
    return Played(success=matrix.success.mean(axis=2), reward=rewards.mean(axis=2), tokens=matrix.tokens.mean(axis=2))


def _yardstick(matrix: OutcomeMatrix, row: tuple[str, str | None, str, Played], base: Played) -> Yardstick:
    name, arm, chosen, played = row
    last = matrix.last_quarter[None, :]
    difference = None if played is base else played.success - base.success
    return Yardstick(
        name=name,
        arm=arm,
        chosen=chosen,
        success=estimate(played.success, tasks=matrix.task, bounds=RATE),
        last_quarter=estimate(played.success, tasks=matrix.task, mask=last, bounds=RATE),
        difference=None if difference is None else estimate(difference, tasks=matrix.task),
        difference_last_quarter=None if difference is None else estimate(difference, tasks=matrix.task, mask=last),
        reward=float(np.nanmean(played.reward)),
        tokens=float(played.tokens.mean()),
    )


def _oracle(matrix: OutcomeMatrix, level: str, played: Played, base: Played) -> Oracle:
    found = estimate(played.success - base.success, tasks=matrix.task)
    spent = float(base.tokens.mean())
    return Oracle(
        level=level,
        headroom=found,
        tokens_saved=1 - float(played.tokens.mean()) / spent if spent else 0.0,
        has_headroom=found is not None and found.is_clear,
    )


def _arms(matrix: OutcomeMatrix, rewards: Floats) -> list[ArmAt]:
    found = []
    for level in LEVELS:
        labels = contexts(matrix, level)
        for context in np.unique(labels):
            here = labels == context
            for arm, name in enumerate(matrix.action_ids):
                found.append(
                    ArmAt(
                        level=level,
                        context=str(context),
                        arm=name,
                        success=estimate(matrix.success[:, :, arm], tasks=matrix.task, mask=here, bounds=RATE),
                        reward=float(np.nanmean(rewards[here][:, arm])),
                        tokens=float(matrix.tokens[here][:, arm].mean()),
                    )
                )
    return found
