"""When open decisions end by themselves: which are due, oldest first. What their end means is the shard's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from memcon.learning.events import Cancelled, Credited, Decided, Event
from memcon.protocols import Clock
from memcon_policy_server.wire import MovedError

__all__ = ["Expiry"]

# Ends of one turn of the event loop: a crowd that is due together must not hold up the requests.
MAX_AT_ONCE = 256
# Shortest pause between two turns, so that decisions that are due one after the other end together.
SHORTEST_PAUSE_S = 0.01
# Before the next try of an owner that does not know whether it still is the owner.
PUT_OFF_S = 0.5


class Expiry:
    """Calls `end(table, decision_id)` for each decision that stays open for `after_s`, again after a `MovedError`.

    Follows the events of the shard. Ages are of this process: those that are open at its start begin anew then, since
    the journal has no times. Memory: one entry an open decision.
    """

    def __init__(self, after_s: float, clock: Clock, end: Callable[[str, str], None]) -> None:
        self._after_s, self._clock, self._end = after_s, clock, end
        # (table, id) -> monotonic time of its end. All wait equally long, so the order of insertion is that of the end.
        self._ends: dict[tuple[str, str], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def follow(self, event: Event) -> None:
        """Take note of a decision that was opened, or that has ended."""
        if isinstance(event, Decided):
            self.opened(event.table, event.decision_id)
        elif isinstance(event, Credited | Cancelled):
            self._ends.pop((event.table, event.decision_id), None)

    def opened(self, table: str, decision_id: str) -> None:
        """The decision is open as of now."""
        place = (table, decision_id)
        self._ends.pop(place, None)
        self._ends[place] = self._clock.monotonic() + self._after_s

    def start(self) -> None:
        """End what becomes due, from now on, in the running event loop."""
        self._wait(self._after_s)

    def stop(self) -> None:
        """End nothing more; may be called twice."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def turn(self) -> float:
        """End what is due, at most `MAX_AT_ONCE`; returns the seconds until something can be due again."""
        now = self._clock.monotonic()
        due: list[tuple[str, str]] = []
        for place, end in self._ends.items():
            if end > now or len(due) == MAX_AT_ONCE:
                break
            due.append(place)
        for place in due:
            try:
                self._end(*place)
            except MovedError:
                # The owner may be another one by now.
                return PUT_OFF_S
            del self._ends[place]
        oldest = next(iter(self._ends.values()), now + self._after_s)
        return 0.0 if oldest <= now else max(oldest - now, SHORTEST_PAUSE_S)

    def _take_turn(self) -> None:
        pause_s = self.turn()
        if not self._stopped:
            self._wait(pause_s)

    def _wait(self, pause_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._take_turn)
