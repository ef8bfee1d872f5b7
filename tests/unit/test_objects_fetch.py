"""From a run's copy to a folder: what is read, and what damage says."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from memcon.errors import ConflictError, DamagedFileError, NotFoundError, SchemaVersionError
from memcon_platform.mirror import MANIFEST_KEY, fetch_run, publish, read_manifest, unpublished
from support.memory_objects import BLOCK, PREFIX, DeadError, MemoryClient, memory_store, run_folder, write


@pytest.fixture
def client() -> MemoryClient:
    return MemoryClient()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_folder(tmp_path / "run")


def test_a_fetched_database_never_meets_the_log_of_the_one_before(
    run: Path, client: MemoryClient, tmp_path: Path
) -> None:
    store, cache = memory_store(client), tmp_path / "cache"
    write(run, "streams/a/0.sqlite", b"one")
    publish(run, store)
    fetch_run(store, cache)
    write(run, "streams/a/0.sqlite", b"two!", at_s=2000)
    publish(run, store)
    for side in ("-wal", "-shm", "-journal"):
        write(cache, f"streams/a/0.sqlite{side}", b"pages")
    # A log that is not empty is work that was not published.
    assert unpublished(cache, store.uri) == ["streams/a/0.sqlite"]
    fetch_run(store, cache)
    assert sorted(path.name for path in (cache / "streams/a").iterdir()) == ["0.sqlite"]
    assert (cache / "streams/a/0.sqlite").read_bytes() == b"two!"


def test_a_folder_that_the_store_has_left_behind_publishes_nothing_until_it_is_fetched(
    run: Path, client: MemoryClient, tmp_path: Path
) -> None:
    store, other = memory_store(client), tmp_path / "other"
    publish(run, store)
    fetch_run(store, other)
    write(other, "report.html", b"report")
    publish(other, store)
    write(run, BLOCK, b"unpublished", at_s=1001)
    with pytest.raises(ConflictError, match="generation 2 of a run, which this folder has not seen"):
        publish(run, store)
    assert unpublished(run, store.uri) == [BLOCK]
    # A fetch makes the folder what the store has, its own work included.
    assert fetch_run(store, run) == 2
    assert (run / BLOCK).read_bytes() == b"block"
    write(run, BLOCK, b"later", at_s=1002)
    assert publish(run, store).uploaded == 1
    assert fetch_run(store, other) == 1
    assert (other / BLOCK).read_bytes() == b"later"


def test_a_selection_is_fetched_alone_and_its_publish_leaves_the_rest(
    run: Path, client: MemoryClient, tmp_path: Path
) -> None:
    store, cache = memory_store(client), tmp_path / "cache"
    publish(run, store)
    assert fetch_run(store, cache, select=lambda key: key == "plan.json") == 1
    write(cache, "report.html", b"report")
    publish(cache, store)
    there = read_manifest(store)
    assert there is not None
    assert sorted(there.files) == [BLOCK, "plan.json", "report.html"]
    assert fetch_run(store, cache) == 1


def test_a_lost_file_of_a_working_copy_comes_back(run: Path, client: MemoryClient) -> None:
    store = memory_store(client)
    publish(run, store)
    (run / BLOCK).unlink()
    assert fetch_run(store, run) == 1
    assert (run / BLOCK).read_bytes() == b"block"


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_an_object_that_is_not_what_the_manifest_says_is_named_and_not_written(
    harm: str, run: Path, client: MemoryClient, tmp_path: Path
) -> None:
    store = memory_store(client)
    publish(run, store)
    if harm == "remove":
        store.delete(BLOCK)
    else:
        store.put(BLOCK, b"bloc" if harm == "cut" else b"blocj")
    with pytest.raises(DamagedFileError, match=r"s3://bucket/runs/one/episodes/cell=a/0\.parquet") as caught:
        fetch_run(store, tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache" / BLOCK).exists()
    assert [path.name for path in tmp_path.rglob("*.tmp")] == []
    # The working copy mends it, though neither its file nor the manifest has changed.
    manifest = client.objects[PREFIX + MANIFEST_KEY]
    assert publish(run, store).uploaded == 1
    assert client.objects[PREFIX + MANIFEST_KEY] == manifest
    fetch_run(store, tmp_path / "cache")
    assert (tmp_path / "cache" / BLOCK).read_bytes() == b"block"


def test_a_run_that_is_published_under_a_fetch_is_fetched_by_its_newer_manifest(
    run: Path, client: MemoryClient, tmp_path: Path
) -> None:
    store = memory_store(client)
    publish(run, store)
    write(run, BLOCK, b"newer", at_s=1001)
    get = store.fetch

    def fetch(key: str, path: Path, *, sha256: str | None = None) -> object:
        if unpublished(run, store.uri):
            publish(run, memory_store(client))
        return get(key, path, sha256=sha256)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "fetch", fetch)
        fetch_run(store, tmp_path / "cache")
    assert (tmp_path / "cache" / BLOCK).read_bytes() == b"newer"


def test_a_fetch_that_died_goes_on_though_the_run_does_too(run: Path, client: MemoryClient, tmp_path: Path) -> None:
    store, cache = memory_store(client), tmp_path / "cache"
    publish(run, store)
    # Given a fetch that dies after the manifest and one of two files
    client.lose(2)
    with pytest.raises(DeadError):
        fetch_run(store, cache)
    client.lose(None)
    assert len([path for path in cache.rglob("*") if path.is_file() and not path.name.startswith(".")]) == 1
    # And a run that goes on
    write(run, "plan.json", b"newer plan")
    write(run, BLOCK, b"newer block")
    publish(run, store)
    # Then the next fetch takes it, whichever file was there
    assert fetch_run(store, cache) == 2
    assert (cache / BLOCK).read_bytes() == b"newer block"


def test_no_run_is_told_from_an_empty_one(client: MemoryClient, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no run is in s3://bucket/runs/one"):
        fetch_run(memory_store(client), tmp_path)


@pytest.mark.parametrize(
    "key", ["../outside", "/etc/outside", "a/../../outside", "policy/secret", ".published.json", "run.lock"]
)
def test_a_manifest_never_writes_outside_the_run_nor_over_what_is_this_machines(
    key: str, run: Path, client: MemoryClient, tmp_path: Path
) -> None:
    store = memory_store(client)
    publish(run, store)
    body = json.loads(client.objects[PREFIX + MANIFEST_KEY])
    body["files"][key] = body["files"][BLOCK]
    client.objects[PREFIX + MANIFEST_KEY] = json.dumps(body).encode()
    client.objects[PREFIX + key] = b"block"
    with pytest.raises(DamagedFileError, match=r"manifest\.json"):
        fetch_run(store, tmp_path / "in/cache")
    assert sorted(path.name for path in (tmp_path / "in").rglob("*") if path.is_file()) == [".published.lock"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"schema": 1}', b'{"schema": 1, "generation": 1, "files": {"a": 1}}']
)
def test_a_manifest_that_is_none_is_damage_and_no_empty_run(
    content: bytes, run: Path, client: MemoryClient, tmp_path: Path
) -> None:
    client.objects[PREFIX + MANIFEST_KEY] = content
    with pytest.raises(DamagedFileError, match=r"manifest\.json is damaged"):
        fetch_run(memory_store(client), tmp_path / "cache")
    with pytest.raises(DamagedFileError, match=r"manifest\.json is damaged"):
        publish(run, memory_store(client))


def test_a_manifest_or_state_of_another_schema_is_refused(run: Path, client: MemoryClient) -> None:
    store = memory_store(client)
    publish(run, store)
    state = run / ".published.json"
    state.write_text(state.read_text().replace('"schema": 1', '"schema": 9'))
    with pytest.raises(SchemaVersionError, match=r"\.published\.json has schema version 9"):
        publish(run, store)
    client.objects[PREFIX + MANIFEST_KEY] = b'{"schema": 2}'
    with pytest.raises(SchemaVersionError, match=r"manifest\.json has schema version 2"):
        read_manifest(store)


def test_a_damaged_state_file_is_refused_and_not_taken_for_none(run: Path, client: MemoryClient) -> None:
    store = memory_store(client)
    publish(run, store)
    (run / ".published.json").write_text("{half")
    with pytest.raises(DamagedFileError, match="remove it, then fetch the run again"):
        publish(run, store)
    (run / ".published.json").unlink()
    assert fetch_run(store, run) == 0
    assert publish(run, store).uploaded == 0


def test_progress_is_told_after_each_file(run: Path, client: MemoryClient, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    publish(run, memory_store(client), progress=lambda done, total: told.append((done, total)))
    fetch_run(memory_store(client), tmp_path / "cache", progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)] * 2


def test_two_fetches_into_one_folder_take_turns(run: Path, client: MemoryClient, tmp_path: Path) -> None:
    store = memory_store(client)
    publish(run, store)
    begun, go_on, got = threading.Event(), threading.Event(), []

    def wait(done: int, total: int) -> None:
        begun.set()
        assert go_on.wait(20)

    first = threading.Thread(target=lambda: got.append(fetch_run(store, tmp_path / "cache", progress=wait)))
    second = threading.Thread(target=lambda: got.append(fetch_run(store, tmp_path / "cache")))
    first.start()
    assert begun.wait(20)
    second.start()
    go_on.set()
    first.join(20)
    second.join(20)
    assert got == [2, 0]
