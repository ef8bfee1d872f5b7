"""Time for the load generator that goes on by its own looks: a window holds so many jobs on however slow a machine."""

from __future__ import annotations

import pytest

from memcon_platform.bench import generator, load_single

__all__ = ["count_time"]

_LOOK_S = 0.001


class _CountedClock:
    """A millisecond later at each look."""

    def __init__(self) -> None:
        self._looks = 0

    def wall(self) -> float:
        raise AssertionError("nothing here is dated")

    def monotonic(self) -> float:
        self._looks += 1
        return self._looks * _LOOK_S


def count_time(patch: pytest.MonkeyPatch) -> None:
    """Let the seconds of closed loops be counted by jobs: one ends each millisecond."""
    for module in (generator, load_single):
        patch.setattr(module, "SystemClock", _CountedClock)
