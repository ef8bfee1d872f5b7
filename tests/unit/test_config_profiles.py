"""Step size, discount and exploration follow the cell's backbone (MC-30, Table 6), unless the policy says otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from memcon.errors import ConfigError
from memcon_platform.assembly import learning_settings
from memcon_platform.config import Cell, load, read_plan, reconcile, write_plan
from support.config_plugins import GRID, toy_plugins

CLAUDE = {"name": "tuned", "profile": "claude-sonnet-4"}
DEEPSEEK = {"name": "tuned", "profile": "deepseek-v3.2"}
FIRST = {"name": "tuned", "profile": "gpt-4.1-mini"}


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with toy_plugins():
        yield


def config(folder: Path, backbones: Sequence[Any], policies: Sequence[Any], **document: Any) -> Path:
    axes = {**GRID, "backbone": list(backbones), "policy": list(policies), "seed": [0]}
    path = folder / "profiles.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create({"axes": axes, **document})), encoding="utf-8")
    return path


def cells_of(folder: Path, backbones: Sequence[Any], policies: Sequence[Any], **document: Any) -> tuple[Cell, ...]:
    return load(config(folder, backbones, policies, **document)).cells


def numbers(cell: Cell) -> tuple[float, float, Any]:
    """What the cell's table is created with: step size, discount, exploration."""
    learning = learning_settings(cell)
    assert learning is not None
    return learning.alpha, learning.gamma, learning.rule_parameters.get("c")


@pytest.mark.parametrize(
    ("backbone", "profile", "expected"),
    [
        ("parrot", "gpt-4.1-mini", (0.15, 0.9, 1.4)),
        ("tuned", "gpt-4.1-mini", (0.15, 0.9, 1.4)),
        (FIRST, "gpt-4.1-mini", (0.15, 0.9, 1.4)),
        (CLAUDE, "claude-sonnet-4", (0.12, 0.92, 1.2)),
        (DEEPSEEK, "deepseek-v3.2", (0.18, 0.88, 1.6)),
        # One that the paper does not know.
        ({"name": "tuned", "profile": "qwen3-8b"}, "gpt-4.1-mini", (0.15, 0.9, 1.4)),
    ],
)
def test_a_policy_that_names_no_profile_takes_that_of_its_backbone(
    tmp_path: Path, backbone: Any, profile: str, expected: tuple[float, float, float]
) -> None:
    (cell,) = cells_of(tmp_path, [backbone], ["ucb"])

    assert numbers(cell) == expected
    told = cell.settings["policy"]
    assert (told["profile"], (told["alpha"], told["gamma"], told["c"])) == (profile, expected)
    assert cell.policy.label == "ucb"


def test_each_cell_of_a_grid_takes_that_of_its_own_backbone(tmp_path: Path) -> None:
    cells = cells_of(tmp_path, ["parrot", CLAUDE, DEEPSEEK], ["ucb", "fixed:retrieve_deep", "none"])

    found = {(cell.backbone.label, cell.policy.label): learning_settings(cell) for cell in cells}
    assert {key: settings.alpha for key, settings in found.items() if settings} == {
        (backbone, policy): alpha
        for backbone, alpha in (
            ("parrot", 0.15), ("tuned profile=claude-sonnet-4", 0.12), ("tuned profile=deepseek-v3.2", 0.18)
        )
        for policy in ("ucb", "fixed:retrieve_deep")
    }  # fmt: skip
    assert len({cell.cell_id for cell in cells}) == 9


def test_what_a_policy_gives_wins(tmp_path: Path) -> None:
    policies = [
        {"name": "ucb", "profile": "gpt-4.1-mini"},
        {"name": "ucb", "profile": "deepseek-v3.2"},
        # The first profile's own value, which is another one than the backbone's.
        {"name": "ucb", "alpha": 0.15},
        {"name": "ucb", "c": 0.0},
    ]

    cells = cells_of(tmp_path, [CLAUDE], policies)

    assert [numbers(cell) for cell in cells] == [
        (0.15, 0.9, 1.4), (0.18, 0.88, 1.6), (0.15, 0.92, 1.2), (0.12, 0.92, 0.0)
    ]  # fmt: skip
    # A label says in what a cell is not what its backbone brings along.
    assert [cell.policy.label for cell in cells] == [
        "ucb profile=gpt-4.1-mini", "ucb profile=deepseek-v3.2", "ucb alpha=0.15", "ucb c=0.0"
    ]  # fmt: skip


def test_both_ways_to_write_it_are_one_cell(tmp_path: Path) -> None:
    (left_open,) = cells_of(tmp_path, [CLAUDE], ["ucb"])
    (null,) = cells_of(tmp_path, [CLAUDE], [{"name": "ucb", "profile": None}])
    (spelled_out,) = cells_of(tmp_path, [CLAUDE], [{"name": "ucb", "profile": "claude-sonnet-4", "alpha": 0.12}])

    assert left_open == null == spelled_out
    with pytest.raises(ConfigError, match=r"gives the cell .* twice"):
        cells_of(tmp_path, [CLAUDE], ["ucb", {"name": "ucb", "profile": "claude-sonnet-4"}])


def test_an_include_settles_its_own(tmp_path: Path) -> None:
    include = [{"backbone": DEEPSEEK}, {"backbone": CLAUDE, "policy": {"name": "ucb", "profile": "deepseek-v3.2"}}]

    cells = cells_of(tmp_path, ["parrot"], ["ucb"], include=include)

    assert [numbers(cell)[0] for cell in cells] == [0.15, 0.18, 0.18]


@pytest.mark.parametrize(
    ("excluded", "left"),
    [
        # What the policy is beside each backbone, however it was written.
        ({"policy": {"name": "ucb", "profile": "claude-sonnet-4"}}, ["parrot", "tuned profile=deepseek-v3.2"]),
        ({"policy": {"name": "ucb", "profile": "gpt-4.1-mini"}}, [CLAUDE, DEEPSEEK]),
        ({"policy": {"name": "ucb", "alpha": 0.12}}, ["parrot", DEEPSEEK]),
        ({"policy": [{"name": "ucb", "c": 1.4}, {"name": "ucb", "c": 1.6}]}, [CLAUDE]),
    ],
)
def test_an_exclude_means_the_same_as_an_entry(tmp_path: Path, excluded: Any, left: list[Any]) -> None:
    cells = cells_of(tmp_path, ["parrot", CLAUDE, DEEPSEEK], ["ucb"], exclude=[excluded])

    told = [one if isinstance(one, str) else f"tuned profile={one['profile']}" for one in left]
    assert [cell.backbone.label for cell in cells] == told


def test_cells_of_one_table_may_not_differ_in_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"share the table 'ours' and differ in .*alpha"):
        cells_of(tmp_path, ["parrot", CLAUDE], ["ucb"], table_scope="ours")

    # One label, since it has no parameters of a backbone: told apart all the same.
    with pytest.raises(ConfigError, match=r"backbone 'tuned profile=claude.* and .*backbone 'tuned profile=deepseek"):
        cells_of(tmp_path, [CLAUDE, DEEPSEEK], ["ucb"], table_scope="ours")

    shared = cells_of(tmp_path, ["parrot", CLAUDE], [{"name": "ucb", "profile": "gpt-4.1-mini"}], table_scope="ours")
    assert {numbers(cell) for cell in shared} == {(0.15, 0.9, 1.4)}


def test_a_wrong_profile_is_named_as_ever(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"axes.policy\[0\]: .*'sonnet'; allowed: claude-sonnet-4, deepseek-v3.2"):
        cells_of(tmp_path, [CLAUDE], [{"name": "ucb", "profile": "sonnet"}])


def test_a_run_goes_on_under_the_plan_that_was_written(tmp_path: Path) -> None:
    plan = load(config(tmp_path, ["parrot", CLAUDE], ["ucb"]), [f"root={tmp_path / 'runs'}"])
    write_plan(plan.run_dir, plan, wall_time_s=0.0)

    read = read_plan(plan.run_dir)

    assert [numbers(cell) for cell in read.cells] == [(0.15, 0.9, 1.4), (0.12, 0.92, 1.2)]
    assert reconcile(read, plan).cells == plan.cells
    other = load(config(tmp_path, ["parrot", DEEPSEEK], ["ucb"]), [f"root={tmp_path / 'runs'}"])
    with pytest.raises(ConfigError, match=r"claude-sonnet-4.* -> .*deepseek-v3\.2"):
        reconcile(read, other)
