"""Every benchmark and its environment pass the contract bodies, the scripted fake included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from memcon import registry
from memcon.protocols import Benchmark, Environment
from memcon.testing import BenchmarkContract, EnvironmentContract
from memcon.testing.environment import ScriptedBenchmark
from memcon.types import Task


def registered(name: str, parameters: Mapping[str, Any]) -> Benchmark:
    built: Benchmark = registry.plugin("benchmark", name).build(registry.configure("benchmark", name, parameters))
    return built


SOURCES: dict[str, Benchmark] = {
    "household": registered("household", {}),
    "household, large rooms": registered("household", {"max_receptacles": 24, "num_tasks": 12}),
    "pddl": registered("pddl", {}),
    "pddl, full goals": registered("pddl", {"goals": "full"}),
    "pddl, one domain": registered("pddl", {"domains": ["gripper"], "num_tasks": 5}),
    "habit": registered("habit", {}),
    "audit": registered("audit", {"num_tasks": 9}),
    "trivia": registered("trivia", {"num_tasks": 5}),
    "recur": registered("recur", {}),
    "mix": registered("mix", {}),
    "mix of two households": registered(
        "mix",
        {
            "num_tasks": 20,
            "parts": [
                {"name": "household", "weight": 0.5, "max_receptacles": 12},
                {"name": "household", "weight": 0.25, "task_seed": 5},
                {"name": "habit", "weight": 0.25},
            ],
        },
    ),
    "scripted": ScriptedBenchmark(["go to shelf 1", "take mug 1"], ["look"]),
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Benchmark:
    return SOURCES[request.param]


class TestBenchmarks(BenchmarkContract):
    @pytest.fixture
    def source(self, source: Benchmark) -> Benchmark:
        return source


# The first task of each goal type.
CASES = [
    (name, place)
    for name, benchmark in SOURCES.items()
    for place in sorted(
        {
            [task.goal_type for task in benchmark.tasks()].index(kind)
            for kind in {t.goal_type for t in benchmark.tasks()}
        }
    )
]


class TestEnvironments(EnvironmentContract):
    @pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
    def case(self, request: pytest.FixtureRequest) -> tuple[Benchmark, Task]:
        name, place = request.param
        return SOURCES[name], SOURCES[name].tasks()[place]

    @pytest.fixture
    def environment(self, case: tuple[Benchmark, Task]) -> Environment:
        return case[0].environment()

    @pytest.fixture
    def task(self, case: tuple[Benchmark, Task]) -> Task:
        return case[1]

    @pytest.fixture
    def solution(self, case: tuple[Benchmark, Task]) -> Sequence[str] | None:
        return case[0].reference_plan(case[1])
