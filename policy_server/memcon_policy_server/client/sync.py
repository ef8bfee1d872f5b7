"""`LivePolicy` for agents without an event loop: the same methods, run in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from memcon.errors import ConfigError, UnavailableError
from memcon_policy_server.client.live import (
    DEFAULT_DEADLINE_S,
    DEFAULT_FALLBACK,
    FLUSH_S,
    Counters,
    LiveDecision,
    LivePolicy,
    State,
)
from memcon_policy_server.client.spool import Refusal

__all__ = ["SyncPolicy"]

T = TypeVar("T")

_CLOSED = "the policy client is closed; make a new one"


class SyncPolicy:
    """Blocking decides and outcomes; may be used by several threads at once. Made by `connect`, ended by `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread, policy: LivePolicy) -> None:
        self._loop, self._thread, self._policy = loop, thread, policy
        self._pid = os.getpid()
        # One thread closes, and once the thread of the loop ends nothing more is given to it.
        self._closing, self._giving = threading.Lock(), threading.Lock()
        self._ended = False

    @classmethod
    def connect(
        cls,
        url: str,
        token: str | None = None,
        *,
        fallback: str = DEFAULT_FALLBACK,
        deadline_s: float = DEFAULT_DEADLINE_S,
        spool: Path | str | None = None,
        direct: bool = True,
    ) -> Self:
        """As `LivePolicy.connect`."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="memcon-policy", daemon=True)
        thread.start()
        connected = LivePolicy.connect(url, token, fallback=fallback, deadline_s=deadline_s, spool=spool, direct=direct)
        try:
            policy = asyncio.run_coroutine_threadsafe(connected, loop).result()
        except BaseException:
            _end(loop, thread)
            raise
        return cls(loop, thread, policy)

    def decide(
        self,
        table: str,
        state: State,
        *,
        episode_id: str | None = None,
        position: int = 0,
        allowed: Sequence[str] | None = None,
        explain: bool = False,
    ) -> LiveDecision:
        """As `LivePolicy.decide`."""
        return self._run(
            self._policy.decide(
                table, state, episode_id=episode_id, position=position, allowed=allowed, explain=explain
            )
        )

    def outcome(
        self, decision: LiveDecision, reward: float, *, num_decisions: int | None = None, cost: float = 0.0
    ) -> None:
        """As `LivePolicy.outcome`."""
        self._run(self._policy.outcome(decision, reward, num_decisions=num_decisions, cost=cost))

    def cancel(self, decision: LiveDecision) -> None:
        """As `LivePolicy.cancel`."""
        self._run(self._policy.cancel(decision))

    def refused(self) -> list[Refusal]:
        """As `LivePolicy.refused`."""
        return self._run(self._policy.refused())

    def counters(self) -> Counters:
        """As `LivePolicy.counters`."""
        return self._run(self._policy.counters())

    def close(self, flush_s: float = FLUSH_S) -> None:
        """As `LivePolicy.close`; ends the thread too. Without effect in a process that was forked off."""
        if self._pid != os.getpid():
            return
        with self._closing:
            if self._ended:
                return
            try:
                self._run(self._policy.close(flush_s))
            finally:
                with self._giving:
                    self._ended = True
                _end(self._loop, self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._pid != os.getpid():
            work.close()
            # The thread was not forked along: nobody would ever answer.
            raise ConfigError("the policy client was made before this process was forked off; connect anew in it")
        with self._giving:
            if self._ended:
                work.close()
                raise UnavailableError(_CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError as error:
            raise UnavailableError(_CLOSED) from error
        except BaseException:
            # The caller was interrupted (Ctrl-C): nobody plays what is decided now.
            future.cancel()
            raise


async def _cancel_rest() -> None:
    """End what other threads asked for in the last moment."""
    while rest := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in rest:
            task.cancel()
        await asyncio.wait(rest)


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(_cancel_rest())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
