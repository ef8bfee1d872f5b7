"""The clock port under test: the contract body that every clock passes."""

from __future__ import annotations

import pytest

from memcon.protocols import Clock

__all__ = ["ClockContract"]


class ClockContract:
    """What every Clock does. Override the fixture `clock`."""

    @pytest.fixture
    def clock(self) -> Clock:
        raise NotImplementedError

    def test_both_times_are_seconds_as_floats(self, clock: Clock) -> None:
        assert isinstance(clock.wall(), float)
        assert isinstance(clock.monotonic(), float)

    def test_the_monotonic_time_never_goes_back(self, clock: Clock) -> None:
        seen = [clock.monotonic() for _ in range(100)]
        assert seen == sorted(seen)
