"""A stream that fails at an exact table stops the table, and the resume ends equal to an undisturbed run."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memcon.errors import StorageError
from memcon.store import StreamStore
from memcon_platform.config import RunPlan, load
from memcon_platform.replay import verify
from memcon_platform.sweep.launch import Launch, launch, open_local
from memcon_platform.sweep.overview import overview
from memcon_platform.sweep.runner import RunEnd
from memcon_platform.trajectory import check, compare
from memcon_workers.spec import TaskEnded
from support.sweeps import CONFIG

LIMIT = 4


class Nobody:
    """An observer that does not look."""

    def task_ended(self, task: TaskEnded) -> None:
        return

    def cell_ended(self, cell: str) -> None:
        return


def plan_of(root: Path, run: str, *settings: str) -> RunPlan:
    config = root / f"{run}.yaml"
    config.write_text(CONFIG)
    shape = ("streams=2", "axes.seed=[0,1]", "table_scope=together", "max_open_episodes=1")
    return load(config, [f"run={run}", f"root={root / 'runs'}", *shape, *settings], LIMIT)


def launched(plan: RunPlan) -> tuple[RunEnd, str]:
    shown = io.StringIO()
    how = Launch(open_pool=open_local, observe=lambda *_: Nobody(), console=Console(file=shown))
    _, end = asyncio.run(launch(plan, how))
    return end, " ".join(shown.getvalue().split())


def fail_once(monkeypatch: pytest.MonkeyPatch, name: str, ordinal: int) -> None:
    """The disk refuses the end of one task of the stream file that ends with `name`, once."""
    real = StreamStore.end
    left = [True]

    def end(store: StreamStore, make: Any, outbox: Sequence[Any]) -> Any:
        if left and str(store.path).endswith(name) and store.num_ended == ordinal:
            left.clear()
            raise StorageError(f"cannot write {store.path}: no space left; make space and run again")
        return real(store, make, outbox)

    monkeypatch.setattr(StreamStore, "end", end)


def test_a_resume_after_a_failed_stream_is_equal_to_an_undisturbed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, plan = plan_of(tmp_path, "whole"), plan_of(tmp_path, "shaken")
    launched(whole)
    cell = plan.cells[0].cell_id
    fail_once(monkeypatch, f"{cell}/001.sqlite", 1)

    end, _ = launched(plan)

    assert not end.stopped
    assert list(end.failures) == [(cell, 1)]
    assert "no space left" in end.failures[cell, 1]
    assert "table 'named/together' stops with it" in end.failures[cell, 1]
    # One round, and the first stream's turn in the second. What the stopped streams ended is in Parquet already.
    assert (overview(plan).done, check(plan.run_dir).found) == (5, 4)
    end, shown = launched(plan)
    assert not end.failures
    assert "another order" not in shown
    assert compare(whole.run_dir, plan.run_dir) == []
    assert verify(plan.run_dir).ok


def test_a_cell_that_is_added_to_a_table_which_has_learned_is_told(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "grown")
    _, shown = launched(plan)
    assert "another order" not in shown

    end, shown = launched(plan_of(tmp_path, "grown", "axes.seed=[0,1,2]"))

    assert not end.failures
    assert "table 'named/together' learns on in another order than a fresh run would" in shown
    assert "another order" not in launched(plan_of(tmp_path, "grown", "axes.seed=[0,1,2]"))[1]
