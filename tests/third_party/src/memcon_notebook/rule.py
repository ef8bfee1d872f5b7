"""Policy `boltzmann`: softmax exploration over shrunk means.

The distribution is that of Sutton and Barto, Reinforcement Learning, 2nd edition, Eq. 2.11, with mean / temperature as
the preference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from memcon.learning.exploration import Choice, Rule
from memcon.learning.exploration.draws import unit
from memcon.learning.exploration.evidence import Estimates, Shrinkage, ShrinkingConfig, shrinkage_of
from memcon.learning.exploration.rule import check_parameters, number
from memcon.learning.q_table import KeyView
from memcon.policy_types import LearningSettings
from memcon.registry import Plugin

__all__ = ["PLUGIN", "BoltzmannConfig"]

# Below it the differences of returns of a table would overflow the quotient; such a rule is `greedy`.
_LEAST_TEMPERATURE, _MOST_TEMPERATURE = 1e-3, 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Boltzmann:
    """p(a) is proportional to exp(mean(a) / tau), with tau = temperature / (1 + N)^decay.

    N is the number of decisions taken at the finest key, all arms together, open ones included.
    """

    shrinkage: Shrinkage
    temperature: float
    decay: float

    def choose(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...], draw: int) -> Choice:
        """As in `Rule`: the arm at `draw` along the probabilities laid end to end."""
        found = self.shrinkage.estimates(views)
        shares = self._shares(views, found, allowed)
        arm = _at(unit(draw), views[0].action_ids, shares)
        return Choice(
            action_id=arm,
            tie_set=(arm,),
            forced=False,
            columns={"mean": found.means, "effective_count": found.counts},
        )

    def probabilities(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...]) -> tuple[float, ...]:
        """As in `Rule`."""
        return self._shares(views, self.shrinkage.estimates(views), allowed)

    def _shares(self, views: tuple[KeyView, ...], found: Estimates, allowed: tuple[str, ...]) -> tuple[float, ...]:
        tau = self.temperature / (1 + sum(views[0].taken)) ** self.decay
        arms = views[0].action_ids
        options = [arm in allowed for arm in arms]
        best = max(mean for mean, allowed_here in zip(found.means, options, strict=True) if allowed_here)
        # From the best mean downwards: no exponent is above 0, so that none overflows.
        weights = [
            math.exp((mean - best) / tau) if allowed_here else 0.0
            for mean, allowed_here in zip(found.means, options, strict=True)
        ]
        total = math.fsum(weights)
        return tuple(weight / total for weight in weights)


def _at(point: float, arms: tuple[str, ...], shares: tuple[float, ...]) -> str:
    """The arm in whose share of (0, 1) `point` lies; never one of share 0."""
    options = [(arm, share) for arm, share in zip(arms, shares, strict=True) if share > 0.0]
    end = 0.0
    for arm, share in options[:-1]:
        end += share
        if point < end:
            return arm
    return options[-1][0]


@dataclass(slots=True, kw_only=True)
class BoltzmannConfig(ShrinkingConfig):
    """Softmax exploration; keys, estimator, arms and shrinkage are those of every rule of memcon."""

    rule: ClassVar[str] = "boltzmann"
    own: ClassVar[tuple[str, ...]] = (*ShrinkingConfig.own, "temperature", "decay")

    estimator: str = "mean"
    # Difference of returns at which an arm is e times as likely as another, before the first decision at a key.
    temperature: float = 0.3
    # 0: the temperature stands; 0.5: it falls with the root of the decisions taken.
    decay: float = 0.25

    @staticmethod
    def build(settings: LearningSettings) -> Rule:
        """As in `LearnedConfig`."""
        check_parameters(settings, *BoltzmannConfig.own)
        return _Boltzmann(
            shrinkage=shrinkage_of(settings),
            temperature=number(settings, "temperature", _LEAST_TEMPERATURE, _MOST_TEMPERATURE),
            decay=number(settings, "decay", 0.0, 1.0),
        )


PLUGIN = Plugin(
    config=BoltzmannConfig,
    build=BoltzmannConfig.build,
    summary="softmax exploration; its temperature falls with the decisions at a key",
)
