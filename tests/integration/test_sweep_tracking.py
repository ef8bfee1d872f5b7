"""Tracking at the end of a sweep: what is wrong with it is told, and raises into nobody's run."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcon_platform.config import read_plan
from memcon_platform.sweep.tracking import SweepTracking
from memcon_platform.tracking import rebuild
from support.episodes import FakeCell, write_run

# MLflow and its libraries warn at import.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_damaged_parquet_of_a_resumed_run_is_told_with_a_remedy(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "demo", [FakeCell(num_tasks=3)])
    (block,) = run.glob("decisions/cell=*/*.parquet")
    block.write_bytes(block.read_bytes()[:300])
    tracking = SweepTracking(read_plan(run), resumed=True)

    end = tracking.close(run / "report.html")

    assert str(block) in end.problem
    assert end.remedy == f"run `memcon track rebuild {run}` later"


def test_a_cell_whose_tasks_were_not_all_told_is_filled_in_from_parquet(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "demo", [FakeCell(num_tasks=3)])
    tracking = SweepTracking(read_plan(run), resumed=False)
    # A worker died with the news of its last tasks.
    tracking.cell_ended(FakeCell(num_tasks=3).cell_id)

    end = tracking.close(run / "report.html")

    assert end.problem == ""
    assert rebuild(run).added == 0
