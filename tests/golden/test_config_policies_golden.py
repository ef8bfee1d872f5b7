"""Cells of policies over a backbone without a profile keep their ids, labels and settings, however they were written.

The values were written by memcon at commit 5daf70f, where `profile` had the default `gpt-4.1-mini`. If one of these
fails, every run of that policy is orphaned, or refused as changed when it is continued.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from memcon import ids
from memcon_platform.config import load

AXES = {
    "benchmark": ["household"],
    "framework": ["lobster"],
    "backbone": ["imitator"],
    "memory": ["metagpt"],
    "seed": [0],
}


@pytest.mark.parametrize(
    ("policy", "cell_id", "label", "settings"),
    [
        ("ucb", "d9ce0e827a6fec07", "ucb", "1a130bf373b62400"),
        ("greedy", "9d9859299da895f0", "greedy", "644a8a859b14aa26"),
        ("epsilon_greedy", "80e4ecd3b6f9b85c", "epsilon_greedy", "21ed3f5f1f795b1b"),
        ("bayes_ucb", "db72887f7e1db488", "bayes_ucb", "d492f702b263b152"),
        ("thompson", "268d1a36cf6f1864", "thompson", "15ff62338ce52221"),
        ("pooled", "e5859ed6c3dbe61f", "pooled", "68b63286c446b08d"),
        ("uniform", "243240ed381ce0a5", "uniform", "919d529d5c7b8737"),
        ("none", "cb213381864b5fb0", "none", "e646435ed71e37cf"),
        ("every_arm", "2eebf83122e83421", "every_arm", "770ec4fa921fb32d"),
        ("fixed:retrieve_deep", "7cc96a9456abaa6c", "fixed:retrieve_deep", "c7fdcfca3847a4a5"),
        # The default spelled out is the default.
        ({"name": "ucb", "profile": "gpt-4.1-mini"}, "d9ce0e827a6fec07", "ucb", "1a130bf373b62400"),
        ({"name": "ucb", "alpha": 0.15, "gamma": 0.9, "c": 1.4}, "d9ce0e827a6fec07", "ucb", "1a130bf373b62400"),
        ({"name": "ucb", "alpha": 0.12}, "600357825cd84e7c", "ucb alpha=0.12", "c6031a33edeb0037"),
        (
            {"name": "ucb", "profile": "claude-sonnet-4"},
            "c4e095ea00f580ab",
            "ucb profile=claude-sonnet-4",
            "136f2a0548a98556",
        ),
        (
            {"name": "bayes_ucb", "profile": "deepseek-v3.2"},
            "dcc884244ef31794",
            "bayes_ucb profile=deepseek-v3.2",
            "f2d722f96c82649d",
        ),
        (
            {"name": "ucb", "profile": "claude-sonnet-4", "alpha": 0.15, "c": 1.2},
            "9518b224a0e86f8a",
            "ucb alpha=0.15 profile=claude-sonnet-4",
            "f05c71b1f551a126",
        ),
        (
            {"name": "fixed", "action_id": "noop", "profile": "claude-sonnet-4"},
            "99929b70b020d497",
            "fixed:noop profile=claude-sonnet-4",
            "1fac2183d33e058e",
        ),
    ],
)
def test_a_cell_of_the_policy(tmp_path: Path, policy: Any, cell_id: str, label: str, settings: str) -> None:
    path = tmp_path / "golden.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create({"axes": {**AXES, "policy": [policy]}})), encoding="utf-8")

    (cell,) = load(path).cells

    assert (cell.cell_id, cell.policy.label) == (cell_id, label)
    assert ids.stable_hash(cell.settings["policy"]) == settings
