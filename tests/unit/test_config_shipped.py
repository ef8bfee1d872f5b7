"""The configs that ship: each loads with the real plug-ins, and the demo is what the README promises."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from memcon.errors import ConfigError
from memcon_platform.config import RunPlan, load, plan_summary

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def demo() -> RunPlan:
    return load(CONFIGS / "demo.yaml")


@pytest.mark.parametrize(
    "path", sorted(set(CONFIGS.glob("*.yaml")) - {CONFIGS / "serve.yaml"}), ids=lambda path: path.stem
)
def test_every_shipped_config_loads_under_its_own_name(path: Path) -> None:
    plan = load(path)

    assert plan.run == path.stem
    assert plan_summary(plan).tasks > 0


def test_demo_has_the_cells_of_the_readme(demo: RunPlan) -> None:
    single = Counter(
        (cell.benchmark.name, cell.memory.name, cell.policy.label) for cell in demo.cells if cell.streams == 1
    )

    static = ("fixed:retrieve_shallow", "fixed:retrieve_deep", "fixed:plan_inject")
    assert single == {
        **{("household", "metagpt", label): 5 for label in (*static, "uniform", "ucb")},
        ("household", "empty", "none"): 5,
        **{("pddl", "metagpt", label): 2 for label in ("fixed:retrieve_shallow", "ucb")},
        ("pddl", "empty", "none"): 2,
    }


def test_demo_has_one_cell_of_eight_streams_with_one_table(demo: RunPlan) -> None:
    (shared,) = (cell for cell in demo.cells if cell.streams > 1)

    assert (shared.streams, shared.split, shared.table_scope) == (8, "replicate", "cell")
    assert shared.stream_tasks == (134,) * 8


def test_demo_task_counts_match_the_benchmarks(demo: RunPlan) -> None:
    assert {(cell.benchmark.name, cell.stream_tasks[0]) for cell in demo.cells} == {("household", 134), ("pddl", 40)}
    assert plan_summary(demo).tasks == 30 * 134 + 6 * 40 + 8 * 134


def test_demo_gives_the_imitator_the_settings_that_its_rules_need(demo: RunPlan) -> None:
    needed = {"history_window": "all", "few_shot": 0, "list_actions": True, "loop_stop": False}

    for cell in demo.cells:
        assert {key: cell.settings["framework"][key] for key in needed} == needed


@pytest.mark.parametrize("key", ["forget_every", "consolidate_every"])
def test_a_schedule_that_the_memory_cannot_keep_is_refused_before_it_runs(key: str) -> None:
    smoke = CONFIGS / "smoke.yaml"
    with pytest.raises(ConfigError, match=rf"control\.{key} with memory 'metagpt', which has no .* hook here"):
        load(smoke, [f"control.{key}=3"])

    # The row without memory has nothing to prune, and so no quarrel with it.
    plan = load(smoke, [f"control.{key}=3", "axes.memory=[{name: metagpt, maintenance: true}]"])

    assert {cell.memory.name for cell in plan.cells} == {"empty", "metagpt"}
