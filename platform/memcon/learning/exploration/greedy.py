"""Rules without an exploration bonus: `greedy`, and `epsilon_greedy`, with a share of uniform draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memcon import registry
from memcon.learning import kernel
from memcon.learning.exploration.evidence import Shrinkage, ShrinkingConfig, best_of, shrinkage_of
from memcon.learning.exploration.rule import Mixed, Rule, TieSet, TieSetRule, check_parameters, number
from memcon.learning.q_table import KeyView
from memcon.policy_types import LearningSettings

__all__ = ["EPSILON_GREEDY", "GREEDY", "EpsilonGreedyConfig", "GreedyConfig"]


@dataclass(frozen=True, slots=True)
class _Greedy(TieSetRule):
    """The arm with the largest mean."""

    shrinkage: Shrinkage

    def ties(self, views: tuple[KeyView, ...], allowed: tuple[str, ...]) -> TieSet:
        found = self.shrinkage.estimates(views)
        best = best_of(found.means, views[0].action_ids, allowed)
        return TieSet(best=best, columns={"mean": found.means, "effective_count": found.counts})

    def at_one_key(self) -> kernel.Selection:
        cap = self.shrinkage.count_cap
        return kernel.Selection(
            name="shrunk", first=self.shrinkage.prior_strength, second=-1.0 if cap is None else float(cap)
        )


@dataclass(slots=True, kw_only=True)
class GreedyConfig(ShrinkingConfig):
    """The best arm so far: Eq. 6 without its bonus.

    The default is the paper's value (`ema`, which starts at the prior). With `mean` or `capped_mean` the prior may
    count for `prior_strength` returns; at 0 an arm's first return replaces its prior.
    """

    rule: ClassVar[str] = "greedy"

    prior_strength: float = 0.0

    @staticmethod
    def build(settings: LearningSettings) -> Rule:
        """As in `LearnedConfig`."""
        check_parameters(settings, *GreedyConfig.own)
        return _Greedy(shrinkage_of(settings, least_prior=0.0))


@dataclass(slots=True, kw_only=True)
class EpsilonGreedyConfig(GreedyConfig):
    """`greedy`, with a share of the decisions drawn uniformly."""

    rule: ClassVar[str] = "epsilon_greedy"
    own: ClassVar[tuple[str, ...]] = (*GreedyConfig.own, "epsilon")

    # That share.
    epsilon: float = 0.1

    @staticmethod
    def build(settings: LearningSettings) -> Rule:
        """As in `LearnedConfig`."""
        check_parameters(settings, *EpsilonGreedyConfig.own)
        greedy = _Greedy(shrinkage_of(settings, least_prior=0.0))
        return Mixed(rule=greedy, share=number(settings, "epsilon", 0.0, 1.0), place="epsilon")


GREEDY = registry.Plugin(config=GreedyConfig, build=GreedyConfig.build, summary="the arm with the best mean so far")
EPSILON_GREEDY = registry.Plugin(
    config=EpsilonGreedyConfig, build=EpsilonGreedyConfig.build, summary="greedy, with a share of uniform draws"
)
