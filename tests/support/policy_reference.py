"""Eq. 6 and Eq. 7 once more, written from the paper without a look at the library: slow, plain, its own words."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

# Table 7 by operation, and Table 6.
ARM_PRIORS = {
    "retrieve_shallow": 0.5,
    "retrieve_medium": 0.5,
    "retrieve_deep": 0.5,
    "plan_inject": 0.3,
    "re_retrieve": 0.1,
    "consolidate": 0.0,
    "forget": -0.1,
    "insight_only": 0.5,
    "noop": -0.2,
}


@dataclass
class PaperPolicy:
    """The whole history is kept; every question is answered from it anew."""

    c: float = 1.4
    alpha: float = 0.15
    gamma: float = 0.9
    # key -> arms taken, and (arm, return) in order of credit.
    taken: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    returns: dict[str, list[tuple[str, float]]] = field(default_factory=lambda: defaultdict(list))

    def value(self, key: str, arm: str) -> float:
        q = ARM_PRIORS[arm]
        for credited, target in self.returns[key]:
            if credited == arm:
                q = q + self.alpha * (target - q)
        return q

    def best(self, key: str, allowed: list[str]) -> list[str]:
        """The arms between which chance decides."""
        new = [arm for arm in allowed if arm not in self.taken[key]]
        if new:
            return [sorted(new, key=lambda arm: (-ARM_PRIORS[arm], list(ARM_PRIORS).index(arm)))[0]]
        total = len(self.taken[key])
        score = {
            arm: self.value(key, arm) + self.c * math.sqrt(math.log(total) / self.taken[key].count(arm))
            for arm in allowed
        }
        return [arm for arm in allowed if score[arm] == max(score.values())]
