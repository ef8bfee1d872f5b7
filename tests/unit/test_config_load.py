"""`config.load`: what a valid config becomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from memcon.control.settings import PreloadSettings
from memcon_platform.config import RunPlan, load, plan_summary, read_plan, write_plan
from memcon_platform.config.plan import MemoryStart, StartFrom, TableStart
from support.config_plugins import GRID, toy_plugins


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with toy_plugins():
        yield


def plan_of(tmp_path: Path, document: Mapping[str, Any], *overrides: str, limit: int | None = None) -> RunPlan:
    path = tmp_path / "trial.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create(dict(document))), encoding="utf-8")
    return load(path, overrides, limit)


def test_axes_give_their_product_with_the_seed_fastest(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {"axes": GRID})

    assert [(cell.policy.label, cell.seed) for cell in plan.cells] == [
        ("fixed:retrieve_shallow", 0),
        ("fixed:retrieve_shallow", 1),
        ("ucb", 0),
        ("ucb", 1),
    ]
    assert [cell.place for cell in plan.cells] == [0, 1, 2, 3]
    assert len({cell.cell_id for cell in plan.cells}) == 4


def test_defaults_are_resolved_and_recorded(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {"axes": GRID})

    assert (plan.run, plan.run_dir) == ("trial", Path("runs/trial"))
    assert plan.tracking_uri == f"sqlite:///{Path('runs').resolve() / 'mlflow.db'}"
    assert (plan.settings.streams_per_worker, plan.settings.server_wait_s, plan.settings.task_restarts) == (8, 120, 3)
    assert plan.settings.workers >= 1
    cell = plan.cells[2]
    assert (cell.streams, cell.split, cell.table_scope, cell.limit) == (1, "replicate", "cell", None)
    assert cell.embedder.name == "wordllama"
    assert cell.settings["policy"]["alpha"] == 0.15
    assert cell.settings["policy"]["c"] == 1.4
    assert cell.settings["control"]["decision_points"] == "events"


def test_paper_settings_of_another_backbone_reach_the_cell_and_its_label(tmp_path: Path) -> None:
    """MC-30: alpha, gamma and c by config, and the used values in the record."""
    entry = {"name": "ucb", "alpha": 0.12, "gamma": 0.92, "c": 1.2}

    cell = plan_of(tmp_path, {"axes": {**GRID, "policy": [entry]}}).cells[0]

    assert cell.policy.parameters == {"alpha": 0.12, "gamma": 0.92, "c": 1.2}
    assert cell.policy.label == "ucb alpha=0.12 gamma=0.92 c=1.2"
    assert {key: cell.settings["policy"][key] for key in ("alpha", "gamma", "c")} == cell.policy.parameters


def test_short_form_sets_the_only_required_parameter(tmp_path: Path) -> None:
    short, spelt = "fixed:plan_inject", {"name": "fixed", "action_id": "plan_inject"}

    one = plan_of(tmp_path, {"axes": {**GRID, "policy": [short]}}).cells
    other = plan_of(tmp_path, {"axes": {**GRID, "policy": [spelt]}}).cells

    assert one == other
    assert one[0].policy.label == "fixed:plan_inject"


def test_a_single_value_is_a_list_of_one(tmp_path: Path) -> None:
    assert len(plan_of(tmp_path, {"axes": GRID}, "axes.policy=ucb", "axes.seed=7").cells) == 1


def test_overrides_replace_lists_and_merge_sections(tmp_path: Path) -> None:
    document = {"axes": GRID, "control": {"plan_injection": False}, "policy_server": {"shards": 2}}

    plan = plan_of(
        tmp_path, document, "axes.policy=[uniform]", "control.decision_points=every_step", "axes.seed.1=5", "workers=3"
    )

    assert [(cell.policy.name, cell.seed) for cell in plan.cells] == [("uniform", 0), ("uniform", 5)]
    assert (plan.cells[0].control.plan_injection, plan.cells[0].control.decision_points) == (False, "every_step")
    assert (plan.settings.workers, plan.settings.policy_server.shards) == (3, 2)


def test_include_expands_lists_and_takes_single_axes_from_the_main_grid(tmp_path: Path) -> None:
    include = [{"memory": "empty", "policy": "none", "seed": [0, 1, 2]}, {"policy": "ucb", "seed": 0, "streams": 3}]

    plan = plan_of(tmp_path, {"axes": {**GRID, "policy": ["ucb"]}, "include": include})

    assert [(c.memory.name, c.policy.name, c.seed, c.streams) for c in plan.cells] == [
        ("notes", "ucb", 0, 1),
        ("notes", "ucb", 1, 1),
        ("empty", "none", 0, 1),
        ("empty", "none", 1, 1),
        ("empty", "none", 2, 1),
        ("notes", "ucb", 0, 3),
    ]


def test_includes_alone_are_enough_when_they_name_every_axis(tmp_path: Path) -> None:
    only = {**GRID, "policy": "ucb", "seed": 0}

    assert len(plan_of(tmp_path, {"include": [only]}).cells) == 1


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ({"policy": "ucb"}, ["fixed:noop", "fixed:forget"]),
        ({"policy": "fixed"}, ["ucb", "ucb c=0.3"]),
        ({"policy": "fixed:noop"}, ["fixed:forget", "ucb", "ucb c=0.3"]),
        ({"policy": {"name": "ucb"}}, ["fixed:noop", "fixed:forget", "ucb c=0.3"]),
        ({"policy": ["fixed:noop", {"name": "ucb", "c": 0.3}], "seed": [0, 4]}, ["fixed:forget", "ucb"]),
        ({"policy": "ucb", "seed": 9}, ["fixed:noop", "fixed:forget", "ucb", "ucb c=0.3"]),
    ],
)
def test_exclude_matches_names_loosely_and_settings_exactly(
    tmp_path: Path, exclude: Mapping[str, Any], left: list[str]
) -> None:
    policies = ["fixed:noop", "fixed:forget", "ucb", {"name": "ucb", "c": 0.3}]

    plan = plan_of(tmp_path, {"axes": {**GRID, "policy": policies, "seed": [0]}, "exclude": [exclude]})

    assert [cell.policy.label for cell in plan.cells] == left


def test_exclude_makes_a_grid_over_memories_possible(tmp_path: Path) -> None:
    axes = {**GRID, "memory": ["empty", "notes"], "policy": ["none", "ucb"], "seed": [0]}

    plan = plan_of(tmp_path, {"axes": axes, "exclude": [{"memory": "empty", "policy": "ucb"}]})

    assert [(cell.memory.name, cell.policy.name) for cell in plan.cells] == [
        ("empty", "none"),
        ("notes", "none"),
        ("notes", "ucb"),
    ]


def test_a_policy_entry_overrides_control_and_reward_for_itself_only(tmp_path: Path) -> None:
    bare = {"name": "ucb", "control": {"plan_injection": False}, "reward": {"efficiency_weight": 0.0}}
    document = {"axes": {**GRID, "policy": ["ucb", bare], "seed": [0]}, "control": {"decision_points": "every_step"}}

    full, ablated = plan_of(tmp_path, document).cells

    assert (full.control.plan_injection, full.reward.efficiency_weight) == (True, 0.3)
    assert (ablated.control.plan_injection, ablated.reward.efficiency_weight) == (False, 0.0)
    assert full.control.decision_points == ablated.control.decision_points == "every_step"
    assert ablated.policy.label == "ucb control.plan_injection=false reward.efficiency_weight=0.0"


def test_limit_of_the_command_line_wins_and_is_recorded(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {"axes": GRID, "limit": 8}, limit=3)

    assert {cell.limit for cell in plan.cells} == {3}
    assert plan.cells[0].stream_tasks == (3,)
    assert plan.resolved["limit"] == 3


@pytest.mark.parametrize(("split", "expected"), [("replicate", (10, 10, 10)), ("partition", (4, 3, 3))])
def test_streams_replicate_or_share_the_tasks(tmp_path: Path, split: str, expected: tuple[int, ...]) -> None:
    plan = plan_of(tmp_path, {"axes": GRID, "streams": 3, "split": split})

    assert plan.cells[0].stream_tasks == expected


def test_interpolation_inside_the_file_resolves(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {"axes": GRID, "run": "one", "tracking": {"experiment": "${run}-lab"}})

    assert plan.settings.tracking.experiment == "one-lab"


def test_summary_counts_cells_streams_tasks_and_decisions(tmp_path: Path) -> None:
    include = [{"memory": "empty", "policy": "none", "seed": 0, "streams": 2}]

    summary = plan_summary(plan_of(tmp_path, {"axes": GRID, "include": include}))

    assert (len(summary.cells), summary.streams, summary.tasks) == (5, 6, 60)
    assert [cell.decisions for cell in summary.cells] == [28, 28, 28, 28, 0]
    assert len(summary.assumptions) == 2
    assert summary.decisions == 112


def test_summary_of_one_decision_a_task(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {"axes": {**GRID, "seed": [0]}, "control": {"decision_points": "start"}})

    summary = plan_summary(plan)

    assert summary.decisions == summary.tasks
    assert summary.assumptions == ("decision_points start: one decision a task",)


@pytest.mark.parametrize(("split", "decisions"), [("replicate", 600), ("partition", 300)])
def test_summary_of_every_step_counts_full_length(tmp_path: Path, split: str, decisions: int) -> None:
    document = {"axes": GRID, "control": {"decision_points": "every_step"}, "streams": 2, "split": split}

    assert plan_summary(plan_of(tmp_path, document)).cells[0].decisions == decisions


def test_a_memory_entry_carries_what_it_holds_at_the_start(tmp_path: Path) -> None:
    document = {"axes": {**GRID, "memory": ["notes", {"name": "notes", "preload": {"per_type": 3}}], "seed": [0]}}

    bare, filled = plan_of(tmp_path, {**document, "exclude": [{"policy": "fixed"}]}).cells

    assert bare.preload is None
    assert filled.preload is not None
    assert (filled.preload.source, filled.preload.per_type) == ("reference_plans", 3)
    assert filled.memory.label == "notes preload.per_type=3"
    assert bare.cell_id != filled.cell_id
    assert filled.settings["memory"]["preload"] == {"source": "reference_plans", "per_type": 3, "frozen": False}


def test_an_empty_preload_is_one_with_the_defaults(tmp_path: Path) -> None:
    document = {"axes": {**GRID, "memory": [{"name": "notes", "preload": {}}]}}

    assert plan_of(tmp_path, document).cells[0].preload == PreloadSettings()


def test_shared_tables_their_bound_and_their_start_reach_the_cells(tmp_path: Path) -> None:
    start = {"policy": {"run": "runs/before", "cap": None}, "memory": {"run": "runs/before", "frozen": True}}
    extra = {"policy": "ucb", "seed": [2, 3], "table_scope": "both", "max_open_episodes": 1, "start_from": start}

    *_, one, other = plan_of(tmp_path, {"axes": GRID, "include": [extra]}).cells

    assert (one.table_scope, one.max_open_episodes) == (other.table_scope, other.max_open_episodes) == ("both", 1)
    assert one.start_from == StartFrom(
        policy=TableStart(run="runs/before", cap=None), memory=MemoryStart(run="runs/before", frozen=True)
    )


def test_the_plan_file_keeps_what_a_cell_starts_from(tmp_path: Path) -> None:
    start = {"policy": {"run": "runs/before", "frozen": True}}
    memory = [{"name": "notes", "preload": {"source": "attempts"}}]
    axes = {**GRID, "policy": ["ucb"], "memory": memory}
    plan = plan_of(tmp_path, {"axes": axes, "start_from": start, "max_open_episodes": 2, "root": str(tmp_path)})

    write_plan(plan.run_dir, plan, wall_time_s=0.0)

    assert read_plan(plan.run_dir).cells == plan.cells
