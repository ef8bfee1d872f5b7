"""Staying awake for a client that asks one thing after the other.

An event loop with nothing to do sleeps in the kernel, and to be woken takes longer than to decide: of the 100 us that
one such client waits for an answer, some 40 are that. As a network card's driver may (Linux's `net.core.busy_poll`),
the loop of a listener looks again and again for a moment after an answer instead of sleeping.
"""

from __future__ import annotations

import asyncio
import os

from memcon.clock import SystemClock
from memcon.protocols import Clock

__all__ = ["BusyPoll"]


class BusyPoll:
    """Keeps the running event loop awake for `microseconds` after an answer; 0 = never.

    Only after an answer to the connection that got the one before, too: with several that ask there is always something
    to do, and other processes need the core. Whoever else waits for it gets it at every turn.
    """

    def __init__(self, microseconds: int, *, clock: Clock | None = None) -> None:
        self._seconds = microseconds / 1e6
        self._now = (clock or SystemClock()).monotonic
        self._loop: asyncio.AbstractEventLoop | None = None
        # Who was answered last, how long to stay awake for it, and whether a turn is to come.
        self._last: object = None
        self._until = 0.0
        self._turning = False

    def answered(self, connection: object) -> None:
        """Say in the event loop that `connection` has been sent an answer."""
        if connection is not self._last:
            self._last, self._until = connection, 0.0
        elif self._seconds:
            self._until = self._now() + self._seconds
            if not self._turning:
                self._turning = True
                self._loop = asyncio.get_running_loop()
                self._loop.call_soon(self._turn)

    def gone(self, connection: object) -> None:
        """Say that `connection` is lost: nothing waits for it, and nothing keeps it."""
        if connection is self._last:
            self._last, self._until = None, 0.0

    def _turn(self) -> None:
        if self._loop is not None and self._now() < self._until:
            os.sched_yield()
            # A loop that has something to call looks for requests without waiting for them.
            self._loop.call_soon(self._turn)
        else:
            self._turning = False
