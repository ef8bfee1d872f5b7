"""Who drives a run of an object store: the object `run.lock` beside it, put only where none stands.

One driver a run over all machines. Its end in order removes the object; after any other end the same working copy takes
it over, and nobody else does until `memcon data unlock`.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from memcon import codec
from memcon.clock import SystemClock
from memcon.errors import ConflictError, LockedError, NotFoundError
from memcon_platform.objects import ObjectStore

__all__ = ["Driver", "break_lock", "driver_of", "release", "take", "this_driver"]

LOCK_KEY = "run.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """Who drives a run, as its lock says."""

    host: str
    pid: int
    # Where the driver has the run.
    folder: str
    # ISO 8601, UTC.
    since: str
    # Random, and the same for all launches from one working copy.
    copy: str

    @property
    def told(self) -> str:
        """Who, where and since when, for people."""
        return f"process {self.pid} on host {self.host} in {self.folder}, since {self.since}"


def this_driver(folder: Path, copy: str) -> Driver:
    """This process, with the working copy `copy` in `folder`."""
    since = datetime.fromtimestamp(SystemClock().wall(), UTC).isoformat(timespec="seconds")
    return Driver(host=socket.gethostname(), pid=os.getpid(), folder=str(folder.resolve()), since=since, copy=copy)


def take(store: ObjectStore, driver: Driver) -> None:
    """Make `driver` the one of the run; an earlier one of the same working copy, which is dead, is replaced.

    Raises:
        LockedError: the run has another driver; names it.
        ObjectStoreError: the store cannot be used.
    """
    content = codec.encode_json(driver).encode()
    try:
        store.put(LOCK_KEY, content, only_new=True)
    except ConflictError:
        _take_over(store, driver, content)


def _take_over(store: ObjectStore, driver: Driver, content: bytes) -> None:
    try:
        found = store.read(LOCK_KEY)
        if (earlier := _driver(found.content)).copy == driver.copy:
            store.put(LOCK_KEY, content, if_match=found.etag)
            return
    except (NotFoundError, ConflictError):
        raise LockedError(f"run {store.uri} got or lost its driver at this very moment; try again") from None
    raise locked(store, earlier)


def locked(store: ObjectStore, driver: Driver) -> LockedError:
    """The error that the run has a driver."""
    return LockedError(
        f"run {store.uri} is driven by {driver.told}; wait for its end, or go on with the same command there; if that "
        f"process is dead and its folder lost, run `memcon data unlock {store.uri}`"
    )


def release(store: ObjectStore, driver: Driver) -> None:
    """The run has a driver no more, if it was this one.

    Raises:
        ObjectStoreError: the store cannot be used.
    """
    if driver_of(store) == driver:
        store.delete(LOCK_KEY)


def driver_of(store: ObjectStore) -> Driver | None:
    """Who drives the run now, or did when it ended out of order.

    Raises:
        ObjectStoreError: the store cannot be used.
    """
    try:
        return _driver(store.get(LOCK_KEY))
    except NotFoundError:
        return None


def break_lock(store: ObjectStore) -> Driver | None:
    """Free the run of its driver, dead or alive; returns who it was.

    Raises:
        ObjectStoreError: the store cannot be used.
    """
    found = driver_of(store)
    if found is not None:
        store.delete(LOCK_KEY)
    return found


def _driver(content: bytes) -> Driver:
    """What a lock says; one that nobody can read holds all the same."""
    try:
        return codec.decode_json(Driver, content.decode())
    except (UnicodeDecodeError, ValueError, codec.CodecError):
        return Driver(host="unknown", pid=0, folder="an unknown folder", since="an unknown time", copy="")
