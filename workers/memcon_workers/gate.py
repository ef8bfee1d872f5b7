"""What a stream waits for, and how a stop ends the wait: the grant of its next task (`max_open_episodes`), practice.

Knows nothing of who grants, or why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["Gate", "unless_stopped"]

T = TypeVar("T")


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """What `work` gives; None, with `work` cancelled, when `stop` is set before that."""
    job, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({job, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return job.result() if job.done() else None
    finally:
        stopping.cancel()
        if job.cancel():
            # It may hold a lock or an environment until it has ended.
            await asyncio.wait({job})


class Gate:
    """Lets one task through for each grant; a stop, or a gate that is shut, lets nobody through."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._granted = asyncio.Event()
        self._shut = False

    def grant(self) -> None:
        """Let the next task through; a second grant before that has no effect."""
        self._granted.set()

    def shut(self) -> None:
        """Let nobody through any more."""
        self._shut = True
        self._granted.set()

    async def passed(self) -> bool:
        """Wait for a grant and take it; False when a stop came first, or the gate was shut."""
        await unless_stopped(self._granted.wait(), self._stop)
        if self._stop.is_set() or self._shut:
            return False
        self._granted.clear()
        return True
