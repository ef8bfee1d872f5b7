"""The first tasks of the default lists, byte for byte: a change here renumbers every stored task."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memcon.ids import stable_hash
from memcon.protocols import Benchmark
from memcon_workers.benchmarks.audit import AuditBenchmark, AuditConfig
from memcon_workers.benchmarks.habit import HabitBenchmark, HabitConfig
from memcon_workers.benchmarks.household import HouseholdBenchmark, HouseholdConfig
from memcon_workers.benchmarks.mix import MixBenchmark, MixConfig
from memcon_workers.benchmarks.pddl import PddlBenchmark, PddlConfig
from memcon_workers.benchmarks.recur import RecurBenchmark, RecurConfig
from memcon_workers.benchmarks.trivia import TriviaBenchmark, TriviaConfig

GOLDEN = Path(__file__).with_name("benchmark_tasks.json")
LISTS: dict[str, Benchmark] = {
    "household": HouseholdBenchmark(HouseholdConfig()),
    "pddl": PddlBenchmark(PddlConfig()),
    "pddl full": PddlBenchmark(PddlConfig(goals="full")),
    "habit": HabitBenchmark(HabitConfig()),
    "audit": AuditBenchmark(AuditConfig()),
    "trivia": TriviaBenchmark(TriviaConfig()),
    "recur": RecurBenchmark(RecurConfig()),
    "mix": MixBenchmark(MixConfig()),
}
# Practice tasks of each goal type.
PER_TYPE = 25
SCRIPT = """
from memcon import codec, registry
for name in ("household", "pddl", "habit", "audit", "trivia", "recur", "mix"):
    source = registry.plugin("benchmark", name).build(registry.configure("benchmark", name, {"num_tasks": 16}))
    environment = source.environment()
    for task in [*source.tasks(), *source.practice_tasks(2)]:
        print(codec.encode_json(task))
        print(environment.reset(task, 0).text, environment.valid_actions())
        for action in source.reference_plan(task):
            print(environment.step(action), environment.valid_actions())
"""


def described(name: str) -> dict[str, object]:
    source = LISTS[name]
    environment = source.environment()
    first = [
        {
            "task_id": task.task_id,
            "goal": task.goal,
            "opening": environment.reset(task, 0).text,
            "plan": list(source.reference_plan(task) or ()),
        }
        for task in source.tasks()[:6]
    ]
    return {"first": first, "all": stable_hash([task.task_id for task in source.tasks()])}


@pytest.mark.parametrize("name", LISTS)
def test_the_default_lists_stay_as_they_are(name: str) -> None:
    assert described(name) == json.loads(GOLDEN.read_text())[name]


@pytest.mark.parametrize("name", LISTS)
def test_the_practice_tasks_stay_as_they_are(name: str) -> None:
    practice = LISTS[name].practice_tasks(PER_TYPE)
    stored = json.loads(GOLDEN.read_text())["practice"][name]
    assert {"number": len(practice), "all": stable_hash([task.task_id for task in practice])} == stored


def test_tasks_and_texts_do_not_hang_on_the_hash_seed() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 10_000
