"""The tracker and the rebuild over a real MLflow on SQLite."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from memcon.errors import UnavailableError
from memcon_platform.config import RunRecord, read_record
from memcon_platform.tracking import MlflowTracker, infos_of, rebuild
from memcon_platform.tracking.mlflow_store import MlflowStore
from support.episodes import FakeCell, write_plan, write_run, write_stream

# MLflow and its libraries warn at import.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(120)]

ONE = FakeCell(num_tasks=6, broken=(2,))
TWO = FakeCell(num_tasks=5, streams=2, seed=1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of runs for all tests: setting the schema up takes seconds."""
    return tmp_path_factory.mktemp("runs")


def _uri(root: Path) -> str:
    return f"sqlite:///{root / 'mlflow.db'}"


def _runs(root: Path, run: str) -> dict[str, Any]:
    """MLflow runs of a memcon run: cell id, or "run" for the parent -> MLflow run. Fails on doubles."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=_uri(root))
    experiment = client.get_experiment_by_name("memcon")
    assert experiment is not None
    found: dict[str, Any] = {}
    for item in client.search_runs([experiment.experiment_id]):
        if item.data.tags.get("memcon.run") == run:
            name = item.data.tags.get("memcon.cell_id", "run")
            assert name not in found
            found[name] = item
    return found


def _history(root: Path, run_id: str, name: str) -> dict[int, float]:
    from mlflow import MlflowClient

    history = MlflowClient(tracking_uri=_uri(root)).get_metric_history(run_id, name)
    assert len({metric.step for metric in history}) == len(history)
    return {metric.step: metric.value for metric in history}


def _track(run_dir: Path, record: RunRecord, ordinals: range) -> None:
    tracking = MlflowTracker(_uri(run_dir.parent))
    run, cells = infos_of(record, run_dir)
    tracking.start(run)
    for cell in cells:
        tracking.cell_started(cell)
        for ordinal in ordinals:
            tracking.task_ended(cell.cell_id, 0, ordinal, {"success": 1.0, "bad(name)": float("nan")})
    end = tracking.close()
    assert (end.dropped, end.problem) == (0, "")


def test_resuming_makes_no_double_and_never_logs_a_parameter_again(root: Path) -> None:
    run_dir = root / "resumed"
    write_plan(run_dir, [ONE])
    record = read_record(run_dir)

    _track(run_dir, record, range(3))
    # A setting that is told differently at the second start would fail in MLflow if it were logged again.
    changed = json.loads((run_dir / "plan.json").read_text())
    changed["cells"][0]["settings"]["control"]["plan_form"] = "bare"
    (run_dir / "plan.json").write_text(json.dumps(changed))
    _track(run_dir, read_record(run_dir), range(3, 6))

    runs = _runs(root, "resumed")
    assert set(runs) == {"run", ONE.cell_id}
    child = runs[ONE.cell_id]
    assert set(_history(root, child.info.run_id, "success")) == {0, 1, 2, 3, 4, 5}
    assert child.data.params["control.plan_form"] == "numbered"
    assert child.data.params["policy.name"] == "ucb"
    assert child.data.tags["mlflow.parentRunId"] == runs["run"].info.run_id
    assert child.data.tags["memcon.seed"] == "0"
    assert child.data.tags["memcon.memory"] == "metagpt"
    about = child.data.tags["mlflow.note.content"]
    assert "not a language model" in about
    assert "self-made stand-in for ALFWorld" in about
    assert runs["run"].data.tags["memcon.version"] == "0.1.0"


def test_a_run_of_the_same_name_made_anew_gets_runs_of_its_own(root: Path) -> None:
    from mlflow import MlflowClient

    run_dir = root / "again"
    write_plan(run_dir, [ONE])
    _track(run_dir, read_record(run_dir), range(3))
    plan = json.loads((run_dir / "plan.json").read_text())
    plan["created_at"] = "2027-01-02T03:04:05+00:00"
    (run_dir / "plan.json").write_text(json.dumps(plan))

    _track(run_dir, read_record(run_dir), range(2))

    client = MlflowClient(tracking_uri=_uri(root))
    experiment = client.get_experiment_by_name("memcon")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], "tags.`memcon.run` = 'again'")
    assert len(found) == 4
    steps = [set(_history(root, run.info.run_id, "success")) for run in found if "memcon.cell_id" in run.data.tags]
    assert sorted(steps, key=len) == [{0, 1}, {0, 1, 2}]


def test_a_rebuild_adds_what_is_missing_and_a_second_one_adds_nothing(root: Path) -> None:
    run_dir = write_run(root / "rebuilt", [ONE, TWO])
    _track(run_dir, read_record(run_dir), range(2))

    first, second = rebuild(run_dir), rebuild(run_dir)

    assert (first.cells, first.tasks) == (2, 16)
    assert first.added > 0
    assert second.added == 0
    runs = _runs(root, "rebuilt")
    one, two = runs[ONE.cell_id], runs[TWO.cell_id]
    assert set(_history(root, one.info.run_id, "success")) == {0, 1, 3, 4, 5}
    assert set(_history(root, one.info.run_id, "num_steps")) == set(range(6))
    assert set(_history(root, two.info.run_id, "stream-001/success")) == set(range(5))
    assert one.data.metrics["final/num_tasks"] == 5
    assert one.data.metrics["final/unevaluable"] == 1
    assert {run.info.status for run in runs.values()} == {"FINISHED"}


def test_an_unfinished_run_is_rebuilt_without_final_numbers(root: Path) -> None:
    run_dir = root / "unfinished"
    write_plan(run_dir, [ONE])
    write_stream(run_dir, ONE, count=3)

    rebuild(run_dir)

    child = _runs(root, "unfinished")[ONE.cell_id]
    assert not [name for name in child.data.metrics if name.startswith("final/")]
    assert child.info.status == "RUNNING"


def test_simultaneous_first_starts_share_one_schema_experiment_and_parent(tmp_path: Path) -> None:
    run_dir = tmp_path / "raced"
    write_plan(run_dir, [ONE])
    run, cells = infos_of(read_record(run_dir), run_dir)

    with ThreadPoolExecutor(3) as pool:
        starts = [pool.submit(MlflowStore, _uri(tmp_path), "memcon", run) for _ in range(3)]

    assert [start.exception() for start in starts] == [None, None, None]
    assert set(_runs(tmp_path, "raced")) == {"run"}
    assert len(cells) == 1


def test_artifacts_lie_beside_the_database(root: Path) -> None:
    run_dir = write_run(root / "artefacts", [ONE])
    (run_dir / "report.html").write_text("<p>report</p>")

    rebuild(run_dir)

    parent = _runs(root, "artefacts")["run"]
    assert parent.info.artifact_uri.startswith((root / "mlartifacts").as_uri())
    assert next((root / "mlartifacts").rglob("report.html")).read_text() == "<p>report</p>"


def test_the_config_of_the_run_is_an_artifact(root: Path) -> None:
    run_dir = write_run(root / "with_config", [ONE])

    rebuild(run_dir)

    parent = _runs(root, "with_config")["run"]
    (kept,) = (path for path in (root / "mlartifacts").rglob("config.yaml") if parent.info.run_id in path.parts)
    assert kept.read_text() == (run_dir / "config.yaml").read_text() != ""


def test_mlflow_says_nothing_on_the_terminal(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rebuild(write_run(root / "quiet", [FakeCell(num_tasks=2)]))

    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert logging.getLogger("alembic").getEffectiveLevel() >= logging.ERROR


@pytest.mark.timeout(20)
def test_a_file_that_is_no_database_is_one_clear_error_at_once(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", [FakeCell(num_tasks=2)])
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 100)

    with pytest.raises(UnavailableError, match=r"cannot rebuild run in MLflow at sqlite.*run the same command again"):
        rebuild(run_dir)
