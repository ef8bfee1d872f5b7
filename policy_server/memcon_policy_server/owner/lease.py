"""The lease of a shard: until when its owner may believe that it still is the owner.

A commit checks the epoch by itself. What is answered without one rests on the last look at the journal: a thread looks
twice a second, and an owner whose last look is older than a second answers nothing (so a process that was stopped and
goes on, or whose disk hangs, stays silent before it has looked again).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from memcon.protocols import Clock

__all__ = ["LEASE_S", "Lease"]

log = logging.getLogger(__name__)

CHECK_EVERY_S = 0.5
# Age of the last look at which the owner falls silent.
LEASE_S = 1.0


class Lease:
    """Looks at the epoch in a thread of its own, so that a busy event loop lets no lease lapse.

    `read_epoch` gives the journal's epoch now and is called in that thread only; what it raises is a look that failed.
    `on_lost` is called in that thread, once, with the newer epoch. `claimed_at` is the monotonic time before the claim.
    """

    def __init__(
        self,
        read_epoch: Callable[[], int],
        *,
        epoch: int,
        clock: Clock,
        claimed_at: float,
        on_lost: Callable[[int], None],
    ) -> None:
        self._read_epoch, self._epoch, self._clock, self._on_lost = read_epoch, epoch, clock, on_lost
        # When the last good look began; -inf after the epoch was found newer.
        self._seen_at = claimed_at
        self._wake = threading.Event()
        self._stopped = self._failing = False
        self._lock = threading.Lock()
        # What those wait for who cannot wait for the next turn.
        self._next_look: Future[None] | None = None
        # A daemon: an owner that nobody closed must not keep its process.
        self._thread = threading.Thread(target=self._run, name=f"lease-{epoch}", daemon=True)
        self._thread.start()

    @property
    def held(self) -> bool:
        """The last look is young enough, and no look found a newer epoch."""
        return self._clock.monotonic() - self._seen_at <= LEASE_S

    @property
    def age_s(self) -> float:
        """Seconds since the last good look; infinite once the lease is lost."""
        return self._clock.monotonic() - self._seen_at

    async def renewal(self) -> None:
        """Look now rather than at the next turn; returns after at most as long as a lease lasts, whatever came of it.

        For an owner that finds its lease lapsed: mostly it was only its thread that had to wait.
        """
        with self._lock:
            if self._stopped:
                return
            looked = self._next_look = self._next_look or Future()
        self._wake.set()
        await asyncio.wait([asyncio.wrap_future(looked)], timeout=LEASE_S)

    def stop(self) -> None:
        """End the thread; the lease is not renewed any more. May be called twice."""
        with self._lock:
            self._stopped = True
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=LEASE_S)

    def _run(self) -> None:
        while not self._stopped:
            with self._lock:
                asked, self._next_look = self._next_look, None
            newer = self._look()
            if asked is not None:
                asked.set_result(None)
            if newer is not None:
                self._end()
                self._on_lost(newer)
                return
            self._wake.wait(CHECK_EVERY_S)
            self._wake.clear()
        self._end()

    def _look(self) -> int | None:
        """The newer epoch, if there is one."""
        began = self._clock.monotonic()
        try:
            found = self._read_epoch()
        except Exception as error:  # noqa: BLE001 - a thread that died would silence the owner for good
            # If that goes on the lease lapses by itself.
            if not self._failing:
                log.warning("policy.epoch_not_read", extra={"error": f"{type(error).__name__}: {error}"})
            self._failing = True
            return None
        self._failing = False
        if found != self._epoch:
            self._seen_at = float("-inf")
            return found
        self._seen_at = began
        return None

    def _end(self) -> None:
        with self._lock:
            self._stopped = True
            asked, self._next_look = self._next_look, None
        if asked is not None:
            asked.set_result(None)
