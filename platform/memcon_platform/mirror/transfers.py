"""Many transfers at a time: most of the time of a small object is the wait for the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

__all__ = ["Progress", "each"]

T = TypeVar("T")

# Told after each file: how many are done, of how many.
Progress = Callable[[int, int], None]

_THREADS = 4


def each(transfer: Callable[[str], T], keys: Sequence[str]) -> Iterator[tuple[str, T]]:
    """Run `transfer` for each key, some at a time; give (key, result) as they end.

    The first error is raised, once the transfers that were under way have ended; no other one is begun.
    """
    if not keys:
        return
    pool = ThreadPoolExecutor(max_workers=min(_THREADS, len(keys)), thread_name_prefix="mirror")
    try:
        pending = {pool.submit(transfer, key): key for key in keys}
        for done in as_completed(pending):
            yield pending[done], done.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
