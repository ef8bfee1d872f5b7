"""Copies for readers of runs in object stores: what a store has of a run, in a folder of this machine's cache.

Only what differs is fetched. Nothing in the cache is anybody's work: it may be removed at any time.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from memcon.errors import NotFoundError
from memcon_platform.mirror import fetch_run, publish, read_manifest, unpublished
from memcon_platform.objects import ObjectStore, open_objects
from memcon_platform.run_store.lock import driver_of, locked, release, take, this_driver
from memcon_platform.run_store.places import local_folder, run_in_store

__all__ = ["Say", "changing", "fetched_run", "put_back", "scratch_copy"]

Say = Callable[[str], None]
Select = Callable[[str], bool]

# Files of a fetch that are worth a word.
_MANY = 20


def fetched_run(value: str, say: Say | None = None, *, select: Select | None = None, at_rest: bool = False) -> Path:
    """The folder with the run at the URI `value` as it was last published, or with what `select` says of its keys.

    Raises:
        ConfigError: `value` is the URI of no run.
        NotFoundError: there is none.
        LockedError: it is being driven, and was asked for `at_rest`.
        MemconError: the store cannot be used, or the cache not be written.
    """
    uri = run_in_store(value)
    folder = local_folder(_cache(), uri)
    with open_objects(uri) as store:
        if at_rest:
            _refuse_driven(store)
        _fetch(store, folder, say, select)
    return folder


@contextmanager
def scratch_copy(value: str, say: Say, *, select: Select | None = None) -> Iterator[Path]:
    """As `fetched_run`, in a folder of the caller's own, which is gone when the block ends: for what writes beside.

    Raises:
        MemconError: as `fetched_run`.
    """
    uri = run_in_store(value)
    with open_objects(uri) as store, tempfile.TemporaryDirectory(prefix="memcon-") as folder:
        _fetch(store, Path(folder), say, select)
        yield Path(folder)


@contextmanager
def changing(value: str, say: Say, *, select: Select) -> Iterator[Path]:
    """As `scratch_copy`; what the block changes is published. Nobody drives the run meanwhile.

    Raises:
        LockedError: somebody drives the run.
        MemconError: as `fetched_run`.
    """
    uri = run_in_store(value)
    with open_objects(uri) as store, tempfile.TemporaryDirectory(prefix="memcon-") as name, _driving(store, Path(name)):
        folder = Path(name)
        _fetch(store, folder, say, select)
        yield folder
        publish(folder, store, files=[folder / key for key in unpublished(folder, uri)])


def put_back(value: str, folder: Path, file: Path) -> None:
    """Publish `file`, which was made in the `folder` that `fetched_run` gave; nothing happens where it is there.

    Raises:
        LockedError: somebody drives the run.
        ConflictError: the run has gone on meanwhile.
        ObjectStoreError: the store cannot be used.
    """
    uri = run_in_store(value)
    if file.relative_to(folder).as_posix() not in unpublished(folder, uri):
        return
    with open_objects(uri) as store, _driving(store, folder):
        publish(folder, store, files=[file])


@contextmanager
def _driving(store: ObjectStore, folder: Path) -> Iterator[None]:
    driver = this_driver(folder, secrets.token_hex(8))
    take(store, driver)
    try:
        yield
    finally:
        release(store, driver)


def _refuse_driven(store: ObjectStore) -> None:
    driver = driver_of(store)
    if driver is not None:
        raise locked(store, driver)


def _fetch(store: ObjectStore, folder: Path, say: Say | None, select: Select | None) -> None:
    # Asked first, so that a URI that is mistyped leaves no folder.
    if read_manifest(store) is None:
        raise NotFoundError(f"no run at {store.uri}; check the URI and the endpoint, or start it with `memcon sweep`")

    def tell(done: int, total: int) -> None:
        if say is not None and total >= _MANY:
            say(f"fetching {store.uri}: {done} of {total} files")

    fetch_run(store, folder, select=select, progress=tell)


def _cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")  # noqa: TID251 - a shell
    # A relative one is to be ignored (XDG Base Directory Specification).
    root = Path(given) if given and Path(given).is_absolute() else Path("~/.cache").expanduser()
    return root / "memcon" / "runs"
