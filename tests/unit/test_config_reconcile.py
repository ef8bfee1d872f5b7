"""Continuing a run: more cells are added, changed ones are refused with the difference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from memcon.errors import ConfigError
from memcon_platform.config import RunPlan, load, reconcile
from support.config_plugins import GRID, toy_plugins


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with toy_plugins():
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "trial.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create({"axes": GRID})), encoding="utf-8")
    return path


def refusal(existing: RunPlan, new: RunPlan) -> str:
    with pytest.raises(ConfigError) as caught:
        reconcile(existing, new)
    message = str(caught.value)
    assert message.startswith("run 'trial' exists with other settings: ")
    assert "run=NAME" in message
    assert "\n" not in message
    return message


def test_the_same_config_continues_as_it_is(path: Path) -> None:
    assert reconcile(load(path), load(path)) == load(path)


def test_more_cells_are_added_behind_those_that_keep_their_places(path: Path) -> None:
    existing, new = load(path), load(path, ["axes.policy=[none,ucb,'fixed:retrieve_shallow']"])

    merged = reconcile(existing, new)

    assert merged.cells[:4] == existing.cells
    assert [(cell.policy.name, cell.seed, cell.place) for cell in merged.cells[4:]] == [("none", 0, 4), ("none", 1, 5)]


@pytest.mark.parametrize(
    "override", ["workers=9", "streams_per_worker=1", "task_restarts=0", "server_wait_s=1", "tracking.enabled=false"]
)
def test_how_a_run_is_carried_out_may_change(path: Path, override: str) -> None:
    merged = reconcile(load(path), load(path, [override]))

    assert merged.cells == load(path).cells
    assert merged.settings == load(path, [override]).settings


@pytest.mark.parametrize(
    ("override", "told"),
    [
        (
            "limit=4",
            "4 cells such as 'toy / runner / parrot / notes / fixed:retrieve_shallow / seed 0': limit null ->",
        ),
        ("control.plan_injection=false", "control.plan_injection true -> false"),
        ("reward.efficiency_weight=0.1", "reward.efficiency_weight 0.3 -> 0.1"),
        ("axes.framework=[{name: runner, history_window: all}]", 'framework.history_window 7 -> "all"'),
        ("axes.policy=['fixed:retrieve_deep',ucb]", 'policy.action_id "retrieve_shallow" -> "retrieve_deep"'),
        ("streams=2", "streams 1 -> 2"),
        ("embedder=hashing", 'embedder.name "wordllama" -> "hashing"'),
        ("axes.seed=[0]", "seed 1': not in the config any more"),
        ("policy_server.shards=2", "policy_server.shards 1 -> 2"),
    ],
)
def test_changed_cells_are_refused_with_the_difference(path: Path, override: str, told: str) -> None:
    assert told in refusal(load(path), load(path, [override]))


def test_many_differences_are_counted(path: Path) -> None:
    policies = [{"name": "ucb", "c": round(0.1 * i, 1)} for i in range(1, 6)]
    changed = [{"name": "ucb", "c": round(0.1 * i + 0.05, 2)} for i in range(1, 6)]
    axes = {**GRID, "seed": [0]}
    plans = []
    for entries in (policies, changed):
        path.write_text(OmegaConf.to_yaml(OmegaConf.create({"axes": {**axes, "policy": entries}})), encoding="utf-8")
        plans.append(load(path))

    assert "more differences" in refusal(plans[0], plans[1])


def test_an_option_that_came_with_a_later_version_orphans_no_cell(path: Path) -> None:
    existing = load(path)

    with toy_plugins(runner="LATER_RUNNER"):
        merged = reconcile(existing, load(path))

    assert merged.cells == existing.cells


def test_a_default_that_moved_under_a_cell_is_refused(path: Path) -> None:
    existing = load(path)

    with toy_plugins(runner="MOVED_RUNNER"):
        assert "framework.few_shot 1 -> 2" in refusal(existing, load(path))


def test_a_benchmark_that_has_other_tasks_now_is_refused(path: Path) -> None:
    existing = load(path)

    with toy_plugins(toy="GROWN_TOY"):
        assert "tasks of each stream [10] -> [11]" in refusal(existing, load(path))
