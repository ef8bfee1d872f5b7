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
        ({"streams": 8}, ""),
        ({"limit": 3}, ""),
        ({"control": {"plan_injection": False}}, ""),
        ({"reward": {"failure_penalty": 0.25}}, ""),
        ({"embedder": "hashing"}, ""),
        ({"axes": {"policy": [{"name": "ucb", "c": 0.3}]}}, ""),
        ({"axes": {"framework": [{"name": "runner", "history_window": "all", "limits": {"thoughts": 5}}]}}, ""),
    ],
)
def test_cell_id(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    axes = {**GRID, "policy": ["ucb"], "seed": [0], **change.get("axes", {})}
    path = tmp_path / "golden.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create({**change, "axes": axes})), encoding="utf-8")

    assert load(path).cells[0].cell_id == expected
