"""Runs in an object store: the data of a local run, through stores that go away, drivers that die and machines that
take over.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from memcon.errors import ConflictError, LockedError
from memcon_platform.cli import data, status
from memcon_platform.config import read_plan
from memcon_platform.mirror import fetch_run, publish
from memcon_platform.objects import ObjectStore, ObjectStoreError, open_objects
from memcon_platform.run_store.lock import break_lock, driver_of, take, this_driver
from memcon_platform.run_store.reader_copy import fetched_run
from memcon_platform.sweep.handover import undelivered
from memcon_platform.sweep.overview import overview
from memcon_platform.sweep.publication import published
from memcon_platform.trajectory import check, compare
from support.object_server import ACCESS_KEY, BUCKET, SECRET_KEY, ObjectServer, object_server
from support.stored_sweeps import Hook, Machine, local_run, stop
from support.waiting import wait_until

ROOT = f"s3://{BUCKET}/team"


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same sweep in a local folder."""
    return local_run(tmp_path_factory.mktemp("local"), "local")


@pytest.fixture(autouse=True)
def store_in_use(server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    server.set_up(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    server.line.restore()
    server.admit()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(folder=tmp_path / "here", root=ROOT)


@pytest.fixture
def other(tmp_path: Path) -> Machine:
    return Machine(folder=tmp_path / "there", root=ROOT)


def store_of(run: str) -> ObjectStore:
    return open_objects(f"{ROOT}/{run}")


def at(run: str) -> Path:
    return fetched_run(f"{ROOT}/{run}")


# --- the same data ---------------------------------------------------------------------------------------------------


def test_a_run_in_a_store_has_the_data_of_a_local_one_and_no_secret(machine: Machine, undisturbed: Path) -> None:
    end, unpublished = machine.launch("same")

    assert (end.stopped, unpublished, machine.said) == (False, "", [])
    assert compare(undisturbed, at("same")) == []
    assert check(at("same")).ok
    with store_of("same") as store:
        keys = set(store.list())
        assert driver_of(store) is None
    here = {path.relative_to(machine.plan("same").run_dir).as_posix(): path for path in files_of(machine, "same")}
    assert {"policy/secret", "run.lock"} <= here.keys() - keys
    assert {"plan.json", "config.yaml", "policy/shard-0.sqlite", "manifest.json"} <= keys
    assert not [key for key in keys if key.endswith(("secret", "token", ".lock", ".tmp", "-wal"))]
    secret = here["policy/secret"].read_bytes()
    assert not [path for path in at("same").rglob("*") if path.is_file() and secret in path.read_bytes()]


def files_of(machine: Machine, run: str) -> list[Path]:
    return [path for path in machine.plan(run).run_dir.rglob("*") if path.is_file()]


def test_the_same_launch_again_runs_and_publishes_nothing(machine: Machine, server: ObjectServer) -> None:
    machine.launch("again")
    server.requests()
    _, unpublished = machine.launch("again")
    assert unpublished == ""
    assert [line.split("/")[-1] for line in server.requests() if line.startswith("PUT")] == ["run.lock"]


def test_blocks_are_in_the_store_while_the_run_goes_on(machine: Machine) -> None:
    told: list[dict[str, object]] = []

    def look() -> None:
        # One cell has ended, the next one is being played.
        wait_until(lambda: at_least_one_block("watched"), within_s=40, what="a published block")
        printed = CliRunner().invoke(status.command, [f"{ROOT}/watched", "--json"], standalone_mode=False)
        assert printed.exception is None, printed.output
        told.append(json.loads(printed.output))

    machine.launch("watched", Hook(after_tasks=4, do=look))

    assert told[0]["done"] == 3
    assert told[0]["planned"] == 6
    assert str(told[0]["published_at"]).startswith("20")
    driver = told[0]["driver"]
    assert isinstance(driver, dict)
    assert driver["folder"] == str(machine.plan("watched").run_dir)
    assert overview(read_plan(at("watched"))).done == 6


def at_least_one_block(run: str) -> bool:
    with store_of(run) as store:
        return any(key.startswith("episodes/") for key in store.list())


# --- a store that goes away ------------------------------------------------------------------------------------------


def test_a_store_that_is_cut_in_the_middle_loses_nothing(
    machine: Machine, server: ObjectServer, undisturbed: Path
) -> None:
    end, unpublished = machine.launch("cut", Hook(do=server.line.cut))

    # All tasks were played, and one word was said while they were.
    assert not end.stopped
    assert overview(read_plan(machine.plan("cut").run_dir)).done == 6
    assert len(machine.said) == 1
    assert re.match(r"not published yet: \d+ files wait here while the run goes on \(cannot ", machine.said[0])
    assert unpublished.startswith(f"the run is whole in {machine.plan('cut').run_dir}, and ")
    assert f" files are not in {ROOT}/cut yet: cannot " in unpublished
    assert "it cannot be reached" in unpublished
    assert "\n" not in unpublished
    server.line.restore()
    with pytest.raises(LockedError, match="is driven by process"):
        Machine(folder=machine.folder.parent / "there", root=ROOT).launch("cut")

    assert machine.launch("cut")[1] == ""

    assert compare(undisturbed, at("cut")) == []
    with store_of("cut") as store:
        assert driver_of(store) is None


def test_a_store_that_is_cut_inside_an_upload_is_made_whole(
    machine: Machine, server: ObjectServer, undisturbed: Path
) -> None:
    server.line.cut_after(30_000)
    assert "files are not in" in machine.launch("torn")[1]

    server.line.restore()
    assert machine.launch("torn")[1] == ""

    assert compare(undisturbed, at("torn")) == []


def test_a_store_that_is_dead_at_the_start_leaves_nothing_begun(machine: Machine, server: ObjectServer) -> None:
    server.line.cut()
    with pytest.raises(ObjectStoreError, match="it cannot be reached") as refused:
        machine.launch("dead")
    assert "\n" not in str(refused.value)
    assert not machine.folder.exists()


@pytest.mark.parametrize("writes_only", [True, False])
def test_a_bucket_without_permission_is_one_line_and_nothing_is_begun(
    machine: Machine, server: ObjectServer, writes_only: bool
) -> None:
    server.refuse(403, "AccessDenied", writes_only=writes_only)
    with pytest.raises(ObjectStoreError, match="permission is denied") as refused:
        machine.launch("denied")
    assert "\n" not in str(refused.value)
    assert ACCESS_KEY not in str(refused.value)
    assert SECRET_KEY not in str(refused.value)
    assert not (machine.plan("denied").run_dir / "plan.json").exists()


def test_no_such_bucket_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ObjectStoreError, match="there is no such bucket"):
        Machine(folder=tmp_path / "here", root="s3://memcon-nowhere/team").launch("lost")


def test_a_store_that_ignores_conditions_is_told(machine: Machine, server: ObjectServer) -> None:
    server.ignore_conditions()
    assert machine.launch("loose")[1] == ""
    assert "ignores conditions: two machines could drive one run" in machine.said[0]


def test_what_was_played_is_published_though_the_report_has_a_bug(machine: Machine) -> None:
    machine.launch("bug", dies=True)
    with pytest.raises(ZeroDivisionError), published(machine.plan("bug"), machine.said.append):
        raise ZeroDivisionError
    assert check(at("bug")).found == 6
    with store_of("bug") as store:
        assert driver_of(store) is None


# --- several machines ------------------------------------------------------------------------------------------------


def test_one_machine_at_a_time_drives_a_run(machine: Machine, other: Machine) -> None:
    refused: list[BaseException] = []

    def contend() -> None:
        # From a thread: this one runs the launch's event loop.
        def launch() -> None:
            with pytest.raises(LockedError) as error, published(other.plan("held"), other.said.append):
                pass
            refused.append(error.value)

        thread = threading.Thread(target=launch)
        thread.start()
        thread.join()

    machine.launch("held", Hook(after_tasks=1, do=contend))

    told = str(refused[0])
    assert f"run {ROOT}/held is driven by process" in told
    assert str(machine.plan("held").run_dir) in told
    assert f"memcon data unlock {ROOT}/held" in told
    assert not (other.plan("held").run_dir / "plan.json").exists()


def test_two_launches_from_one_working_copy_are_kept_apart(machine: Machine) -> None:
    first, second = (published(machine.plan("twice"), machine.said.append) for _ in range(2))
    with first, pytest.raises(LockedError, match="is driven from"), second:
        pass


def test_a_run_that_was_stopped_in_order_goes_on_elsewhere_and_ends_like_an_undisturbed_one(
    machine: Machine, other: Machine, undisturbed: Path
) -> None:
    end, unpublished = machine.launch("moved", Hook(after_tasks=2, do=stop))
    assert (end.stopped, unpublished) == (True, "")

    end, unpublished = other.launch("moved")

    assert (end.stopped, unpublished) == (False, "")
    assert "fetching" in other.said[0]
    assert compare(undisturbed, at("moved")) == []
    assert check(at("moved")).ok
    secrets = {(each.plan("moved").run_dir / "policy" / "secret").read_text() for each in (machine, other)}
    assert len(secrets) == 2
    # The first machine's copy is older now, and brought up to date.
    end, unpublished = machine.launch("moved")
    assert (unpublished, end.results) == ("", {})
    assert compare(undisturbed, machine.plan("moved").run_dir) == []


def test_a_driver_that_died_goes_on_in_its_working_copy(machine: Machine, undisturbed: Path) -> None:
    machine.launch("died", Hook(after_tasks=4, do=stop), dies=True)
    with store_of("died") as store:
        assert driver_of(store) is not None

    assert machine.launch("died")[1] == ""

    assert compare(undisturbed, at("died")) == []


def test_a_dead_driver_is_unlocked_and_the_run_goes_on_from_what_was_published(
    machine: Machine, other: Machine, undisturbed: Path
) -> None:
    # One cell is published by its block, without its stream.
    machine.launch("lost", Hook(after_tasks=4, do=lambda: wait_and_stop("lost")), dies=True)
    with pytest.raises(LockedError):
        other.launch("lost")

    unlocked = CliRunner().invoke(data.command, ["unlock", f"{ROOT}/lost"], standalone_mode=False)
    assert "is free; it was driven by process" in unlocked.output
    end, unpublished = other.launch("lost")

    assert (end.stopped, unpublished) == (False, "")
    assert compare(undisturbed, at("lost")) == []
    # What the first machine had not published is not overwritten, and not mixed in.
    before = {path: path.read_bytes() for path in files_of(machine, "lost") if path.suffix in {".sqlite", ".parquet"}}
    with pytest.raises(ConflictError, match=r"has gone on elsewhere .* move that folder away"):
        machine.launch("lost")
    assert {path: path.read_bytes() for path in before} == before
    with store_of("lost") as store:
        assert driver_of(store) is None


def wait_and_stop(run: str) -> None:
    wait_until(lambda: at_least_one_block(run), within_s=40, what="a published block")
    stop()


def test_blocks_of_a_dead_driver_that_go_beyond_its_published_streams_are_dropped(
    machine: Machine, other: Machine
) -> None:
    machine.launch("ahead", Hook(after_tasks=4, do=lambda: wait_and_stop("ahead")), dies=True)
    with store_of("ahead") as store:
        break_lock(store)
    # This one dies too, before it has published what it dropped with all else; which it then does not miss.
    other.launch("ahead", Hook(after_tasks=1, do=stop), dies=True)
    assert check(at("ahead")).found == 0
    with published(other.plan("ahead"), other.said.append) as publication:
        assert publication is not None
        assert publication.finish() == ""
    # The three tasks that the first driver had published are not mixed in.
    assert 0 < check(at("ahead")).found == overview(read_plan(at("ahead"))).done < 3


def test_outcomes_that_only_their_machine_can_deliver_keep_the_run_there(machine: Machine, other: Machine) -> None:
    machine.launch("owed", Hook(after_tasks=1, do=stop), dies=True)
    run_dir = machine.plan("owed").run_dir
    path = min(run_dir.glob("streams/*/000.sqlite"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO outbox VALUES ('d', 0, '{}')")
    with published(machine.plan("owed"), machine.said.append) as publication:
        assert publication is not None
        assert publication.finish() == ""
    assert "goes on from" in machine.said[-1]
    with pytest.raises(LockedError):
        other.launch("owed")

    with store_of("owed") as store:
        break_lock(store)
    with pytest.raises(ConflictError, match="only the machine that last drove the run can deliver them"):
        other.launch("owed")

    assert len(undelivered(run_dir)) == 1


def test_a_log_that_a_killed_worker_left_is_brought_into_its_file(machine: Machine) -> None:
    machine.launch("logged", Hook(after_tasks=1, do=stop), dies=True)
    (path,) = machine.plan("logged").run_dir.glob("streams/*/000.sqlite")
    leave_log(path)
    with published(machine.plan("logged"), machine.said.append) as publication:
        assert publication is not None
        assert publication.finish() == ""

    (there,) = at("logged").glob("streams/*/000.sqlite")
    with closing(sqlite3.connect(there)) as connection:
        assert connection.execute("SELECT value FROM meta WHERE key = 'late'").fetchall() == [("yes",)]


def leave_log(path: Path) -> None:
    """A commit that stands in the log only, as after kill -9."""
    copy = path.with_name("copy.sqlite")
    copy.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        with connection:
            connection.execute("INSERT INTO meta VALUES ('late', 'yes')")
        log = copy.with_name(f"{copy.name}-wal").read_bytes()
        content = copy.read_bytes()
    for left in path.parent.glob("copy.sqlite*"):
        left.unlink()
    path.write_bytes(content)
    path.with_name(f"{path.name}-wal").write_bytes(log)


def test_a_driver_that_lives_and_was_unlocked_overwrites_nothing(machine: Machine, tmp_path: Path) -> None:
    thief = this_driver(tmp_path / "thief", "thief")

    def steal() -> None:
        wait_until(lambda: at_least_one_block("stolen"), within_s=40, what="a published block")
        with store_of("stolen") as store:
            break_lock(store)
            take(store, thief)
            fetch_run(store, tmp_path / "thief")
            (tmp_path / "thief" / "more.json").write_text("{}")
            publish(tmp_path / "thief", store)

    _, unpublished = machine.launch("stolen", Hook(after_tasks=4, do=steal))

    assert "files are not in" in unpublished
    assert "which this folder has not seen; nothing was written" in unpublished
    assert "the same command again" not in unpublished
    with store_of("stolen") as store:
        assert driver_of(store) == thief
        assert "more.json" in store.list()


def test_a_run_that_was_removed_from_the_store_is_published_anew(machine: Machine, undisturbed: Path) -> None:
    machine.launch("gone")
    with store_of("gone") as store:
        for key in store.list():
            store.delete(key)
    assert machine.launch("gone")[1] == ""
    assert "holds no run any more" in machine.said[0]
    assert compare(undisturbed, at("gone")) == []
