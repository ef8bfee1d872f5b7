"""An S3-compatible server on the loopback: objects, outages, refusals, and runs that are published into it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memcon.errors import ConflictError, DamagedFileError, NotFoundError
from memcon_platform import objects
from memcon_platform.mirror import fetch_run, publish, read_manifest, unpublished
from memcon_platform.objects import ObjectStore, ObjectStoreError, open_objects
from support.memory_objects import BLOCK, run_folder, write
from support.object_server import ACCESS_KEY, BUCKET, PAGE, SECRET_KEY, ObjectServer, object_server

PREFIX = f"s3://{BUCKET}/team a/x=ü"
BIG = 20 * 1024**2


@pytest.fixture(scope="module")
def only_server() -> Iterator[ObjectServer]:
    with object_server() as server:
        yield server


@pytest.fixture
def server(only_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    only_server.set_up(monkeypatch)
    only_server.admit()
    only_server.line.restore()
    return only_server


@pytest.fixture(scope="module")
def any_store(only_server: ObjectServer) -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as patch:
        only_server.set_up(patch)
        with open_objects(PREFIX) as store:
            yield store


@pytest.fixture
def store(server: ObjectServer, any_store: ObjectStore, request: pytest.FixtureRequest) -> ObjectStore:
    """A prefix for one test; the client is shared, since to make one costs more than most of the tests."""
    prefix = f"{any_store._prefix}{request.node.name.replace('/', '')}"
    return ObjectStore(any_store._client, BUCKET, prefix)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_folder(tmp_path / "run")


def files(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {key: found[key] for key in sorted(found) if not key.startswith(".")}


def refusal(call: Callable[[], object]) -> ObjectStoreError:
    with pytest.raises(ObjectStoreError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    assert ACCESS_KEY not in text
    assert SECRET_KEY not in text
    return caught.value


@pytest.mark.parametrize("key", ["a", "a/b=1/c.parquet", "k #1%25 é=+?&;,@:!'()[]{}~\t.txt", "a/~b", "日本"])
def test_a_key_of_any_characters_is_put_listed_read_and_deleted(key: str, store: ObjectStore, tmp_path: Path) -> None:
    etag = store.put(key, b"content")
    assert {name: (info.size, info.etag) for name, info in store.list().items()} == {key: (7, etag)}
    assert store.get(key) == b"content"
    assert store.fetch(key, tmp_path / "deep/down").etag == etag
    assert (tmp_path / "deep/down").read_bytes() == b"content"
    store.delete(key)
    store.delete(key)
    assert store.list() == {}
    with pytest.raises(NotFoundError):
        store.get(key)


def test_a_list_has_more_than_a_page_and_nothing_of_a_longer_name(server: ObjectServer, store: ObjectStore) -> None:
    with open_objects(f"{store.uri}-2") as neighbour:
        neighbour.put("alien", b"")
    keys = [f"k{number:04d}" for number in range(2 * PAGE + 1)]
    for key in reversed(keys):
        store.put(key, b"")
    server.requests()
    assert list(store.list()) == keys
    assert len(server.requests()) == 3


def test_conditions_hold_and_a_store_that_ignores_them_is_found_out(server: ObjectServer, store: ObjectStore) -> None:
    first = store.put("lock", b"mine", only_new=True)
    with pytest.raises(ConflictError, match=r"cannot write .*lock: another writer was first"):
        store.put("lock", b"theirs", only_new=True)
    second = store.put("lock", b"again", if_match=first)
    with pytest.raises(ConflictError):
        store.put("lock", b"late", if_match=first)
    assert store.read("lock").etag == second
    assert store.honours_conditions()
    server.ignore_conditions()
    assert not store.honours_conditions()
    assert list(store.list()) == ["lock"]


def test_one_of_many_writers_gets_the_lock(store: ObjectStore) -> None:
    ready, won = threading.Barrier(8), []

    def write_once(number: int) -> None:
        ready.wait(20)
        try:
            store.put("lock", f"writer {number}".encode(), only_new=True)
        except ConflictError:
            return
        won.append(number)

    threads = [threading.Thread(target=write_once, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [f"writer {number}".encode() for number in won] == [store.get("lock")]


def test_a_put_that_the_store_took_and_did_not_answer_is_no_conflict(server: ObjectServer, store: ObjectStore) -> None:
    # Given that a first try was taken, and the SDK's second one meets what it left
    store.put("lock", b"mine", only_new=True)
    # Then the same content again is ours
    assert store.put("lock", b"mine", only_new=True) == store.read("lock").etag


def test_a_big_file_goes_in_parts_and_its_digest_is_that_of_its_content(
    server: ObjectServer, store: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(os.urandom(BIG))
    server.requests()
    sent = store.put_file("big", tmp_path / "big")
    assert sum(line.startswith("PUT") for line in server.requests()) == 2
    got = store.fetch("big", tmp_path / "back", sha256=sent.sha256)
    assert (got.size, got.sha256) == (BIG, sent.sha256)
    assert (tmp_path / "back").read_bytes() == (tmp_path / "big").read_bytes()


def test_an_upload_that_dies_in_the_middle_leaves_nothing_that_is_seen(
    server: ObjectServer, store: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(os.urandom(BIG))
    server.line.cut_after(17 * 1024**2)
    assert refusal(lambda: store.put_file("big", tmp_path / "big")).away
    server.line.restore()
    assert store.list() == {}
    assert store.put_file("big", tmp_path / "big").size == BIG


def test_a_killed_publisher_leaves_the_run_that_was_there(
    server: ObjectServer, store: ObjectStore, run: Path, tmp_path: Path
) -> None:
    publish(run, store)
    before = files(run)
    write(run, "big", os.urandom(BIG))
    code = (
        "import sys; from pathlib import Path; from memcon_platform.mirror import publish;"
        "from memcon_platform.objects import open_objects; publish(Path(sys.argv[1]), open_objects(sys.argv[2]))"
    )
    # Given a publisher that is killed in the middle of a large file
    server.line.hold_after(17 * 1024**2)
    publisher = subprocess.Popen([sys.executable, "-c", code, str(run), store.uri])
    assert server.line.held.wait(40)
    publisher.kill()
    publisher.wait()
    server.line.restore()
    # Then a reader gets the former run, whole, and the publisher's next try does the rest.
    fetch_run(store, tmp_path / "reader")
    assert files(tmp_path / "reader") == before
    assert publish(run, store).uploaded == 1
    fetch_run(store, tmp_path / "reader")
    assert files(tmp_path / "reader") == files(run)


def test_a_store_that_is_gone_is_noticed_at_once_and_nothing_is_lost(
    server: ObjectServer, store: ObjectStore, run: Path, tmp_path: Path
) -> None:
    publish(run, store)
    write(run, "episodes/cell=a/50.parquet", b"next")
    server.line.cut()
    error = refusal(lambda: publish(run, store))
    assert error.away
    assert f"cannot be reached (127.0.0.1:{server.line.port})" in str(error)
    assert unpublished(run, store.uri) == ["episodes/cell=a/50.parquet"]
    server.line.restore()
    assert publish(run, store).uploaded == 1
    fetch_run(store, tmp_path / "reader")
    assert files(tmp_path / "reader") == files(run)


def test_a_fetch_that_is_cut_shows_no_half_file_and_goes_on(
    server: ObjectServer, store: ObjectStore, run: Path, tmp_path: Path
) -> None:
    publish(run, store)
    server.refuse(503, "SlowDown", key_part=BLOCK)
    error = refusal(lambda: fetch_run(store, tmp_path / "reader"))
    assert error.away
    server.admit()
    assert fetch_run(store, tmp_path / "reader") == 1
    assert files(tmp_path / "reader") == files(run)


def test_one_bad_answer_is_not_the_end_of_it(server: ObjectServer, store: ObjectStore, run: Path) -> None:
    server.refuse(500, "InternalError", times=1)
    assert publish(run, store).uploaded == 2


def test_a_store_that_does_not_answer_is_noticed(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given something that takes connections and says nothing
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(objects, "_READ_S", 0.2)
        with open_objects(store.uri) as dead:
            error = refusal(lambda: dead.get("x"))
    assert error.away
    assert "no answer in time" in str(error)


def test_what_is_no_store_is_told(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as page:

        def answer() -> None:
            for _ in range(2):
                try:
                    connection, _peer = page.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)
                    connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\n\r\n<html>no such")

        threading.Thread(target=answer, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{page.getsockname()[1]}")
        with open_objects(store.uri) as other:
            assert "what answers there is no S3 store" in str(refusal(other.list))


def test_a_bucket_that_is_not_there_is_one_line(server: ObjectServer) -> None:
    with open_objects("s3://no-such-bucket/x") as other:
        for call in (other.list, lambda: other.put("x", b""), lambda: other.get("x"), lambda: read_manifest(other)):
            error = refusal(call)
            assert "there is no such bucket" in str(error)
            assert "s3://no-such-bucket/x" in str(error)
            assert not error.away


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("AccessDenied", "permission is denied"),
        ("InvalidAccessKeyId", "does not know these credentials"),
        ("SignatureDoesNotMatch", "secret key does not fit"),
        ("RequestTimeTooSkewed", "clock is too far off"),
    ],
)
def test_a_store_that_denies_everything_is_one_line(
    code: str, words: str, server: ObjectServer, store: ObjectStore, run: Path
) -> None:
    server.refuse(403, code)
    calls = (store.list, lambda: store.put("x", b""), lambda: store.get("x"), lambda: publish(run, store))
    for call in calls:
        error = refusal(call)
        assert words in str(error)
        assert not error.away


def test_a_bucket_that_may_only_be_read_serves_readers(
    server: ObjectServer, store: ObjectStore, run: Path, tmp_path: Path
) -> None:
    publish(run, store)
    server.refuse(403, "AccessDenied", writes_only=True)
    fetch_run(store, tmp_path / "reader")
    assert files(tmp_path / "reader") == files(run)
    write(run, "report.html", b"report")
    error = refusal(lambda: publish(run, store))
    assert "report.html: permission is denied (AccessDenied, HTTP 403)" in str(error)


def test_a_flipped_byte_is_found_named_and_mended_by_the_working_copy(
    store: ObjectStore, run: Path, tmp_path: Path
) -> None:
    publish(run, store)
    store.put(BLOCK, b"blocj")
    with pytest.raises(DamagedFileError, match=r"episodes/cell=a/0\.parquet is damaged"):
        fetch_run(store, tmp_path / "reader")
    assert BLOCK not in files(tmp_path / "reader")
    assert publish(run, store).uploaded == 1
    fetch_run(store, tmp_path / "reader")
    assert files(tmp_path / "reader") == files(run)


def test_a_store_whose_data_is_gone_gets_the_run_again(
    server: ObjectServer, store: ObjectStore, run: Path, tmp_path: Path
) -> None:
    publish(run, store)
    server.kill()
    assert refusal(lambda: publish(run, store)).away
    server.start()
    with pytest.raises(NotFoundError, match="no run is in"):
        fetch_run(store, tmp_path / "reader")
    assert publish(run, store).uploaded == 2
    fetch_run(store, tmp_path / "reader")
    assert files(tmp_path / "reader") == files(run)
