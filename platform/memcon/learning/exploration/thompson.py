"""Thompson sampling on the shrunk estimates, and `pooled`, our preset of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from memcon import checks, ids, registry
from memcon.learning.exploration.draws import normal
from memcon.learning.exploration.evidence import Estimates, Shrinkage, ShrinkingConfig, best_of, shrinkage_of
from memcon.learning.exploration.largest import chance_of_largest
from memcon.learning.exploration.rule import Choice, Rule, check_parameters, number
from memcon.learning.q_table import KeyView
from memcon.policy_types import LearningSettings

__all__ = ["POOLED", "THOMPSON", "PooledConfig", "ThompsonConfig"]

# Far beyond any spread of returns, and above 0, so that every arm keeps a chance.
_LEAST_SIGMA, _MOST_SIGMA = 1e-3, 1e3
# As far as a table's settings take it.
_MOST_PRIOR = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Thompson:
    """One draw z(a) ~ Normal(mean, sigma / sqrt(effective count)) an arm; the largest is played."""

    shrinkage: Shrinkage
    # Standard deviation of one return, taken as known.
    sigma: float

    def choose(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...], draw: int) -> Choice:
        arms = views[0].action_ids
        found = self.shrinkage.estimates(views)
        # One sub-hash an arm: what is allowed beside it does not move an arm's draw.
        samples = tuple(
            [
                mean + deviation * normal(ids.draw64("arm", draw, arm))
                for arm, mean, deviation in zip(arms, found.means, self._deviations(found), strict=True)
            ]
        )
        best = best_of(samples, arms, allowed)
        return Choice(
            action_id=arms[best[0]],
            tie_set=(arms[best[0]],),
            forced=False,
            columns={"mean": found.means, "effective_count": found.counts, "sample": samples},
        )

    def probabilities(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...]) -> tuple[float, ...]:
        arms = views[0].action_ids
        found = self.shrinkage.estimates(views)
        deviations = self._deviations(found)
        options = [arms.index(arm) for arm in allowed]
        shares = chance_of_largest(tuple([found.means[i] for i in options]), tuple([deviations[i] for i in options]))
        probabilities = [0.0] * len(arms)
        for i, share in zip(options, shares, strict=True):
            probabilities[i] = share
        return tuple(probabilities)

    def _deviations(self, found: Estimates) -> tuple[float, ...]:
        return tuple([self.sigma / math.sqrt(count) for count in found.counts])


@dataclass(slots=True, kw_only=True)
class ThompsonConfig(ShrinkingConfig):
    """Thompson sampling with normal returns of a known deviation."""

    rule: ClassVar[str] = "thompson"
    own: ClassVar[tuple[str, ...]] = (*ShrinkingConfig.own, "sigma")

    estimator: str = "mean"
    # Standard deviation of one return.
    sigma: float = 0.5

    @staticmethod
    def build(settings: LearningSettings) -> Rule:
        """As in `LearnedConfig`."""
        check_parameters(settings, *ThompsonConfig.own)
        sigma = number(settings, "sigma", _LEAST_SIGMA, _MOST_SIGMA)
        return _Thompson(shrinkage=shrinkage_of(settings), sigma=sigma)


@dataclass(slots=True, kw_only=True)
class PooledConfig(ThompsonConfig):
    """Our preset, not the paper's: Thompson sampling over goal type and benchmark, for tables that many tasks share.

    Made for at least 500 tasks a table, or a matching warm table; below that a static arm did as well or better.
    """

    rule: ClassVar[str] = "pooled"

    estimator: str = "capped_mean"
    count_cap: int | None = 100
    # The priors of Table 6 hide NoOp where it is the best arm: all arms start alike, at `prior_mean`.
    warm_start: bool = False
    prior_mean: float = 0.3
    action_set: str = "compact"
    state_key: str = "benchmark+goal_type"
    pooling: tuple[str, ...] = ("benchmark",)

    def __post_init__(self) -> None:
        # By its own name: it becomes the prior of every arm, and would be refused as that of the first one.
        checks.in_range("prior_mean", self.prior_mean, -_MOST_PRIOR, _MOST_PRIOR)
        ThompsonConfig.__post_init__(self)

    def _flat_prior(self) -> float:
        return float(self.prior_mean)

    def preset_sections(self) -> Mapping[str, Mapping[str, Any]]:
        """Sections of a run's config that belong to the preset, under what the entry itself says."""
        return {"control": {"decision_points": "start"}, "reward": {"token_cost": 0.1}}


THOMPSON = registry.Plugin(
    config=ThompsonConfig,
    build=ThompsonConfig.build,
    summary="Thompson sampling, shrunk to the prior and to coarser keys",
)
POOLED = registry.Plugin(
    config=PooledConfig,
    build=PooledConfig.build,
    summary="our preset: Thompson sampling pooled over goal type and benchmark",
)
