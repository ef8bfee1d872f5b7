"""Waiting for public state of another process: a condition and a deadline, never a fixed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_EVERY_S = 0.05


def wait_until(look: Callable[[], T | None], *, within_s: float, what: str) -> T:
    """What `look` gives as soon as it is true; fails when that takes longer than `within_s`."""
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {within_s} s in vain for {what}")
        pause.wait(_LOOK_EVERY_S)
