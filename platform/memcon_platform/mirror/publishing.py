"""From a run's folder to its copy: what is new or changed, then the manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from memcon.errors import ConflictError, DamagedFileError
from memcon_platform.mirror.manifest import MANIFEST_KEY, FileEntry, Manifest, digest_of, read_manifest, render
from memcon_platform.mirror.selection import is_publishable, key_of, publishable_keys
from memcon_platform.mirror.synced import OPEN, Known, Synced, folder_lock, load, rebased
from memcon_platform.mirror.transfers import Progress, each
from memcon_platform.objects import ObjectStore

__all__ = ["Published", "publish"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a publish did: files sent, and keys of databases that were not.

    A database that has commits outside its file (open, or left by a killed process) is skipped: its older copy stands.
    """

    uploaded: int
    skipped: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Changes:
    """What differs from the store, by key."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def publish(
    folder: Path,
    store: ObjectStore,
    *,
    files: Iterable[Path] | None = None,
    may_go: Callable[[str], bool] | None = None,
    progress: Progress | None = None,
) -> Published:
    """Bring the copy of `folder` under the store's prefix up to date: objects first, then the manifest.

    `files` names what to look at; None: every file that may have a copy, and every object, so that one which was lost
    or overwritten in the store is put again. No process may have a database open that is looked at. A file that is gone
    here goes there too. Secrets, locks and whatever else is this machine's alone is left out even when it is named. One
    publish of many files costs one manifest, so let files gather. `may_go` says which keys the folder may have no more
    (None: all).

    Cut short at any moment, the former manifest stands. An object that was being replaced then differs from it, which
    every reader notices, until the next publish from here.

    Raises:
        ConflictError: somebody else has published here, or this folder has never been brought up to date.
        DamagedFileError: files are gone from the folder that may not go; nothing was written.
        ObjectStoreError: the store cannot be used; the folder is whole, and the same call does the rest.
        StorageError: a file cannot be read.
    """
    with folder_lock(folder) as began_ns:
        there = read_manifest(store)
        synced = _agreed(load(folder, store.uri, began_ns), folder, there)
        looked_at = _keys(folder, synced, files)
        harmed = _harmed(synced, store, there) if files is None and there else frozenset()
        changes = _changes(folder, synced, there, looked_at, harmed)
        if may_go and (lost := [key for key in changes.gone if not may_go(key)]):
            raise DamagedFileError(
                folder,
                f"{len(lost)} files that {store.uri} has are gone from it, {lost[0]} first",
                "nothing was published; put them back, or move the folder away, then run the same command again to go "
                "on from what is there",
            )
        entries = dict(there.files) if there else {}
        _send(folder, store, synced, changes, entries, progress)
        _finish(folder, store, synced, there, entries)
        each(store.delete, changes.gone, lambda _key, _done: None)
    return Published(uploaded=len(changes.new) + len(changes.changed), skipped=tuple(changes.skipped))


def _agreed(synced: Synced, folder: Path, there: Manifest | None) -> Synced:
    """What folder and store agree on, refused where the store has moved on without the folder."""
    if there is None:
        # Nothing stands there, so nothing can be overwritten: a new copy, or one whose store lost it.
        return Synced(uri=synced.uri, began_ns=synced.began_ns)
    synced = rebased(synced, there)
    if synced.manifest == there.digest:
        return synced
    known = "of which this folder knows nothing" if synced.manifest is None else "which this folder has not seen"
    raise ConflictError(
        f"cannot publish {folder} to {synced.uri}: there is generation {there.generation} of a run, {known}; "
        "nothing was written: bring the folder up to date first, or take another run name"
    )


def _keys(folder: Path, synced: Synced, files: Iterable[Path] | None) -> list[str]:
    if files is not None:
        return sorted({key for key in (key_of(folder, path) for path in files) if is_publishable(key)})
    return sorted(set(synced.files).union(publishable_keys(folder)))


def _harmed(synced: Synced, store: ObjectStore, there: Manifest) -> frozenset[str]:
    """Keys whose objects are not there, or are not those that were put or read last."""
    objects = store.list()
    return frozenset(
        key
        for key, entry in there.files.items()
        if (found := objects.get(key)) is None
        or found.size != entry.size
        or ((known := synced.files.get(key)) and known.etag not in ("", found.etag))
    )


def _changes(folder: Path, synced: Synced, there: Manifest | None, keys: list[str], harmed: frozenset[str]) -> _Changes:
    """Compare here, there and base; a file that both sides changed is refused before anything is sent."""
    found, both = _Changes(), []
    for key in keys:
        here, base = synced.digest_here(folder, key), synced.base(key)
        entry = there.files.get(key) if there else None
        if here == OPEN:
            found.skipped.append(key)
        elif here == (entry.sha256 if entry else None):
            synced.agree(folder, key, here)
            if key in harmed:
                found.changed.append(key)
        elif entry and entry.sha256 != base:
            both.append(key)
        else:
            (found.gone if here is None else found.changed if entry else found.new).append(key)
    if both:
        raise ConflictError(
            f"cannot publish {folder} to {synced.uri}: {len(both)} files changed both here and there, {both[0]} first; "
            "nothing was written: move the folder away and fetch the run again"
        )
    return found


def _send(
    folder: Path,
    store: ObjectStore,
    synced: Synced,
    changes: _Changes,
    entries: dict[str, FileEntry],
    progress: Progress | None,
) -> None:
    """Put the files and book them in `synced` and `entries`."""

    def put(key: str) -> Known:
        # Looked at before it is read: what changes meanwhile has another mtime and is sent by the next publish.
        mtime_ns = synced.settled_mtime(folder / key)
        stored = store.put_file(key, folder / key)
        return Known(size=stored.size, mtime_ns=mtime_ns, sha256=stored.sha256, etag=stored.etag)

    total, done = len(changes.new) + len(changes.changed), 0

    def sent(key: str, known: Known) -> None:
        nonlocal done
        synced.files[key] = known
        entries[key] = FileEntry(size=known.size, sha256=known.sha256)
        done += 1
        if progress is not None:
            progress(done, total)

    for key in changes.gone:
        synced.files.pop(key, None)
        entries.pop(key, None)
    # Replaced objects last: until the manifest is there, the former one is wrong about them.
    for keys in (changes.new, changes.changed):
        each(put, keys, sent)


def _finish(
    folder: Path, store: ObjectStore, synced: Synced, there: Manifest | None, entries: dict[str, FileEntry]
) -> None:
    """Put the manifest, if it differs from the one there."""
    if there is not None and entries == there.files:
        synced.save(folder)
        return
    generation = there.generation + 1 if there else 1
    content = render(generation, entries)
    # Written down before it is sent: without an answer, nobody knows which manifest stands there.
    before = load(folder, store.uri)
    before = rebased(before, there) if there else before
    before.attempt = digest_of(content)
    before.save(folder)
    try:
        store.put(MANIFEST_KEY, content, only_new=there is None, if_match=there.etag if there else None)
    except ConflictError as error:
        raise ConflictError(
            f"cannot publish {folder} to {store.uri}: somebody else published there at the same time, so that files "
            "may be mixed; find the other one, end it, then publish again from the copy that is right"
        ) from error
    synced.manifest, synced.attempt = digest_of(content), None
    synced.save(folder)
