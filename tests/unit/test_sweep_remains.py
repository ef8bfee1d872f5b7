"""What a launch that was cut short owes is paid by the next one, also when no task is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memcon.learning.exploration import UcbConfig
from memcon.testing.policy import decide_request
from memcon_platform.config import read_plan
from memcon_platform.config.plan import RunPlan
from memcon_platform.sweep.events import StreamName
from memcon_platform.sweep.remains import streams_left, write_served_tables
from memcon_platform.sweep.run_folder import policy_folder
from memcon_platform.sweep.status import StreamStatus
from memcon_policy_server.client.local import LocalPolicyClient
from memcon_policy_server.owner.exports import is_exported
from memcon_policy_server.sharding import export_path
from support.episodes import FakeCell, write_run

CELL = FakeCell(num_tasks=3, streams=2)
ENDED = StreamStatus(num_ended=3, num_success=1, num_unevaluable=0, unsettled=False, error="")


@pytest.fixture
def plan(tmp_path: Path) -> RunPlan:
    return read_plan(write_run(tmp_path / "runs" / "demo", [CELL]))


def left(plan: RunPlan, status: StreamStatus = ENDED) -> list[StreamName]:
    return streams_left(plan, {(CELL.cell_id, stream): (status, 3) for stream in range(2)})


def test_nothing_is_left_of_a_run_that_ended_whole(plan: RunPlan) -> None:
    assert left(plan) == []


@pytest.mark.parametrize("table", ["episodes", "steps", "decisions"])
@pytest.mark.parametrize("cut", [True, False])
def test_a_stream_whose_last_block_is_missing_or_broken_is_left(plan: RunPlan, table: str, cut: bool) -> None:
    (block,) = plan.run_dir.glob(f"{table}/cell=*/stream-001-*.parquet")
    if cut:
        block.write_bytes(block.read_bytes()[:100])
    else:
        block.unlink()
    assert left(plan) == [(CELL.cell_id, 1)]


def test_a_stream_whose_trials_are_missing_is_left(tmp_path: Path) -> None:
    cell = FakeCell(num_tasks=3, trials=True)
    plan = read_plan(write_run(tmp_path / "runs" / "matrix", [cell]))
    found = {(cell.cell_id, 0): (ENDED, 3)}
    assert streams_left(plan, found) == []
    (block,) = plan.run_dir.glob("trials/cell=*/*.parquet")
    block.unlink()
    assert streams_left(plan, found) == [(cell.cell_id, 0)]


def test_a_stream_that_ended_more_tasks_than_were_exported_is_left(plan: RunPlan) -> None:
    assert len(left(plan, replace(ENDED, num_ended=4))) == 2


async def _decide(plan: RunPlan, number: int, *, export: bool) -> None:
    client = LocalPolicyClient(policy_folder(plan))
    await client.open_table("table", UcbConfig().learning_settings())
    await client.decide(decide_request(number))
    if export:
        await client.close()
    else:
        for owner in client._owners:
            await owner.close()


@pytest.mark.parametrize("earlier", [True, False])
async def test_served_tables_of_a_killed_owner_are_written_from_its_journal(plan: RunPlan, earlier: bool) -> None:
    if earlier:
        await _decide(plan, 1, export=True)
    await _decide(plan, 2, export=False)
    assert not is_exported(policy_folder(plan), 0, 1)

    await write_served_tables(plan)

    assert is_exported(policy_folder(plan), 0, 1)


async def test_served_tables_that_are_there_stay_untouched(plan: RunPlan) -> None:
    await _decide(plan, 1, export=True)
    path = export_path(policy_folder(plan), 0)
    before = path.stat()
    await write_served_tables(plan)
    assert path.stat() == before
