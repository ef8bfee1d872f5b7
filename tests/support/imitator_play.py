"""Plays the imitator in a benchmark with a given memory, and makes memory out of reference plans.

`python -m support.imitator_play BENCHMARK` prints a digest of some attempts, for comparison over processes.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Callable, Sequence

from memcon import registry
from memcon.clock import SystemClock
from memcon.control.memory.rendering import render_trajectory
from memcon.protocols import AgentRun, Benchmark
from memcon.seeds import SeedTree
from memcon.testing.framework import FixedMemory
from memcon.types import MemoryContext, MemoryItem, Step, StepKind, Task, Trajectory
from memcon_workers.backbones.imitator import Imitator, ImitatorConfig
from memcon_workers.frameworks.lobster import Lobster, LobsterConfig

ENVIRONMENT_SEED = 3


def a_benchmark(name: str, **parameters: object) -> Benchmark:
    plugin = registry.plugin("benchmark", name)
    benchmark: Benchmark = plugin.build(registry.configure("benchmark", name, parameters))
    return benchmark


def reference_trajectory(benchmark: Benchmark, task: Task) -> Trajectory:
    """The benchmark's own plan, played in its environment."""
    environment = benchmark.environment()
    first = environment.reset(task, ENVIRONMENT_SEED)
    steps = []
    for index, action in enumerate(benchmark.reference_plan(task) or ()):
        result = environment.step(action)
        step = Step(
            index=index,
            kind=StepKind.ACTION,
            action=action,
            observation=result.observation,
            valid=result.valid,
            progress=result.progress,
            prompt_tokens=0,
            completion_tokens=0,
        )
        steps.append(step)
    environment.close()
    return Trajectory(task=task, first_observation=first.text, steps=tuple(steps), success=True)


def as_context(trajectories: Sequence[Trajectory]) -> MemoryContext:
    return MemoryContext(
        items=tuple(
            MemoryItem(item_id=str(number), source="success", score=1.0, text=render_trajectory(trajectory))
            for number, trajectory in enumerate(trajectories)
        )
    )


def of_other_types(trajectories: Sequence[Trajectory], task: Task, number: int) -> Sequence[Trajectory]:
    """`number` trajectories of other goal types, spread over them."""
    others = [one for one in trajectories if one.task.goal_type != task.goal_type]
    start = SeedTree(("irrelevant", task.task_id)).value() % len(others)
    return [others[(start + 7 * place) % len(others)] for place in range(number)]


async def attempt(benchmark: Benchmark, task: Task, context: MemoryContext, *, seed: int) -> AgentRun:
    config = LobsterConfig(history_window="all", few_shot=0, list_actions=True, loop_stop=False)
    environment = benchmark.environment()
    try:
        return await Lobster(config, clock=SystemClock()).run(
            task,
            environment,
            Imitator(ImitatorConfig()),
            memory=FixedMemory(context),
            environment_seed=ENVIRONMENT_SEED,
            agent_seed=SeedTree(("play", seed, task.task_id)).value(),
        )
    finally:
        environment.close()


async def own_attempt(benchmark: Benchmark, task: Task, *, seed: int) -> Trajectory:
    """One attempt without memory, as a store keeps it."""
    run = await attempt(benchmark, task, MemoryContext(), seed=seed)
    return Trajectory(task=task, first_observation=run.first_observation, steps=run.steps, success=run.success)


async def own_successes(benchmark: Benchmark, tasks: Sequence[Task], *, seed: int) -> Sequence[Trajectory]:
    """The attempts at `tasks` that succeed without memory: what a store holds early in a stream."""
    every = [await own_attempt(benchmark, task, seed=seed) for task in tasks]
    return [one for one in every if one.success]


async def success_rate(
    benchmark: Benchmark, tasks: Sequence[Task], memory: Callable[[Task], MemoryContext], *, seeds: Sequence[int]
) -> float:
    runs = [await attempt(benchmark, task, memory(task), seed=seed) for seed in seeds for task in tasks]
    return sum(run.success for run in runs) / len(runs)


async def digest(name: str) -> str:
    """Hash of the actions of some attempts, with no memory and with memory of other tasks."""
    benchmark = a_benchmark(name)
    tasks = benchmark.tasks()[:8]
    store = as_context([reference_trajectory(benchmark, task) for task in tasks[:3]])
    runs = [await attempt(benchmark, task, context, seed=1) for task in tasks for context in (MemoryContext(), store)]
    lines = [step.action for run in runs for step in run.steps]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(digest(sys.argv[1])))
