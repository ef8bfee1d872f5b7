"""Real processes die by kill -9 in the middle of a real sweep; the same command again ends as if none had."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

from memcon.learning.events import Credited
from memcon_platform.config import read_plan
from memcon_platform.sweep.overview import statuses
from memcon_platform.trajectory import read_run
from support.journals import events_of
from support.processes import kill_all
from support.sweeps import Sweep, memcon, record

WORKER, SHARD = "_WorkerActor", "ServeReplica"


def _kill_all_in_turn(sweep: Sweep) -> None:
    """Launch, then kill a worker, the shard and the driver, each after some progress."""
    sweep.launch("workers=2")
    at = sweep.wait_for_tasks(10)
    kill_all(sweep.children(WORKER)[:1])
    at = sweep.wait_for_tasks(at + 15)
    kill_all(sweep.children(SHARD))
    sweep.wait_for_tasks(at + 30)
    sweep.kill()


def _pending(sweep: Sweep) -> Counter[bool]:
    """Tasks still to run, by whether their cell's streams take turns at its table."""
    plan = read_plan(sweep.run_dir)
    takes_turns = {cell.cell_id: cell.max_open_episodes == 1 for cell in plan.cells}
    pending: Counter[bool] = Counter()
    for (cell_id, _), (status, size) in statuses(plan).items():
        pending[takes_turns[cell_id]] += size - status.num_ended
    return pending


@pytest.mark.ray
@pytest.mark.fault
@pytest.mark.timeout(300)
def test_exact_cells_and_streams_that_take_turns_end_equal_to_an_uninterrupted_run(tmp_path: Path) -> None:
    settings = (
        *("axes.policy=[ucb,fixed:plan_inject]", "limit=90", "policy_server.shards=2"),
        "include=[{policy: [ucb], seed: [1], streams: 2, max_open_episodes: 1}]",
    )
    whole = Sweep(tmp_path, "whole", *settings)
    whole.finish("--local")
    shaken = Sweep(tmp_path, "shaken", *settings)
    _kill_all_in_turn(shaken)
    pending = _pending(shaken)
    assert min(pending[False], pending[True]) > 0, "the driver was killed too late to prove anything"
    # Other numbers of workers and of streams in one worker change nothing either.
    shaken.finish("workers=1", "streams_per_worker=3")
    assert memcon("data", "compare", whole.run_dir, shaken.run_dir).stdout == "equal\n"
    assert record("data", "check", shaken.run_dir)["found"] == 2 * 90 + 2 * 90
    assert record("replay", "verify", shaken.run_dir)["ok"]


@pytest.mark.ray
@pytest.mark.fault
@pytest.mark.timeout(300)
def test_streams_that_share_a_table_lose_and_double_nothing(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "shared", "streams=8", "limit=60", "policy_server.shards=2")
    _kill_all_in_turn(sweep)
    assert sweep.done() < 480, "the driver was killed too late to prove anything"
    sweep.finish("workers=2")
    checked = record("data", "check", sweep.run_dir)
    assert (checked["found"], checked["ok"]) == (480, True)
    assert record("replay", "verify", sweep.run_dir)["ok"]
    events = events_of(sweep.run_dir / "policy", num_shards=2)
    credited = Counter(event.decision_id for event in events if isinstance(event, Credited))
    decided = set(read_run(sweep.run_dir).decisions["decision_id"].to_pylist())
    assert set(credited) == decided
    assert set(credited.values()) == {1}


@pytest.mark.fault
@pytest.mark.timeout(120)
def test_ctrl_c_stops_at_a_task_boundary_and_the_same_command_goes_on(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "stopped", "axes.seed=[0,1]")
    process = sweep.launch("--local")
    sweep.wait_for_tasks(10)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    log = sweep.log.read_text()
    assert "the same command again goes on" in log
    assert "Traceback" not in log
    before = sweep.done()
    assert 10 <= before < 268
    sweep.finish("--local")
    episodes = read_run(sweep.run_dir).episodes
    assert episodes.num_rows == 268
    # What had ended was not run again: its claim is still the first.
    assert pc.sum(pc.equal(episodes["epoch"], 1)).as_py() >= before - 2
