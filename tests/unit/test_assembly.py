"""From a plan to what workers are told: tables, bounds, and what streams begin with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memcon_platform.assembly import learning_settings, stream_specs
from memcon_platform.config import load
from memcon_platform.config.plan import RunPlan
from memcon_workers.spec import StreamSpec
from support.sweeps import CONFIG


@pytest.fixture
def plan_of(tmp_path: Path) -> Any:
    def plan(**settings: Any) -> RunPlan:
        config = tmp_path / "config.yaml"
        config.write_text(CONFIG)
        given = [f"{key.replace('__', '.')}={json.dumps(value)}" for key, value in settings.items()]
        return load(config, ["run=r", f"root={tmp_path}", *given], 3)

    return plan


def specs_of(plan: RunPlan, **more: Any) -> list[StreamSpec]:
    return list(stream_specs(plan, **more).values())


@pytest.mark.parametrize(
    ("settings", "tables", "gated"),
    [
        ({"streams": 3}, ["cell/{0}"] * 3, False),
        ({"streams": 3, "max_open_episodes": 1}, ["cell/{0}"] * 3, True),
        ({"streams": 3, "max_open_episodes": 2}, ["cell/{0}"] * 3, True),
        # As many open episodes as there are streams bound nothing.
        ({"streams": 3, "max_open_episodes": 3}, ["cell/{0}"] * 3, False),
        ({"streams": 2, "table_scope": "stream"}, ["stream/{0}/0", "stream/{0}/1"], False),
        ({"streams": 2, "table_scope": "stream", "max_open_episodes": 1}, ["stream/{0}/0", "stream/{0}/1"], False),
        ({"table_scope": "all", "axes__seed": [0, 1]}, ["named/all"] * 2, False),
        ({"table_scope": "all", "axes__seed": [0, 1], "max_open_episodes": 1}, ["named/all"] * 2, True),
    ],
)
def test_streams_learn_in_the_table_of_their_scope_and_wait_where_it_is_bounded(
    plan_of: Any, settings: Mapping[str, Any], tables: list[str], gated: bool
) -> None:
    plan = plan_of(**settings)

    specs = specs_of(plan)

    assert [spec.table for spec in specs] == [table.format(plan.cells[0].cell_id) for table in tables]
    assert {spec.gated for spec in specs} == {gated}
    assert len({spec.store_path for spec in specs}) == len(specs)
    assert [(spec.cell, spec.stream) for spec in specs] == list(stream_specs(plan))


def test_a_cell_without_a_table_never_waits_for_a_named_one(plan_of: Any) -> None:
    plan = plan_of(axes__policy=["none", "ucb"], streams=2, table_scope="all", max_open_episodes=1)
    assert {(spec.learning is None, spec.gated) for spec in specs_of(plan)} == {(True, False), (False, True)}


def test_streams_begin_with_what_the_plan_says(plan_of: Any) -> None:
    memory = {"name": "metagpt", "preload": {"per_type": 2}}
    plan = plan_of(streams=2, axes__memory=[memory], axes__policy=["every_arm"])
    first, second = specs_of(plan, memory_files={(plan.cells[0].cell_id, 1): Path("/runs/e/001.sqlite")})
    assert (first.memory_from, second.memory_from) == (None, "/runs/e/001.sqlite")
    assert first.preload is not None
    assert (first.preload.per_type, first.memory_frozen) == (2, False)
    assert (first.learning, first.trial_set) == (None, "default")


@pytest.mark.parametrize(
    "settings",
    [
        {"start_from": {"memory": {"run": "earlier", "frozen": True}}},
        {"axes__memory": [{"name": "metagpt", "preload": {"per_type": 1, "frozen": True}}]},
    ],
)
def test_a_memory_is_frozen_when_its_start_says_so(plan_of: Any, settings: Mapping[str, Any]) -> None:
    assert [spec.memory_frozen for spec in specs_of(plan_of(**settings))] == [True]
    assert [spec.memory_frozen for spec in specs_of(plan_of())] == [False]


def test_a_table_is_frozen_when_its_start_says_so(plan_of: Any) -> None:
    for frozen in (False, True):
        (cell,) = plan_of(start_from={"policy": {"run": "earlier", "frozen": frozen}}).cells
        settings = learning_settings(cell)
        assert settings is not None
        assert settings.frozen is frozen


def test_cells_have_the_same_setup_when_agent_and_memory_are_the_same(plan_of: Any) -> None:
    plan = plan_of(
        axes__memory=["metagpt", {"name": "metagpt", "index_failures": True}],
        axes__policy=["ucb", "uniform"],
        axes__benchmark=["household", "pddl"],
    )
    setups = {(spec.memory.parameters.get("index_failures", False), spec.setup) for spec in specs_of(plan)}
    assert len(setups) == 2
