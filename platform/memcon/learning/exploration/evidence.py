"""Estimates from a chain of keys: each mean is shrunk towards that of the coarser key, the coarsest to the prior.

One recursion serves every rule that pools (reading A-31; the preset is ours, and so is the form). Coarsest key first,
with prior mass p0 and pooling mass m0, n = min(credited, count_cap):

    m1 = (p0 prior + n q) / (p0 + n)     e1 = n + p0
    m2 = (m0 m1 + n q) / (m0 + n)        e2 = n + min(e1, m0)     and so on to the finest key.

A coarse key holds the returns of its finer keys too, so these count at both; min(e1, m0) bounds what that can feign.

q must be the mean of n returns: then m1 is the posterior mean of Proposition D.20 with p0 = sigma^2 / sigma_0^2 and e1
its effective sample size. The value of estimator `ema` is no such mean: it holds the prior already, with weight
(1 - alpha)^n, and its precision stops growing. So `ema` goes with p0 = 0 and one key only, where m1 is q itself.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from memcon.errors import ConfigError
from memcon.learning.exploration.learned import LearnedConfig
from memcon.learning.exploration.rule import number
from memcon.learning.q_table import KeyView
from memcon.policy_types import LearningSettings

__all__ = ["Estimates", "Shrinkage", "ShrinkingConfig", "best_of", "shrinkage_of"]

# Below it a posterior would be as wide as no world is; above it nothing would ever be learned.
_LEAST_STRENGTH, _MOST_STRENGTH = 0.01, 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Posterior of each arm at the finest key, in arm order."""

    # float64, shape (num_arms,)
    means: tuple[float, ...]
    # Effective numbers of returns behind the means: float64, shape (num_arms,).
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrinkage:
    """How many returns the prior and a coarser key are worth."""

    prior_strength: float
    pool_strength: float
    count_cap: int | None

    def estimates(self, views: tuple[KeyView, ...]) -> Estimates:
        """Means and effective counts of all arms over the chain `views`, finest first, from returns that came in."""
        means = list(views[0].priors)
        strength = self.prior_strength
        for view in reversed(views):
            for i, n in enumerate(self._counts(view.credited)):
                means[i] = _shrunk(means[i], strength, view.q[i], n)
            strength = self.pool_strength
        return Estimates(means=tuple(means), counts=self._effective(views, lambda view: view.credited))

    def pulls(self, views: tuple[KeyView, ...]) -> tuple[float, ...]:
        """Effective counts by decisions taken, open ones included as in Eq. 6: parallel streams spread over arms."""
        return self._effective(views, lambda view: view.taken)

    def _effective(
        self, views: tuple[KeyView, ...], counted: Callable[[KeyView], tuple[int, ...]]
    ) -> tuple[float, ...]:
        effective = [self.prior_strength] * len(views[0].action_ids)
        most = self.prior_strength
        for view in reversed(views):
            effective = [n + min(e, most) for n, e in zip(self._counts(counted(view)), effective, strict=True)]
            most = self.pool_strength
        return tuple(effective)

    def _counts(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        return counts if self.count_cap is None else tuple([min(n, self.count_cap) for n in counts])


def _shrunk(mean: float, strength: float, value: float, n: int) -> float:
    # Without a strength the value stands as it is, to the last bit.
    if not strength:
        return value if n else mean
    return (strength * mean + n * value) / (strength + n)


def best_of(scores: tuple[float, ...], arms: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[int, ...]:
    """Indices of the allowed arms with the largest score, exact equals all, in arm order."""
    options = range(len(arms)) if len(allowed) == len(arms) else [arms.index(arm) for arm in allowed]
    best = max([scores[i] for i in options])
    return tuple([i for i in options if scores[i] == best])


@dataclass(slots=True, kw_only=True)
class ShrinkingConfig(LearnedConfig, ABC):
    """Keys of every rule that shrinks its estimates."""

    own: ClassVar[tuple[str, ...]] = ("prior_strength", "pool_strength")

    # Returns that the prior counts for, p0, and that a coarser key counts for, m0.
    prior_strength: float = 2.0
    pool_strength: float = 8.0


def shrinkage_of(settings: LearningSettings, *, least_prior: float = _LEAST_STRENGTH) -> Shrinkage:
    """The shrinkage that the settings of a rule name.

    Raises:
        ConfigError: a strength is out of range, or the estimator's values cannot be shrunk.
    """
    prior = number(settings, "prior_strength", least_prior, _MOST_STRENGTH)
    pool = number(settings, "pool_strength", _LEAST_STRENGTH, _MOST_STRENGTH)
    if settings.estimator == "ema" and (settings.pooling or prior):
        raise ConfigError(
            f"estimator = 'ema' with prior_strength {prior:g} and pooling {list(settings.pooling)}: its values hold "
            f"the prior already and are no means of returns; '{settings.rule}' needs 'mean' or 'capped_mean' for these"
        )
    return Shrinkage(prior_strength=prior, pool_strength=pool, count_cap=settings.count_cap)
