"""The clock port under test: the contract body that every clock passes."""

from __future__ import annotations

import pytest

from memcon.protocols import Clock
from memcon.testing.contract import Contract, expect, expect_equal, to_give

__all__ = ["ClockContract"]


class ClockContract(Contract):
    """What every Clock does. Override the fixture `clock`."""

    @pytest.fixture
    def clock(self) -> Clock:
        """The clock under test."""
        to_give(self, "clock", "Clock", "the clock under test")

    def test_both_times_are_seconds_as_floats(self, clock: Clock) -> None:
        wall, monotonic = clock.wall(), clock.monotonic()
        expect(isinstance(wall, float), "Clock.wall", "gives seconds as a float", met=wall)
        expect(isinstance(monotonic, float), "Clock.monotonic", "gives seconds as a float", met=monotonic)

    def test_the_monotonic_time_never_goes_back(self, clock: Clock) -> None:
        seen = [clock.monotonic() for _ in range(100)]
        expect_equal(seen, sorted(seen), "Clock.monotonic", wants="never goes back")
