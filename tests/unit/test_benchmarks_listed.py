"""`memcon benchmarks list`: every benchmark with what it is built to show, and what its tasks are."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from memcon import registry
from memcon.errors import MissingExtraError
from memcon_platform.cli.benchmarks import command


def listed(*arguments: str) -> str:
    done = CliRunner().invoke(command, ["list", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_mix_is_listed_by_benchmark_and_the_others_by_goal_type() -> None:
    shown = listed()
    assert "mix (self-made): 134 tasks (audit 24, habit 24, household 36, pddl 24, recur 18, trivia 8)\n" in shown
    assert "pddl (self-made): 40 tasks (barman 10, blocksworld 10, gripper 10, tyreworld 10)\n" in shown
    assert "recur (self-made): 18 tasks (job_blocks 6, job_examine 6, job_gripper 6)\n" in shown


def test_what_we_constructed_says_so() -> None:
    rows = {row["name"]: row for row in json.loads(listed("--json"))}
    assert list(rows) == registry.names("benchmark")
    for name in ("habit", "audit", "trivia", "recur"):
        assert rows[name]["provenance"] == "self-made"
        assert "constructed by us to show" in rows[name]["summary"]
    assert sum(rows["mix"]["benchmarks"].values()) == sum(rows["mix"]["goal_types"].values()) == rows["mix"]["tasks"]
    assert rows["household"]["benchmarks"] == {"household": 134}


def test_a_benchmark_that_cannot_be_loaded_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = registry.plugin

    def without_pddl(kind: str, name: str) -> registry.Plugin:
        if name == "pddl":
            raise MissingExtraError("pddl", "platform")
        return plugin(kind, name)

    monkeypatch.setattr(registry, "plugin", without_pddl)
    shown = listed()
    assert "pddl: not available: pddl is not installed" in shown
    # What is made of it cannot be made either.
    assert "mix: not available: benchmark 'mix': pddl is not installed" in shown
    assert "recur: not available: pddl is not installed" in shown
    assert "habit (self-made): 24 tasks" in shown
