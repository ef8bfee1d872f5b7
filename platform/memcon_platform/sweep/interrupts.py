"""Ctrl-C and SIGTERM through all phases of a launch: starting, running, closing.

The signals never raise inside the event loop: an exception there would leave Ray half started or half stopped.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Interrupted", "Interrupts", "interrupts"]


class Interrupted(Exception):  # noqa: N818 - a wish of the user, not an error
    """Stopped at once, before the current tasks ended: they are repeated at the next launch."""


class Interrupts:
    """Calls whoever can honour a signal in the phase that the launch is in."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def to(self, call: Callable[[], None]) -> None:
        """From now on a signal is `call`."""
        self._call = call

    def signalled(self) -> None:
        """A signal has come."""
        self._call()


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Route SIGINT and SIGTERM while the block runs; at first they cancel the task that entered it.

    Raises:
        Interrupted: in place of that cancel.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    cancelled = asyncio.Event()

    def cancel() -> None:
        if task is not None and not cancelled.is_set():
            cancelled.set()
            task.cancel()

    phase = Interrupts(cancel)
    names = (signal.SIGINT, signal.SIGTERM)
    for name in names:
        loop.add_signal_handler(name, phase.signalled)
    try:
        yield phase
    except asyncio.CancelledError:
        if cancelled.is_set():
            raise Interrupted from None
        raise
    finally:
        for name in names:
            loop.remove_signal_handler(name)
