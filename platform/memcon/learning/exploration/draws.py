"""All chance of a rule: pure functions of the 64 bits that the place of a decision gives."""

from __future__ import annotations

from statistics import NormalDist

from memcon import ids

__all__ = ["draw_index", "normal", "unit"]

_DRAWS = 1 << 64
_STANDARD = NormalDist()


def draw_index(draw: int, size: int) -> int:
    """An index in [0, size), each exactly as likely, from 64 random bits.

    The last incomplete run of values would favour low indices: those draws are hashed again.
    """
    limit = _DRAWS - _DRAWS % size
    while draw >= limit:
        draw = ids.draw64("redraw", draw)
    return draw % size


def unit(draw: int) -> float:
    """A number in (0, 1), never 0 or 1: the middle of one of 2^52 equal cells, from 64 random bits."""
    return ((draw >> 12) + 0.5) * 2.0**-52


def normal(draw: int) -> float:
    """A standard normal number, by the inverse of its distribution function at `unit(draw)`."""
    return _STANDARD.inv_cdf(unit(draw))
