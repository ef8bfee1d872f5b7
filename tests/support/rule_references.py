"""The learning rules once more, written from their definitions without a look at the library.

The whole history is kept, and every number is computed from it anew.

Sources: Eq. 6, 7 and 16 of the paper, its Proposition D.20, and the preset of the measurements on pooling (chain of
keys, coarsest first: m1 = (p0 mu0 + S) / (p0 + n), e1 = p0 + n; m2 = (m0 m1 + S) / (m0 + n), e2 = n + min(e1, m0)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from memcon import ids

# What rounding may do to a mean of a dozen returns.
ALIKE = 1e-9


@dataclass(frozen=True, slots=True)
class Pull:
    """A decision: its chain of keys, finest first, its arm, and its return; None while it is open."""

    keys: tuple[str, ...]
    arm: str
    gain: float | None = None


@dataclass
class History:
    """All that happened, and what is asked about it."""

    priors: dict[str, float]
    alpha: float
    cap: int
    pulls: list[Pull] = field(default_factory=list)

    def gains(self, key: str, arm: str) -> list[float]:
        return [pull.gain for pull in self.pulls if key in pull.keys and pull.arm == arm and pull.gain is not None]

    def taken(self, key: str, arm: str) -> int:
        return len([pull for pull in self.pulls if key in pull.keys and pull.arm == arm])

    def smoothed(self, key: str, arm: str) -> float:
        q = self.priors[arm]
        for gain in self.gains(key, arm):
            q = (1 - self.alpha) * q + self.alpha * gain
        return q

    def capped(self, key: str, arm: str) -> tuple[float, float]:
        """Number and sum of the returns, scaled down as soon as there are more than the cap."""
        n, total = 0.0, 0.0
        for gain in self.gains(key, arm):
            n, total = n + 1, total + gain
            if n > self.cap:
                n, total = float(self.cap), total * self.cap / n
        return n, total


@dataclass(frozen=True)
class Posterior:
    """Means and effective counts over a chain, by the formulas above."""

    history: History
    p0: float
    m0: float
    capped: bool = False

    def of(self, keys: tuple[str, ...], arm: str) -> tuple[float, float]:
        mean, worth, count = self.history.priors[arm], self.p0, self.p0
        for key in keys[::-1]:
            n, total = self._sums(key, arm)
            mean = (worth * mean + total) / (worth + n)
            count = n + min(count, worth)
            worth = self.m0
        return mean, count

    def width(self, keys: tuple[str, ...], arm: str) -> float:
        """The effective count when decisions that are still open count, too."""
        count, worth = self.p0, self.p0
        for key in keys[::-1]:
            taken = self.history.taken(key, arm)
            count, worth = (min(taken, self.history.cap) if self.capped else taken) + min(count, worth), self.m0
        return count

    def _sums(self, key: str, arm: str) -> tuple[float, float]:
        if self.capped:
            return self.history.capped(key, arm)
        gains = self.history.gains(key, arm)
        return float(len(gains)), math.fsum(gains)


# --- one function a rule: the arms between which the draw decides ------------------------------------------------


def ucb(history: History, keys: tuple[str, ...], allowed: list[str], c: float) -> list[str]:
    new = [arm for arm in allowed if not history.taken(keys[0], arm)]
    if new:
        return [max(new, key=lambda arm: history.priors[arm])]
    log = math.log(sum(history.taken(keys[0], arm) for arm in history.priors))
    return top({a: history.smoothed(keys[0], a) + c * math.sqrt(log / history.taken(keys[0], a)) for a in allowed})


def greedy(history: History, keys: tuple[str, ...], allowed: list[str]) -> list[str]:
    return top({arm: history.smoothed(keys[0], arm) for arm in allowed})


def greedy_on_a_chain(posterior: Posterior, keys: tuple[str, ...], allowed: list[str]) -> list[str]:
    return top({arm: posterior.of(keys, arm)[0] for arm in allowed})


def bayes_ucb(posterior: Posterior, keys: tuple[str, ...], allowed: list[str], c: float) -> list[str]:
    total = sum(posterior.history.taken(keys[0], arm) for arm in posterior.history.priors)
    log = math.log(total) if total else 0.0
    return top({arm: posterior.of(keys, arm)[0] + c * math.sqrt(log / posterior.width(keys, arm)) for arm in allowed})


def thompson(posterior: Posterior, keys: tuple[str, ...], allowed: list[str], sigma: float, draw: int) -> list[str]:
    samples = {}
    for arm in allowed:
        mean, count = posterior.of(keys, arm)
        level = (ids.draw64("arm", draw, arm) // 4096 + 0.5) / 2**52
        samples[arm] = NormalDist(mean, sigma / math.sqrt(count)).inv_cdf(level)
    return top(samples)


def top(scores: dict[str, float]) -> list[str]:
    return [arm for arm, score in scores.items() if score >= max(scores.values()) - ALIKE]


# --- what the draw makes of them, and how likely that is -------------------------------------------------------------


def drawn(tied: list[str], draw: int) -> str:
    """One of equals. A draw in the last incomplete run of values, one in 10^18, is not looked at."""
    return tied[draw % len(tied)]


def overruled(place: str, share: float, allowed: list[str], draw: int) -> str | None:
    """The arm of the uniform share, when the decision falls into it."""
    if (ids.draw64(place, draw) // 4096 + 0.5) / 2**52 >= share:
        return None
    return drawn(allowed, ids.draw64(f"{place}_arm", draw))


def mixed(shares: dict[str, float], share: float, allowed: list[str]) -> dict[str, float]:
    return {arm: (1 - share) * shares.get(arm, 0.0) + share / len(allowed) for arm in allowed}


def even(tied: list[str]) -> dict[str, float]:
    return {arm: 1 / len(tied) for arm in tied}


def largest(means: list[float], deviations: list[float], *, points: int = 4001) -> list[float]:
    """P(z_a is the largest), by a trapezoid over the density of z_a times the distributions of the others."""
    low = min(m - 9 * s for m, s in zip(means, deviations, strict=True))
    high = max(m + 9 * s for m, s in zip(means, deviations, strict=True))
    x = np.linspace(low, high, points)
    z = [(x - m) / s for m, s in zip(means, deviations, strict=True)]
    below = [_below(one) for one in z]
    found = []
    for a, s in enumerate(deviations):
        density = np.exp(-0.5 * z[a] ** 2) / (s * math.sqrt(2 * math.pi))
        others = [below[b] for b in range(len(means)) if b != a]
        found.append(float(np.trapezoid(density * np.prod(others, axis=0), x)))
    return found


def _below(z: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in z.tolist()])
