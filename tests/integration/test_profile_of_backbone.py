"""A sweep whose policy follows its backbone's profile (MC-30): in the record, in the served table, and in a resume."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memcon.registry import Plugin
from memcon_platform.assembly import learning_settings, table_name
from memcon_platform.config import RunPlan, load
from memcon_platform.replay import verify
from memcon_platform.sweep.launch import Launch, launch, open_local
from memcon_workers.backbones.imitator import Imitator, ImitatorConfig
from support.plugged import plugged
from support.shell import SMALL, SMOKE


@dataclass(slots=True, kw_only=True)
class TunedConfig(ImitatorConfig):
    """The imitator, for which the paper may have tuned its policy."""

    profile: str | None = None


class Nobody:
    """An observer that does not look."""

    def task_ended(self, task: object) -> None:
        return

    def cell_ended(self, cell: str) -> None:
        return


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with plugged({("backbone", "tuned"): Plugin(config=TunedConfig, build=Imitator)}):
        yield


def launched(plan: RunPlan) -> None:
    how = Launch(open_pool=open_local, observe=lambda *_: Nobody(), console=Console(quiet=True))
    _, end = asyncio.run(launch(plan, how))
    assert not end.failures


def test_a_sweep_learns_with_the_numbers_of_its_backbone(tmp_path: Path) -> None:
    backbones = "axes.backbone=[imitator,{name: tuned, profile: claude-sonnet-4}]"
    policies = "axes.policy=[ucb,{name: ucb, profile: gpt-4.1-mini, c: 0.3}]"
    plan = load(SMOKE, [*SMALL, f"root={tmp_path}", "limit=2", "include=[]", backbones, policies])

    launched(plan)

    record = json.loads((plan.run_dir / "plan.json").read_text())
    tables = json.loads((plan.run_dir / "policy" / "served" / "shard-0.json").read_text())["tables"]
    found = {}
    for cell, written in zip(plan.cells, record["cells"], strict=True):
        told = written["settings"]["policy"]
        numbers = (told["alpha"], told["gamma"], told["c"])
        table = tables[table_name(cell, 0)]["settings"]
        # What the table was created with is what the record says.
        assert (table["alpha"], table["gamma"], table["rule_parameters"]["c"]) == numbers
        found[cell.backbone.name, cell.policy.label] = (told["profile"], *numbers)
    assert found == {
        ("imitator", "ucb"): ("gpt-4.1-mini", 0.15, 0.9, 1.4),
        ("imitator", "ucb c=0.3"): ("gpt-4.1-mini", 0.15, 0.9, 0.3),
        ("tuned", "ucb"): ("claude-sonnet-4", 0.12, 0.92, 1.2),
        ("tuned", "ucb c=0.3 profile=gpt-4.1-mini"): ("gpt-4.1-mini", 0.15, 0.9, 0.3),
    }
    assert verify(plan.run_dir).ok
    launched(plan)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("ucb", ("claude-sonnet-4", 0.12, 0.92, 1.2)),
        ("{name: ucb, profile: gpt-4.1-mini}", ("gpt-4.1-mini", 0.15, 0.9, 1.4)),
        ("{name: ucb, gamma: 0.5}", ("claude-sonnet-4", 0.12, 0.5, 1.2)),
    ],
)
def test_the_backbone_openai_brings_its_profile_along(policy: str, expected: Any) -> None:
    backbone = "axes.backbone=[{name: openai, profile: claude-sonnet-4}]"

    (cell,) = load(SMOKE, [*SMALL, "include=[]", backbone, f"axes.policy=[{policy}]"]).cells

    told = cell.settings["policy"]
    assert (told["profile"], told["alpha"], told["gamma"], told["c"]) == expected
    learning = learning_settings(cell)
    assert learning is not None
    assert (learning.alpha, learning.gamma, learning.rule_parameters["c"]) == expected[1:]
