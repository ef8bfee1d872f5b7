"""Scalar arithmetic of one row of a table: which arms are best, and what a decision or a return changes.

Each function is written once, so that plain Python runs it and numba compiles it (extra `fast`): no container but the
cells, no fast math, no reordering, hence the same bits both ways. Which of the two runs is settled by the first table
of a process; importing this module loads nothing.

A row holds four planes of `arms` float64 cells: q, taken, credited, squares (counts are whole, exact below 2^53). `at`
is the row's first cell; the first `arms` cells of all are the priors. `allowed` is a bit mask of arms. A selection
answers with the bit mask of the best arms, negated when the one best arm is due for its first visit.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt
from typing import Any

__all__ = ["MOST_ARMS", "Kernels", "Selection", "compiled", "kernels", "plain"]

_log = logging.getLogger(__name__)

# Bits of a mask in a signed 64-bit number.
MOST_ARMS = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A rule at one key as a function of this module, with its two parameters."""

    # "ucb", "settled" or "shrunk".
    name: str
    first: float = 0.0
    second: float = 0.0


Select = Callable[[Any, int, int, int, float, float], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """The functions of this module, in one of their two forms."""

    is_compiled: bool
    # By the name of a selection: (cells, at, arms, allowed, first, second) -> best arms.
    selections: dict[str, Select]
    # (cells, i, arms, target, alpha, cap) -> whether a decision was open.
    credit: Callable[[Any, int, int, float, float, float], bool]


def ucb(cells: Sequence[float], at: int, arms: int, allowed: int, c: float, _unused: float) -> int:
    """Arms with the largest q + c * sqrt(ln N / N_a); an unvisited arm first, by prior, then arm order (Eq. 6)."""
    total, due, bit = 0.0, -1, 1
    for i in range(arms):
        taken = cells[at + arms + i]
        total += taken
        if taken == 0.0 and allowed & bit and (due < 0 or cells[i] > cells[due]):
            due = i
        bit <<= 1
    if due >= 0:
        return -(1 << due)
    # Above 0: an allowed arm was taken.
    log_total = log(total)
    best, mask, bit = -inf, 0, 1
    for i in range(at, at + arms):
        if allowed & bit:
            score = cells[i] + c * sqrt(log_total / cells[i + arms])
            if score > best:
                best, mask = score, bit
            elif score == best:
                mask |= bit
        bit <<= 1
    return mask


def settled(cells: Sequence[float], at: int, arms: int, allowed: int, _unused: float, _other: float) -> int:
    """Arms with the largest q among those with an outcome, among all where none has one (Eq. 6 without its bonus)."""
    best, mask, known = -inf, 0, False
    for i in range(arms):
        if (allowed >> i) & 1:
            has_outcome = cells[at + 2 * arms + i] > 0.0
            if has_outcome and not known:
                best, mask, known = -inf, 0, True
            if has_outcome == known:
                if cells[at + i] > best:
                    best, mask = cells[at + i], 1 << i
                elif cells[at + i] == best:
                    mask |= 1 << i
    return mask


def shrunk(cells: Sequence[float], at: int, arms: int, allowed: int, strength: float, cap: float) -> int:
    """Arms with the largest mean, shrunk to the prior that counts for `strength` returns (`evidence`, one key).

    A `cap` below 0 is none.
    """
    best, mask = -inf, 0
    for i in range(arms):
        if (allowed >> i) & 1:
            n, mean = cells[at + 2 * arms + i], cells[i]
            if 0.0 <= cap < n:
                n = cap
            if strength > 0.0:
                mean = (strength * mean + n * cells[at + i]) / (strength + n)
            elif n > 0.0:
                mean = cells[at + i]
            if mean > best:
                best, mask = mean, 1 << i
            elif mean == best:
                mask |= 1 << i
    return mask


def credit(cells: MutableSequence[float], i: int, arms: int, target: float, alpha: float, cap: float) -> bool:
    """Move q of an arm, cell `i`, towards the return `target`: q + step * (target - q) (Eq. 7, Eq. 16).

    The step is `alpha`; where that is below 0, 1/credited, and with a `cap` that is not below 0 at least 1/(cap + 1).
    False, and nothing changes, when no decision for the arm is open.
    """
    count = cells[i + 2 * arms] + 1.0
    if cells[i + arms] < count:
        return False
    squares = cells[i + 3 * arms] + target * target
    if alpha >= 0.0:
        step = alpha
    elif cap < 0.0 or count <= cap:
        step = 1.0 / count
    else:
        step = 1.0 / (cap + 1.0)
        squares = squares * (cap / (cap + 1.0))
    cells[i + 2 * arms] = count
    cells[i + 3 * arms] = squares
    cells[i] = cells[i] + step * (target - cells[i])
    return True


# Selection -> how many planes of a row it reads.
_SELECTIONS: dict[Select, int] = {ucb: 2, settled: 3, shrunk: 3}


def _over_list(select: Select, planes: int) -> Select:
    # Reading a memoryview cell by cell costs three times what a list does: priors and planes are copied at once.
    def over_list(cells: Any, at: int, arms: int, allowed: int, first: float, second: float) -> int:
        copied = cells[:arms].tolist() + cells[at : at + planes * arms].tolist()
        return select(copied, arms, arms, allowed, first, second)

    return over_list


@functools.cache
def plain() -> Kernels:
    """The functions as Python runs them, over a memoryview of float64."""
    return Kernels(
        is_compiled=False,
        selections={function.__name__: _over_list(function, planes) for function, planes in _SELECTIONS.items()},
        credit=credit,
    )


@functools.cache
def compiled() -> Kernels | None:
    """The functions as numba compiles them, over a float64 array; None without numba, or with one that cannot.

    Compiled here, or taken from numba's cache on disk, so that no decision waits for it.
    """
    select = "int64(float64[::1], int64, int64, int64, float64, float64)"
    try:
        numba = importlib.import_module("numba")
        return Kernels(
            is_compiled=True,
            selections={function.__name__: _jit(numba, select, function) for function in _SELECTIONS},
            credit=_jit(numba, "boolean(float64[::1], int64, int64, float64, float64, float64)", credit),
        )
    except ModuleNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 - whatever is wrong with numba, plain Python gives the same bits
        _log.warning("kernel.not_compiled", extra={"error": f"{type(error).__name__}: {error}"})
        return None


def _jit(numba: Any, signature: str, function: Callable[..., Any]) -> Any:
    try:
        dispatcher = numba.njit(signature, cache=True)(function)
    except Exception:  # noqa: BLE001 - no place for the cache, a full disk, a torn file in it: compile in memory
        dispatcher = numba.njit(signature)(function)
    # The compiled function itself: to look for the overload took as long as the work.
    return dispatcher.get_overload(signature)


def kernels() -> Kernels:
    """The compiled functions where numba is installed, else the plain ones."""
    return compiled() or plain()
