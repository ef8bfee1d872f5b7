"""Many transfers at a time: most of the time of a small object is the wait for the store."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["Progress", "each"]

T = TypeVar("T")

# Told after each file: how many are done, of how many.
Progress = Callable[[int, int], None]

_THREADS = 4


def each(transfer: Callable[[str], T], keys: Sequence[str], then: Callable[[str, T], object]) -> None:
    """Run `transfer` for each key, some at a time, and `then` with key and result here, one at a time, as they end.

    The first error is raised, once the transfers that were under way have ended; no other one is begun. Ctrl-C waits
    for none of them: with a store that is silent they end with the process.
    """
    waiting, ended = deque(keys), SimpleQueue[tuple[str, Future[T]]]()
    # Daemons, and no executor, whose threads the interpreter waits for at its end.
    threads = [
        threading.Thread(target=_work, args=(transfer, waiting, ended), name=f"mirror-{number}", daemon=True)
        for number in range(min(_THREADS, len(keys)))
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in keys:
            key, result = ended.get()
            then(key, result.result())
    except KeyboardInterrupt:
        waiting.clear()
        raise
    except BaseException:
        waiting.clear()
        for thread in threads:
            thread.join()
        raise


def _work(transfer: Callable[[str], T], waiting: deque[str], ended: SimpleQueue[tuple[str, Future[T]]]) -> None:
    while True:
        try:
            key = waiting.popleft()
        except IndexError:
            return
        result: Future[T] = Future()
        try:
            result.set_result(transfer(key))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            result.set_exception(error)
        ended.put((key, result))
