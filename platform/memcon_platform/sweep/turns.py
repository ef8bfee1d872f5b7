"""Whose turn it is at a bounded table (`max_open_episodes`): a part of the pure Supervisor; no clock, no Ray."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from memcon_platform.sweep.events import StreamName

__all__ = ["Turns", "out_of_order"]


class Turns:
    """The unfinished streams of one table, of which at most `bound` have an open episode.

    Turns go by (ordinal, place of the stream in `streams`). With bound 1 a turn is given only when every stream is
    ready, so that what a dead worker's stream still owes the table comes first: the order is that of the plan, for any
    number of workers and after any death (architecture: exact). A stream that `leaves` before its last task gives its
    turns up; at an exact table the Supervisor then `stop`s the table, since the others would learn something else.
    """

    def __init__(self, streams: Sequence[StreamName], *, bound: int) -> None:
        self._bound = bound
        self._places = {name: place for place, name in enumerate(streams)}
        # Not claimed, or lost with its worker.
        self._absent = set(streams)
        # Ended tasks of the streams that wait for their turn, and the same as a heap; stale entries are skipped.
        self._ready: dict[StreamName, int] = {}
        self._heap: list[tuple[int, int, StreamName]] = []
        # Streams with a turn; one whose worker died keeps it until it is claimed again, since its decisions are open.
        self._open: set[StreamName] = set()
        self._stopped = False

    @property
    def streams(self) -> tuple[StreamName, ...]:
        """All streams, in the order of their turns at equal ordinals."""
        return tuple(self._places)

    @property
    def exact(self) -> bool:
        """The order of the turns is the plan's, not the machine's."""
        return self._bound == 1

    @property
    def stopped(self) -> bool:
        """No more turns are given."""
        return self._stopped

    def stop(self) -> None:
        """Give no more turns; who has one keeps it to its end."""
        self._stopped = True

    def ready(self, name: StreamName, num_ended: int) -> None:
        """`name` is claimed, owes nothing, and waits to begin the task at `num_ended`."""
        self._absent.discard(name)
        self._open.discard(name)
        if self._ready.get(name) != num_ended:
            self._ready[name] = num_ended
            heapq.heappush(self._heap, (num_ended, self._places[name], name))

    def lost(self, name: StreamName) -> bool:
        """The worker of `name` died; True if the stream only waited for its turn."""
        self._absent.add(name)
        return self._ready.pop(name, None) is not None

    def leaves(self, name: StreamName) -> None:
        """`name` is done, stopped or failed."""
        self._ready.pop(name, None)
        self._absent.discard(name)
        self._open.discard(name)

    def next(self) -> list[StreamName]:
        """Streams whose turn begins now."""
        given: list[StreamName] = []
        while self._may_give():
            num_ended, _, name = heapq.heappop(self._heap)
            if self._ready.get(name) == num_ended:
                del self._ready[name]
                self._open.add(name)
                given.append(name)
        return given

    def dismissed(self) -> list[StreamName]:
        """Streams of a stopped table that wait for a turn which does not come, each told once."""
        if not self._stopped:
            return []
        waiting = sorted(self._ready, key=self._places.__getitem__)
        self._ready.clear()
        return waiting

    def _may_give(self) -> bool:
        if self._stopped or (self.exact and self._absent):
            return False
        return len(self._open) < self._bound and bool(self._ready)


def out_of_order(progress: Sequence[tuple[int, int]]) -> bool:
    """Whether streams that take turns have ended tasks which come after one that is still to run.

    Args:
        progress: ended and planned tasks of each stream, in the order of their turns.
    """
    to_run = [(ended, place) for place, (ended, planned) in enumerate(progress) if ended < planned]
    ran = [(ended - 1, place) for place, (ended, _) in enumerate(progress) if ended]
    return bool(to_run and ran) and min(to_run) < max(ran)
