"""From a run's copy to a folder: what differs from the manifest, checked before it is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from memcon.errors import DamagedFileError, NotFoundError, StorageError
from memcon_platform.mirror.manifest import MANIFEST_KEY, Manifest, read_manifest
from memcon_platform.mirror.selection import companions, is_publishable
from memcon_platform.mirror.synced import Synced, folder_lock, load
from memcon_platform.mirror.transfers import Progress, each
from memcon_platform.objects import ObjectStore, Stored

__all__ = ["fetch_run"]

# Manifests that a fetch reads, when a run is published again and again under it.
_ROUNDS = 5


def fetch_run(
    store: ObjectStore,
    folder: Path,
    *,
    select: Callable[[str], bool] | None = None,
    progress: Progress | None = None,
) -> int:
    """Make `folder` what the run under the store's prefix is; returns how many files were read: those that differ.

    `select` says which keys are wanted (None: all). What was changed here is overwritten (ask `unpublished` first,
    where the folder is more than a cache); what the manifest never named stays. Each file is seen whole or not at all;
    cut short, the same call does the rest.

    Raises:
        NotFoundError: no run is there.
        DamagedFileError: an object is not what the manifest says, and no newer manifest explains it.
        ObjectStoreError: the store cannot be used.
        StorageError: the folder cannot be written.
    """
    seen: set[str] = set()
    with folder_lock(folder) as began_ns:
        while True:
            there = read_manifest(store)
            if there is None:
                raise NotFoundError(f"no run is in {store.uri} ({MANIFEST_KEY} is not there); check the URI")
            try:
                return _bring(store, folder, there, load(folder, store.uri, began_ns), select or _all, progress)
            except _TornError as torn:
                # The run may be being written: a newer manifest then says what the object is now.
                if there.digest in seen or len(seen) == _ROUNDS:
                    raise DamagedFileError(
                        torn.uri,
                        f"it is not what {MANIFEST_KEY} says ({torn.problem})",
                        "if the run is being published, try again later; else publish it again from its working copy",
                    ) from torn
                seen.add(there.digest)


class _TornError(Exception):
    """An object does not fit the manifest."""

    def __init__(self, uri: str, problem: str) -> None:
        self.uri, self.problem = uri, problem
        super().__init__(uri, problem)


def _all(_key: str) -> bool:
    return True


def _bring(
    store: ObjectStore,
    folder: Path,
    there: Manifest,
    synced: Synced,
    select: Callable[[str], bool],
    progress: Progress | None,
) -> int:
    missing, gone = _differences(folder, synced, there, select, store.uri)
    _receive(store, folder, there, synced, missing, progress)
    for key in gone:
        _remove(folder / key)
        synced.files.pop(key, None)
    synced.manifest, synced.attempt = there.digest, None
    synced.save(folder)
    return len(missing)


def _differences(
    folder: Path, synced: Synced, there: Manifest, select: Callable[[str], bool], uri: str
) -> tuple[list[str], list[str]]:
    """Keys of files to read, and of those that the run has no more; books those that are as they should be."""
    missing, gone = [], []
    for key in sorted(filter(select, set(there.files).union(synced.files))):
        if not is_publishable(key):
            raise DamagedFileError(f"{uri}/{MANIFEST_KEY}", f"entry {key!r} is no file of a run", "do not use this run")
        entry = there.files.get(key)
        if entry is None:
            gone.append(key)
        elif (here := synced.digest_here(folder, key)) == entry.sha256:
            synced.agree(folder, key, here)
        else:
            missing.append(key)
    return missing, gone


def _receive(
    store: ObjectStore,
    folder: Path,
    there: Manifest,
    synced: Synced,
    keys: list[str],
    progress: Progress | None,
) -> None:
    """Write the files and book them in `synced`."""

    def get(key: str) -> Stored:
        path = folder / key
        for side in companions(path):
            # Pages of the file that goes: SQLite would play them into the one that comes.
            _remove(side)
        try:
            return store.fetch(key, path, sha256=there.files[key].sha256)
        except (DamagedFileError, NotFoundError) as error:
            problem = error.problem if isinstance(error, DamagedFileError) else "it does not exist"
            raise _TornError(f"{store.uri}/{key}", problem) from error

    done = 0

    def received(key: str, stored: Stored) -> None:
        nonlocal done
        synced.agree(folder, key, stored.sha256, etag=stored.etag)
        done += 1
        if progress is not None:
            progress(done, len(keys))

    each(get, keys, received)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror or error}; mend permissions") from error
