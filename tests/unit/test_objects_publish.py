"""From a run's folder to its copy: what is sent, what stays here, and what is asked of the store."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from pathlib import Path

import pytest

from memcon.errors import ConflictError, InvariantError, StorageError
from memcon_platform.mirror import MANIFEST_KEY, fetch_run, publish, read_manifest, unpublished
from memcon_platform.mirror.selection import is_publishable
from support.memory_objects import BLOCK, PREFIX, DeadError, MemoryClient, memory_store, run_folder, write


@pytest.fixture
def client() -> MemoryClient:
    return MemoryClient()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_folder(tmp_path / "run")


def puts(client: MemoryClient) -> list[str]:
    """Keys put since the last look, under the run's prefix."""
    asked, client.asked = client.asked, []
    return [line.removeprefix(f"put {PREFIX}") for line in asked if line.startswith("put ")]


@pytest.mark.parametrize(
    "key",
    [
        "run.lock", "streams/a/0.lock", "policy/secret", "policy/token", "policy/shard-0.address", "policy/.secret-x1",
        "episodes/cell=a/.0.parquet.tmp", "streams/a/0.sqlite-wal", "streams/a/0.sqlite-shm", "streams/a/0.new",
        "streams/a/0.sqlite-journal", ".published.json", "policy/events/.lock", MANIFEST_KEY, "",
    ],
)  # fmt: skip
def test_what_is_this_machines_alone_has_no_copy(key: str) -> None:
    assert not is_publishable(key)


@pytest.mark.parametrize(
    "key",
    ["plan.json", "streams/a/0.sqlite", "policy/shard-0.sqlite", "policy/served/shard-0.json", "sub/manifest.json"],
)
def test_what_a_run_is_made_of_has_a_copy(key: str) -> None:
    assert is_publishable(key)


def test_a_secret_is_not_sent_even_when_it_is_named(run: Path, client: MemoryClient) -> None:
    write(run, "policy/secret", b"secret")
    publish(run, memory_store(client), files=[run / "policy/secret", run / "plan.json"])
    assert sorted(client.objects) == [PREFIX + MANIFEST_KEY, PREFIX + "plan.json"]


def test_the_manifest_goes_last_and_says_what_was_sent(run: Path, client: MemoryClient) -> None:
    done = publish(run, memory_store(client))
    assert puts(client)[-1] == MANIFEST_KEY
    assert done.uploaded == 2
    body = json.loads(client.objects[PREFIX + MANIFEST_KEY])
    assert body["schema"] == 1
    assert body["generation"] == 1
    assert body["files"][BLOCK] == {"size": 5, "sha256": hashlib.sha256(b"block").hexdigest()}


def test_replaced_objects_go_after_new_ones(run: Path, client: MemoryClient) -> None:
    publish(run, memory_store(client))
    puts(client)
    write(run, BLOCK, b"other", at_s=1001)
    write(run, "z-new", b"new")
    publish(run, memory_store(client))
    # Until the manifest is there, the former one is wrong about what was replaced.
    assert puts(client) == ["z-new", BLOCK, MANIFEST_KEY]


def test_an_unchanged_run_costs_two_requests_and_reads_no_file(run: Path, client: MemoryClient) -> None:
    store = memory_store(client)
    publish(run, store)
    client.asked.clear()
    os.truncate(run / BLOCK, 0)
    write(run, BLOCK, b"BLOCK")
    # Same size and mtime as when it was sent, so it is not opened; no clock of a file system hides a real change so.
    again = publish(run, store)
    assert client.asked == [f"get {PREFIX}{MANIFEST_KEY}", f"list {PREFIX}"]
    assert again.uploaded == 0


def test_a_file_that_was_written_just_now_is_read_again(run: Path, client: MemoryClient) -> None:
    store = memory_store(client)
    # However long it takes from here to the publish.
    just_now = time.time_ns() + 60 * 10**9
    (run / "plan.json").write_bytes(b"one1")
    os.utime(run / "plan.json", ns=(just_now, just_now))
    publish(run, store)
    # A coarse clock gives two writes the same mtime.
    (run / "plan.json").write_bytes(b"two2")
    os.utime(run / "plan.json", ns=(just_now, just_now))
    assert unpublished(run, store.uri) == ["plan.json"]
    assert publish(run, store).uploaded == 1
    assert client.objects[PREFIX + "plan.json"] == b"two2"


def test_a_touched_file_with_equal_content_is_not_sent_again(run: Path, client: MemoryClient) -> None:
    store = memory_store(client)
    publish(run, store)
    puts(client)
    os.utime(run / BLOCK, (5000, 5000))
    assert publish(run, store).uploaded == 0
    assert puts(client) == []


def test_a_database_with_commits_outside_its_file_is_not_sent_and_is_named(run: Path, client: MemoryClient) -> None:
    store = memory_store(client)
    path = run / "streams/a/0.sqlite"
    path.parent.mkdir(parents=True)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    done = publish(run, store)
    assert done.skipped == ("streams/a/0.sqlite",)
    assert done.uploaded == 2
    assert unpublished(run, store.uri) == ["streams/a/0.sqlite"]
    connection.close()
    assert publish(run, store).skipped == ()
    assert unpublished(run, store.uri) == []


def test_a_file_of_another_folder_is_refused(run: Path, client: MemoryClient, tmp_path: Path) -> None:
    with pytest.raises(InvariantError, match="no file of the run"):
        publish(run, memory_store(client), files=[tmp_path / "elsewhere"])


def test_named_files_leave_the_rest_as_it_is(run: Path, client: MemoryClient) -> None:
    store = memory_store(client)
    publish(run, store)
    puts(client)
    write(run, BLOCK, b"changed", at_s=1001)
    write(run, "report.html", b"report")
    assert publish(run, store, files=[run / "report.html"]).uploaded == 1
    assert puts(client) == ["report.html", MANIFEST_KEY]
    assert unpublished(run, store.uri) == [BLOCK]


def test_a_removed_file_goes_there_too_and_then_at_every_reader(
    run: Path, client: MemoryClient, tmp_path: Path
) -> None:
    store, cache = memory_store(client), tmp_path / "cache"
    publish(run, store)
    fetch_run(store, cache)
    (run / BLOCK).unlink()
    assert unpublished(run, store.uri) == [BLOCK]
    publish(run, store)
    assert sorted(client.objects) == [PREFIX + MANIFEST_KEY, PREFIX + "plan.json"]
    assert fetch_run(store, cache) == 0
    assert not (cache / BLOCK).exists()


def test_what_others_put_beside_the_run_is_left_alone(run: Path, client: MemoryClient, tmp_path: Path) -> None:
    store = memory_store(client)
    store.put("run.lock", b"held")
    publish(run, store)
    fetch_run(store, tmp_path / "cache")
    assert client.objects[PREFIX + "run.lock"] == b"held"
    assert not (tmp_path / "cache/run.lock").exists()


def test_a_store_that_lost_the_run_gets_it_again(run: Path, client: MemoryClient, tmp_path: Path) -> None:
    store = memory_store(client)
    publish(run, store)
    client.objects.clear()
    assert publish(run, store).uploaded == 2
    assert fetch_run(store, tmp_path / "cache") == 2


def test_a_second_uri_gets_the_whole_run(run: Path, client: MemoryClient) -> None:
    publish(run, memory_store(client))
    assert publish(run, memory_store(client, "runs/two")).uploaded == 2
    # Which is then the folder's one place: its state is of one URI.
    assert unpublished(run, "s3://bucket/runs/two") == []
    assert unpublished(run, "s3://bucket/runs/one") == [BLOCK, "plan.json"]


def test_a_manifest_whose_answer_was_lost_is_known_as_ours(run: Path, client: MemoryClient) -> None:
    store = memory_store(client)
    publish(run, store)
    write(run, BLOCK, b"second", at_s=1001)
    client.deaf = MANIFEST_KEY
    with pytest.raises(DeadError):
        publish(run, store)
    client.deaf = ""
    # Given that the run went on after it
    write(run, BLOCK, b"third!", at_s=1002)
    # When it is published, its own later work is no conflict
    publish(run, store)
    there = read_manifest(store)
    assert there is not None
    assert there.generation == 3
    assert client.objects[PREFIX + BLOCK] == b"third!"


def test_a_publish_beside_ours_is_a_conflict_that_says_so(run: Path, client: MemoryClient, tmp_path: Path) -> None:
    store, other = memory_store(client), tmp_path / "other"
    publish(run, store)
    fetch_run(store, other)
    write(other, "theirs", b"theirs")
    write(run, "ours", b"ours")
    # Given another publish between our look at the manifest and our own
    send = store.put_file

    def put_file(key: str, path: Path) -> object:
        publish(other, memory_store(client))
        return send(key, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "put_file", put_file)
        with pytest.raises(ConflictError, match="somebody else published there at the same time"):
            publish(run, store)
    there = read_manifest(store)
    assert there is not None
    assert "theirs" in there.files
    assert "ours" not in there.files


def test_a_folder_that_was_never_fetched_is_not_published_over_a_run(
    run: Path, client: MemoryClient, tmp_path: Path
) -> None:
    publish(run, memory_store(client))
    write(tmp_path / "other", "plan.json", b"another")
    with pytest.raises(ConflictError, match="of which this folder knows nothing"):
        publish(tmp_path / "other", memory_store(client))
    # A folder that holds just what is there becomes a working copy by a fetch that reads nothing.
    write(tmp_path / "same", "plan.json", b"plan")
    write(tmp_path / "same", BLOCK, b"block")
    assert fetch_run(memory_store(client), tmp_path / "same") == 0
    write(tmp_path / "same", "more", b"more")
    assert publish(tmp_path / "same", memory_store(client)).uploaded == 1


def test_a_file_that_cannot_be_read_is_named(run: Path, client: MemoryClient) -> None:
    with pytest.raises(StorageError, match=r"cannot write s3://bucket/runs/one/missing: .*missing: No such file"):
        memory_store(client).put_file("missing", run / "missing")
