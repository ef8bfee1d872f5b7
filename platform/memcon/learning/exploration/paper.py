"""The paper's rule: UCB with per-key counts and an infinite bonus for unvisited arms (Eq. 6); greedy once frozen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from memcon import registry
from memcon.errors import ConfigError
from memcon.learning import kernel
from memcon.learning.exploration.learned import LearnedConfig
from memcon.learning.exploration.rule import Rule, TieSet, TieSetRule, check_parameters, number
from memcon.learning.q_table import KeyView
from memcon.policy_types import LearningSettings

__all__ = ["UCB", "UcbConfig", "ucb_bonus"]


def ucb_bonus(c: float, log_total: float, taken: int) -> float:
    """Exploration bonus of Eq. 6, c * sqrt(ln N / N_a); infinite for an unvisited arm (MC-26).

    `log_total` is ln N of the key's own count, 0 when nothing was taken there.
    """
    return c * math.sqrt(log_total / taken) if taken else math.inf


@dataclass(frozen=True, slots=True)
class _Ucb(TieSetRule):
    """Eq. 6 with per-key counts; unvisited arms first, by prior, then by arm order (MC-26, MC-27)."""

    c: float

    def ties(self, views: tuple[KeyView, ...], allowed: tuple[str, ...]) -> TieSet:
        view = views[0]
        total = sum(view.taken)
        log_total = math.log(total) if total else 0.0
        bonuses = tuple([ucb_bonus(self.c, log_total, taken) for taken in view.taken])
        scores = tuple([q + bonus for q, bonus in zip(view.q, bonuses, strict=True)])
        options = range(len(scores)) if len(allowed) == len(scores) else [view.action_ids.index(arm) for arm in allowed]
        best = max([scores[i] for i in options])
        forced = best == math.inf
        if forced:
            unvisited = [i for i in options if not view.taken[i]]
            # max keeps the first of equals: arm order.
            tied = [max(unvisited, key=view.priors.__getitem__)]
        else:
            tied = [i for i in options if scores[i] == best]
        return TieSet(best=tuple(tied), forced=forced, columns={"bonus": bonuses, "score": scores})

    def at_one_key(self) -> kernel.Selection:
        return kernel.Selection(name="ucb", first=self.c)


@dataclass(frozen=True, slots=True)
class _Settled(TieSetRule):
    """Eq. 6 without its bonus, over arms with an outcome; over all by their priors where there is none.

    For a frozen table, whose counts stand still: an arm that was never tried would be due for ever.
    """

    def ties(self, views: tuple[KeyView, ...], allowed: tuple[str, ...]) -> TieSet:
        view = views[0]
        options = [view.action_ids.index(arm) for arm in allowed]
        options = [i for i in options if view.credited[i]] or options
        best = max([view.q[i] for i in options])
        return TieSet(best=tuple([i for i in options if view.q[i] == best]))

    def at_one_key(self) -> kernel.Selection:
        return kernel.Selection(name="settled")


@dataclass(slots=True, kw_only=True)
class UcbConfig(LearnedConfig):
    """The paper's policy."""

    rule: ClassVar[str] = "ucb"
    own: ClassVar[tuple[str, ...]] = ("c",)

    # Exploration coefficient of Eq. 6; the profile's where it is null.
    c: float | None = None

    @staticmethod
    def build(settings: LearningSettings) -> Rule:
        """As in `LearnedConfig`."""
        check_parameters(settings, *UcbConfig.own)
        if settings.pooling:
            raise ConfigError(
                f"pooling = {list(settings.pooling)}: 'ucb' counts at one key (Eq. 6); "
                "take 'bayes_ucb', its form with evidence from coarser keys, or leave pooling empty"
            )
        c = number(settings, "c", 0.0, 1000.0)
        return _Settled() if settings.frozen else _Ucb(c)


UCB = registry.Plugin(config=UcbConfig, build=UcbConfig.build, summary="UCB with per-key counts (paper Eq. 6)")
