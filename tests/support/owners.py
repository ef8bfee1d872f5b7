"""What tests of an owner put between it and its journal, and how they let its event loop run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from memcon.errors import MemconError
from memcon.learning.events import Event
from memcon_policy_server.owner.shard_owner import ShardOwner


class RecordedCommits:
    """Stands between owner and journal: counts transactions, and can hold them or make them fail."""

    def __init__(self, owner: ShardOwner) -> None:
        self.batches: list[int] = []
        self.fail: Exception | None = None
        self.may_go = threading.Event()
        self.may_go.set()
        self._append = owner._journal.append
        owner._journal.append = self.append  # type: ignore[method-assign]

    def append(self, events: Sequence[Event]) -> int:
        self.may_go.wait(50)
        if self.fail is not None:
            raise self.fail
        self.batches.append(len(events))
        return self._append(events)


class HandClock:
    """A clock that stands until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


async def ticks(count: int = 5) -> None:
    """Let the event loop run what is ready."""
    for _ in range(count):
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)


async def eventually(look: Callable[[], object], *, within_s: float = 30.0) -> None:
    """Let the event loop run until `look` gives something true."""
    async with asyncio.timeout(within_s):
        while not look():
            await ticks(1)


def replied(answers: Sequence[object]) -> list[object]:
    """The class of each refusal among `answers`, and None for each reply."""
    return [type(answer) if isinstance(answer, MemconError) else None for answer in answers]
