"""UCB with the prior as evidence: a finite bonus with the effective sample size (Proposition D.20, reading A-12)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from memcon import registry
from memcon.learning.exploration.evidence import Shrinkage, ShrinkingConfig, best_of, shrinkage_of
from memcon.learning.exploration.rule import Rule, TieSet, TieSetRule, check_parameters, number
from memcon.learning.q_table import KeyView
from memcon.policy_types import LearningSettings

__all__ = ["BAYES_UCB", "BayesUcbConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _BayesUcb(TieSetRule):
    """Posterior mean + c * sqrt(ln N / m_eff), the index of D.20; nothing is forced.

    N is the number of decisions taken at the finest key, all arms together as in Eq. 6, and at least 1: so ln N is
    never below 0, and the first two decisions at a key go by the posterior mean alone. m_eff is the effective count
    of `memcon.learning.exploration.evidence` by decisions taken, open ones included.

    With one key, estimator `mean` and no open decision, mean and m_eff are the printed (32) and (35), with
    prior_strength = sigma^2 / sigma_0^2. With pooling, m_eff also holds what coarser keys tell, at most
    `pool_strength`. With a count cap m_eff stops while N grows: every arm is tried again for ever.
    """

    shrinkage: Shrinkage
    c: float

    def ties(self, views: tuple[KeyView, ...], allowed: tuple[str, ...]) -> TieSet:
        found = self.shrinkage.estimates(views)
        counts = self.shrinkage.pulls(views)
        log_total = math.log(max(1, sum(views[0].taken)))
        bonuses = tuple([self.c * math.sqrt(log_total / count) for count in counts])
        scores = tuple([mean + bonus for mean, bonus in zip(found.means, bonuses, strict=True)])
        return TieSet(
            best=best_of(scores, views[0].action_ids, allowed),
            columns={"mean": found.means, "effective_count": counts, "bonus": bonuses, "score": scores},
        )


@dataclass(slots=True, kw_only=True)
class BayesUcbConfig(ShrinkingConfig):
    """UCB without forced visits: the prior counts for `prior_strength` returns."""

    rule: ClassVar[str] = "bayes_ucb"
    own: ClassVar[tuple[str, ...]] = (*ShrinkingConfig.own, "c")

    estimator: str = "mean"
    # Exploration coefficient of Eq. 6; the profile's where it is null.
    c: float | None = None

    @staticmethod
    def build(settings: LearningSettings) -> Rule:
        """As in `LearnedConfig`."""
        check_parameters(settings, *BayesUcbConfig.own)
        return _BayesUcb(shrinkage=shrinkage_of(settings), c=number(settings, "c", 0.0, 1000.0))


BAYES_UCB = registry.Plugin(
    config=BayesUcbConfig,
    build=BayesUcbConfig.build,
    summary="UCB with a finite bonus, prior and coarser keys as evidence (D.20)",
)
