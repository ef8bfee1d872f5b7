"""The clock of real processes. Core code takes a `memcon.protocols.Clock` and never looks at the time itself."""

from __future__ import annotations

import time

__all__ = ["SystemClock"]


class SystemClock:
    """Wall and monotonic time of this machine."""

    def wall(self) -> float:
        """Seconds since the epoch, UTC."""
        return time.time()  # noqa: TID251 - the one place

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.perf_counter()
