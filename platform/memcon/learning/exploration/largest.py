"""The probability that each of some independent normal numbers is the largest: the propensities of Thompson sampling.

With G(x) = prod_b Phi_b(x) the distribution of the largest, P_a = integral of G d(ln Phi_a), and ln G = sum_a ln Phi_a.
So on a cell of a grid the increment of G is split between the arms in proportion to their increments of ln Phi, which
gives shares that sum to the whole increment on any grid. That is a rule of second order; each cell is also halved, and
(4 fine - coarse) / 3 cancels the leading error.

The grid is fixed: 13 even nodes within 4 deviations of each arm, cut where the largest number is out of reach. Against
a fine trapezoid over random arms (2 to 108 returns) the error stays below 2e-5. Plain Python on purpose: numpy's exp
and log differ by machine.
"""

from __future__ import annotations

import math
from itertools import pairwise

__all__ = ["chance_of_largest"]

# In deviations of an arm.
_NODES = tuple([(i - 6) * (2.0 / 3.0) for i in range(13)])
# The largest number is outside with probability below 6e-7.
_REACH = 5.0


def chance_of_largest(means: tuple[float, ...], deviations: tuple[float, ...]) -> tuple[float, ...]:
    """P(z_a is the largest) of independent z_a ~ Normal(means[a], deviations[a]); sums to 1 (ours).

    Args:
        means: One an arm.
        deviations: Standard deviations, all above 0.
    """
    arms = list(zip(means, deviations, strict=True))
    nodes = _nodes(arms)
    # Arms without data of their own are often alike.
    by_arm = {arm: _log_cdf(*arm, nodes) for arm in arms}
    logs = [by_arm[arm] for arm in arms]
    totals = [sum(column) for column in zip(*logs, strict=True)]
    fine, coarse = _weights(totals), _weights(totals[::2])
    shares = {}
    for arm, own in by_arm.items():
        share = (4.0 * _integral(fine, own) - _integral(coarse, own[::2])) / 3.0
        # An arm that is out of reach may come out at minus a rounding.
        shares[arm] = max(share, 0.0)
    whole = math.fsum([shares[arm] for arm in arms])
    if not whole:
        # The deviations are below the spacing of floats at these means, which are all that is left.
        most = max(means)
        shares = {arm: float(arm[0] == most) for arm in by_arm}
        whole = math.fsum([shares[arm] for arm in arms])
    return tuple([shares[arm] / whole for arm in arms])


def _nodes(arms: list[tuple[float, float]]) -> list[float]:
    """Ends of the cells and their middles, alternating."""
    low = max([mean - _REACH * deviation for mean, deviation in arms])
    high = max([mean + _REACH * deviation for mean, deviation in arms])
    inside = {x for mean, deviation in arms for z in _NODES if low < (x := mean + z * deviation) < high}
    ends = sorted(inside | {low, high})
    nodes = [low]
    for left, right in pairwise(ends):
        nodes += ((left + right) / 2.0, right)
    return nodes


def _log_cdf(mean: float, deviation: float, nodes: list[float]) -> list[float]:
    # No logarithm of 0: the lowest node is at most 5 deviations below any arm.
    scale = 1.0 / (deviation * math.sqrt(2.0))
    erfc, log = math.erfc, math.log
    return [log(0.5 * erfc((mean - x) * scale)) for x in nodes]


def _weights(totals: list[float]) -> list[float]:
    """Increment of G over increment of ln G, cell by cell."""
    values = [math.exp(total) for total in totals]
    weights = []
    for i in range(len(totals) - 1):
        step = totals[i + 1] - totals[i]
        # Where nothing grows any more, to the last bit, the limit.
        weights.append((values[i + 1] - values[i]) / step if step else values[i])
    return weights


def _integral(weights: list[float], logs: list[float]) -> float:
    return sum([weight * (logs[i + 1] - logs[i]) for i, weight in enumerate(weights)])
