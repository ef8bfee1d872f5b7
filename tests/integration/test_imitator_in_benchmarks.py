"""What memory does to the imitator in the real worlds: the effect that the demo measures, on a small sample.

The bounds are wide: they hold the shape (no memory << like experience << the very plan), not a figure.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from memcon.protocols import Benchmark
from memcon.types import Insight, MemoryContext, Task, Trajectory
from support.imitator_play import (
    a_benchmark,
    as_context,
    attempt,
    of_other_types,
    own_successes,
    reference_trajectory,
    success_rate,
)

TESTS = Path(__file__).parents[1]
NAMES = ["household", "pddl"]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def benchmark_(name: str) -> Benchmark:
    return a_benchmark(name)


@pytest.fixture
def tasks(benchmark_: Benchmark) -> Sequence[Task]:
    """60 tasks at most, spread over the list."""
    every = benchmark_.tasks()
    return every[:: max(1, len(every) // 60)]


@pytest.fixture
def demonstrations(name: str) -> Sequence[Trajectory]:
    """Reference plans of other tasks of the same benchmark."""
    other = a_benchmark(name, task_seed=99)
    return [reference_trajectory(other, task) for task in other.tasks()[::2]]


async def test_the_very_plan_in_memory_solves_the_task(benchmark_: Benchmark, tasks: Sequence[Task]) -> None:
    def own_plan(task: Task) -> MemoryContext:
        return as_context([reference_trajectory(benchmark_, task)])

    assert await success_rate(benchmark_, tasks, own_plan, seeds=[1]) >= 0.95


async def test_experience_with_like_tasks_helps(
    benchmark_: Benchmark, tasks: Sequence[Task], demonstrations: Sequence[Trajectory]
) -> None:
    def same_type(task: Task) -> MemoryContext:
        return as_context([one for one in demonstrations if one.task.goal_type == task.goal_type][:1])

    without = await success_rate(benchmark_, tasks, lambda _: MemoryContext(), seeds=[1, 2])
    assert await success_rate(benchmark_, tasks, same_type, seeds=[1, 2]) >= without + 0.1
    assert without < 0.6


async def test_own_experience_with_other_goal_types_neither_helps_nor_harms_much(
    name: str, benchmark_: Benchmark, tasks: Sequence[Task]
) -> None:
    # Own attempts, not reference plans: a reference plan of any type also teaches not to waste steps in a search.
    other = a_benchmark(name, task_seed=99)
    store = await own_successes(other, other.tasks()[::2], seed=9)

    def irrelevant(task: Task) -> MemoryContext:
        return as_context(of_other_types(store, task, 1))

    seeds = [1, 2, 3, 4]
    without = await success_rate(benchmark_, tasks, lambda _: MemoryContext(), seeds=seeds)
    assert await success_rate(benchmark_, tasks, irrelevant, seeds=seeds) == pytest.approx(without, abs=0.05)


async def test_a_memory_without_steps_is_as_no_memory(benchmark_: Benchmark, tasks: Sequence[Task]) -> None:
    words = MemoryContext(
        insights=(Insight(insight_id="1", score=1.0, text="look around before you act"),),
        hint="do every step for the first object, then for the second",
    )
    for task in tasks[:6]:
        runs = [await attempt(benchmark_, task, context, seed=1) for context in (MemoryContext(), words)]
        actions, again = ([step.action for step in run.steps] for run in runs)
        assert actions == again


def test_result_does_not_depend_on_the_processs_hash_seed(name: str) -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-m", "support.imitator_play", name],
            cwd=TESTS,
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=50,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
    assert all(len(digest) == 64 for digest in digests)
