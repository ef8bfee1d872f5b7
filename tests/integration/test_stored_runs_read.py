"""What reads a run in an object store: the cache, reports and exports that are put back, runs that start from it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow.dataset import dataset  # type: ignore[import-untyped]
from pyarrow.fs import S3FileSystem  # type: ignore[import-untyped]

from memcon.errors import ConfigError, LockedError, NotFoundError
from memcon_platform import tracking
from memcon_platform.cli import data, policy, report, track
from memcon_platform.config import load, read_plan
from memcon_platform.objects import open_objects
from memcon_platform.run_store.lock import driver_of
from memcon_platform.run_store.reader_copy import fetched_run
from memcon_platform.sweep.overview import statuses
from memcon_platform.sweep.publication import published
from memcon_platform.sweep.starts import prepare_starts, read_starts
from memcon_platform.tracking import RebuildReport
from memcon_platform.trajectory import compare
from support.object_server import BUCKET, ObjectServer, object_server
from support.shell import SMALL, SMOKE
from support.stored_sweeps import QUICK, Machine

ROOT = f"s3://{BUCKET}/team"


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


@pytest.fixture(autouse=True)
def store_in_use(server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server.set_up(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(folder=tmp_path / "here", root=ROOT)


@pytest.fixture(scope="module")
def finished(server: ObjectServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URI of a run that has ended."""
    with pytest.MonkeyPatch.context() as patch:
        server.set_up(patch)
        assert Machine(folder=tmp_path_factory.mktemp("maker"), root=ROOT).launch("finished")[1] == ""
    return f"{ROOT}/finished"


def test_a_reader_fetches_only_what_differs(finished: str, server: ObjectServer) -> None:
    first = fetched_run(finished)
    server.requests()
    assert fetched_run(finished) == first
    assert {line.split("/")[-1] for line in server.requests()} == {"manifest.json"}


def test_blocks_are_plain_parquet_for_any_reader(finished: str, server: ObjectServer) -> None:
    place = server.line.url.removeprefix("http://")
    files = S3FileSystem(endpoint_override=place, scheme="http", region="us-east-1")
    for table in ("episodes", "steps", "decisions"):
        there = dataset(f"{finished.removeprefix('s3://')}/{table}", filesystem=files, partitioning="hive")
        here = dataset(fetched_run(finished) / table, partitioning="hive")
        assert there.to_table().equals(here.to_table())
        assert there.count_rows() > 0


def test_what_is_no_run_in_the_store_is_told_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"no run at {ROOT}/typo"):
        fetched_run(f"{ROOT}/typo")
    assert not (tmp_path / "cache").exists()


def test_a_report_is_put_back_unless_the_run_is_driven(finished: str, machine: Machine) -> None:
    with open_objects(finished) as store:
        assert "report.html" not in store.list()
        with published(machine.plan("finished"), machine.said.append) as publication:
            assert publication is not None
            printed = CliRunner().invoke(report.command, [finished], standalone_mode=False)
            assert "note: report.html is not in the store: run" in printed.output
            assert "report.html" not in store.list()
            publication.finish()
        printed = CliRunner().invoke(report.command, [finished], standalone_mode=False)
        assert "note:" not in printed.output
        assert "report.html" in store.list()
        assert driver_of(store) is None


def test_events_are_exported_into_the_store(finished: str) -> None:
    for exported in (True, False):
        printed = CliRunner().invoke(data.command, ["export", finished, "--json"], standalone_mode=False)
        assert printed.exception is None, printed.output
        assert (json.loads(printed.output)["exported"] > 0) is exported
    with open_objects(finished) as store:
        assert any(key.startswith("policy/events/shard=0/") for key in store.list())


def test_policies_of_a_stored_run_are_read_and_not_changed(finished: str, tmp_path: Path) -> None:
    listed = CliRunner().invoke(policy.command, ["list", finished, "--json"], standalone_mode=False)
    (table,) = json.loads(listed.output)["tables"]
    copied = CliRunner().invoke(
        policy.command, ["export", finished, "--events", "--to", str(tmp_path / "events")], standalone_mode=False
    )
    assert copied.exception is None, copied.output
    assert list((tmp_path / "events").glob("shard=0/*.parquet"))
    for arguments in (["freeze", finished, table["table"]], ["import", finished, "new", "tables.json"]):
        refused = CliRunner().invoke(policy.command, arguments, standalone_mode=False)
        assert isinstance(refused.exception, ConfigError)
        assert "changed in the run's working copy" in str(refused.exception)
    for command in ("compact", "migrate"):
        refused = CliRunner().invoke(data.command, [command, finished], standalone_mode=False)
        assert "changed in the run's working copy" in str(refused.exception)


def test_mlflow_is_rebuilt_beside_the_working_copies_and_not_in_the_cache(
    finished: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[Path, str]] = []

    def rebuild(run_dir: Path, *, uri: str, experiment: str) -> RebuildReport:
        asked.append((run_dir, uri))
        return RebuildReport(cells=2, tasks=6, added=0)

    monkeypatch.setattr(tracking, "rebuild", rebuild)
    done = CliRunner().invoke(track.command, ["rebuild", finished], standalone_mode=False)
    assert done.exception is None, done.output
    maker = Path(read_plan(fetched_run(finished)).resolved["working_root"])
    assert asked == [(fetched_run(finished), f"sqlite:///{maker / BUCKET / 'team' / 'mlflow.db'}")]


@pytest.mark.parametrize("named", ["uri", "name"])
def test_a_run_starts_from_the_table_of_a_stored_one(finished: str, machine: Machine, named: str) -> None:
    run = finished if named == "uri" else "finished"
    start = f"start_from={json.dumps({'policy': {'run': run}})}"
    more = ("axes.policy=[ucb]", "include=[]", start)
    machine.settings = more
    machine.launch(f"warm-{named}")
    warm = machine.plan(f"warm-{named}")
    assert read_starts(warm.run_dir).tables[0].source_run == "finished"


def test_a_run_that_is_driven_is_nothing_to_start_from(finished: str, machine: Machine, tmp_path: Path) -> None:
    start = f"start_from={json.dumps({'policy': {'run': finished}})}"
    plan = load(SMOKE, [*SMALL, QUICK, "run=eager", f"root={tmp_path}", "axes.policy=[ucb]", "include=[]", start])
    with published(machine.plan("finished"), machine.said.append) as publication:
        assert publication is not None
        with pytest.raises(LockedError, match="is driven by process"):
            prepare_starts(plan, statuses(plan))
        publication.finish()


def test_a_working_copy_that_was_emptied_by_hand_is_fetched_and_not_played_again(
    finished: str, machine: Machine
) -> None:
    machine.launch("emptied")
    # As `rm -rf RUN/*`, which leaves hidden files.
    for path in machine.plan("emptied").run_dir.glob("[!.]*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    end, unpublished = machine.launch("emptied")

    assert (end.results, unpublished) == ({}, "")
    assert machine.said[0].startswith(f"fetching {ROOT}/emptied into ")
    assert compare(fetched_run(finished), machine.plan("emptied").run_dir) == []
    assert compare(fetched_run(finished), fetched_run(f"{ROOT}/emptied")) == []
