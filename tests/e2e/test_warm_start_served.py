"""A warm start through the served policy: the driver fills the table over HTTP before any worker decides in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcon_platform.config import read_plan
from memcon_platform.sweep.starts import read_starts
from memcon_policy_server.journal.fold import folded
from support.sweeps import Sweep, memcon, record

# Few keys, so that two short runs meet at the same ones.
POLICY = "axes.policy=[{name: ucb, state_key: goal_plan}]"


@pytest.mark.ray
@pytest.mark.timeout(180)
def test_a_table_that_starts_warm_is_the_same_served_and_in_process(tmp_path: Path) -> None:
    first = Sweep(tmp_path, "first", POLICY, "limit=8")
    first.finish("--local")
    warm = (POLICY, "limit=3", "start_from={policy: {run: first, cap: 5}}", "policy_server.shards=2")
    local, served = Sweep(tmp_path, "local", *warm), Sweep(tmp_path, "served", *warm)

    local.finish("--local")
    served.finish("workers=1")

    assert memcon("data", "compare", local.run_dir, served.run_dir).stdout == "equal\n"
    assert read_starts(served.run_dir) == read_starts(local.run_dir)
    (start,) = read_starts(served.run_dir).tables
    table = f"cell/{read_plan(served.run_dir).cells[0].cell_id}"
    assert (start.table, start.cap) == (table, 5)
    numbers = [
        [folded(sweep.run_dir / "policy", shard, 2)[0].dump(table)["numbers"]["keys"] for shard in range(2)]
        for sweep in (local, served)
    ]
    assert numbers[0] == numbers[1]
    assert any(numbers[0])
    assert record("replay", "verify", served.run_dir)["ok"]
