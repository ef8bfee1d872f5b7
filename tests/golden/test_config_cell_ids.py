"""Cell ids are names of files and MLflow tags: a changed id orphans every run that exists.

If one of these fails, an id rule has changed: raise `identity.CELL_SCHEMA` on purpose, or undo the change.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from memcon_platform.config import load
from support.config_plugins import GRID, toy_plugins


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with toy_plugins():
        yield


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "79140110ad8d6087"),
        ({"streams": 8}, "b660e3ba7e619a22"),
        ({"limit": 3}, "3f225d4b7144c6ba"),
        ({"control": {"plan_injection": False}}, "459ae58964416ff8"),
        ({"reward": {"failure_penalty": 0.25}}, "eae101362de2f09d"),
        ({"embedder": "hashing"}, "0f0a4e792962ace5"),
        ({"axes": {"policy": [{"name": "ucb", "c": 0.3}]}}, "2a056788c8a932df"),
        (
            {"axes": {"framework": [{"name": "runner", "history_window": "all", "limits": {"thoughts": 5}}]}},
            "6ac608b1a5da4887",
        ),
    ],
)
def test_cell_id(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    axes = {**GRID, "policy": ["ucb"], "seed": [0], **change.get("axes", {})}
    path = tmp_path / "golden.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create({**change, "axes": axes})), encoding="utf-8")

    assert load(path).cells[0].cell_id == expected
