"""A run's folder and its copy, under any sequence of changes, publishes, deaths and fetches."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memcon.errors import ConflictError, DamagedFileError, NotFoundError
from memcon_platform.mirror import fetch_run, publish, read_manifest, unpublished
from memcon_platform.mirror.selection import is_publishable
from memcon_platform.run_store.working_copy import open_working_copy
from support.memory_objects import DeadError, MemoryClient, memory_store

# Thousands of files are synced to the disk here; in memory that costs nothing.
_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

KEYS = [
    "plan.json",
    "episodes/cell=a/0.parquet",
    "episodes/cell=a/ü 1#%.parquet",
    "streams/a/0.sqlite",
    "policy/secret",
]

writes = st.tuples(st.just("write"), st.sampled_from(KEYS), st.binary(max_size=3), st.booleans())
removals = st.tuples(st.just("remove"), st.sampled_from(KEYS), st.none(), st.none())
publishes = st.tuples(st.just("publish"), st.none(), st.none(), st.none())
named = st.tuples(st.just("publish-one"), st.sampled_from(KEYS), st.none(), st.none())
# Dies after so many requests; as the last one the manifest may have been put and its answer lost.
deaths = st.tuples(st.just("die"), st.integers(0, 8), st.none(), st.booleans())
fetches = st.tuples(st.just("fetch"), st.none(), st.none(), st.none())
histories = st.lists(st.one_of(writes, writes, removals, publishes, named, deaths, fetches), max_size=14)


def content(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {key: found[key] for key in sorted(found) if is_publishable(key)}


class History:
    """A working copy, its store and a reader's cache."""

    def __init__(self, root: Path) -> None:
        self.work, self.cache = root / "work", root / "cache"
        self.client = MemoryClient()
        self.store = memory_store(self.client)
        self.step = 0

    def write(self, key: str, body: bytes, is_old: bool) -> None:
        self.step += 1
        path = self.work / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        if is_old:
            # Long ago, and never twice the same: such a file is known by size and mtime.
            os.utime(path, (self.step, self.step))

    def remove(self, key: str) -> None:
        (self.work / key).unlink(missing_ok=True)

    def publish(self) -> None:
        publish(self.work, self.store)
        assert unpublished(self.work, self.store.uri) == []

    def publish_one(self, key: str) -> None:
        publish(self.work, self.store, files=[self.work / key])

    def die(self, num_requests: int, is_deaf: bool) -> None:
        if is_deaf:
            self.client.deaf = "manifest.json"
        else:
            self.client.lose(num_requests)
        try:
            publish(self.work, self.store)
        except DeadError:
            pass
        finally:
            self.client.deaf = ""
            self.client.lose(None)

    def fetch(self) -> None:
        try:
            fetch_run(self.store, self.cache)
        except (NotFoundError, DamagedFileError):
            # Nothing there yet, or a publish died while it replaced objects: never a folder that looks whole.
            return
        self.assert_fetched()

    def assert_fetched(self) -> None:
        there = read_manifest(self.store)
        assert there is not None
        assert set(content(self.cache)) == set(there.files)


def play(history: History, steps: list[tuple[str, object, object, object]]) -> None:
    for verb, first, second, third in steps:
        if verb == "write":
            assert isinstance(first, str)
            assert isinstance(second, bytes)
            history.write(first, second, bool(third))
        elif verb == "remove":
            history.remove(str(first))
        elif verb == "publish-one":
            history.publish_one(str(first))
        elif verb == "die":
            assert isinstance(first, int)
            history.die(first, bool(third))
        elif verb == "publish":
            history.publish()
        else:
            history.fetch()


@settings(max_examples=120)
@given(steps=histories)
@example(
    # What a publish sent whose answer was lost is gone here before the next one.
    steps=[("write", "plan.json", b"", False), ("die", 0, None, True), ("remove", "plan.json", None, None)]
)
def test_after_any_history_a_publish_and_a_fetch_give_equal_folders(
    steps: list[tuple[str, object, object, object]],
) -> None:
    with tempfile.TemporaryDirectory(dir=_MEMORY) as root:
        history = History(Path(root))
        history.work.mkdir()
        play(history, steps)
        # When everything is published and fetched, whatever died before
        history.publish()
        fetch_run(history.store, history.cache)
        # Then both folders hold the same, byte for byte, and the secret has not left its machine.
        assert content(history.cache) == content(history.work)
        assert not (history.cache / "policy/secret").exists()
        assert not any(key.endswith("secret") for key in history.client.objects)
        # And nothing is left to send or to fetch.
        assert publish(history.work, history.store).uploaded == 0
        assert fetch_run(history.store, history.cache) == 0


@settings(max_examples=80)
@given(steps=histories, cut=st.integers(0, 6), later=st.binary(max_size=3))
def test_a_fetch_that_dies_anywhere_goes_on(
    steps: list[tuple[str, object, object, object]], cut: int, later: bytes
) -> None:
    with tempfile.TemporaryDirectory(dir=_MEMORY) as root:
        history = History(Path(root))
        history.work.mkdir()
        play(history, steps)
        for key in ("plan.json", "streams/a/0.sqlite"):
            history.write(key, b"half", False)
        history.publish()
        # Given a fetch that dies in the middle, and a store that moves on before the next one
        history.client.lose(cut)
        try:
            fetch_run(history.store, history.cache)
        except DeadError:
            pass
        finally:
            history.client.lose(None)
        history.write("plan.json", later + b"later", False)
        history.publish()
        # When it is fetched again, then the folders are equal
        fetch_run(history.store, history.cache)
        assert content(history.cache) == content(history.work)


@settings(max_examples=60)
@given(mine=st.binary(max_size=2), theirs=st.binary(max_size=2), known=st.booleans())
def test_two_working_copies_never_overwrite_each_other_unseen(mine: bytes, theirs: bytes, known: bool) -> None:
    with tempfile.TemporaryDirectory(dir=_MEMORY) as root:
        history = History(Path(root))
        other = Path(root) / "other"
        history.write("plan.json", b"plan", False)
        history.publish()
        if known:
            fetch_run(history.store, other)
        # Given another copy that publishes first
        history.write("plan.json", theirs + b"theirs", False)
        history.publish()
        other.mkdir(exist_ok=True)
        (other / "plan.json").write_bytes(mine + b"mine")
        before = dict(history.client.objects)
        # When the second one publishes or is brought up to date, then it is refused, and neither side has changed
        with pytest.raises(ConflictError, match="nothing was written"):
            publish(other, history.store)
        with pytest.raises(ConflictError, match="nothing was written"):
            open_working_copy(other).bring_up_to_date(history.store, read_manifest(history.store), list[str]().append)
        assert history.client.objects == before
        assert (other / "plan.json").read_bytes() == mine + b"mine"
