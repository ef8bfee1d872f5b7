"""Time that goes on by looks at it: a window of the load generator holds so many jobs on however slow a machine."""

from __future__ import annotations

import pytest

from memcon_platform.bench import generator, load_single

__all__ = ["CountedClock", "count_time"]


class CountedClock:
    """Later by `look_s` at each look."""

    def __init__(self, look_s: float = 0.001) -> None:
        self.looks, self._look_s = 0, look_s

    def wall(self) -> float:
        raise AssertionError("nothing here is dated")

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks * self._look_s


def count_time(patch: pytest.MonkeyPatch) -> None:
    """Let the seconds of closed loops be counted by jobs: one ends each millisecond."""
    for module in (generator, load_single):
        patch.setattr(module, "SystemClock", CountedClock)
