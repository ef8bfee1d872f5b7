"""The table that the imitator is calibrated on: its success under known kinds of memory, beside the reference page.

`python -m support.imitator_table BENCHMARK [STORE_SEED TEST_SEED]`, in tests/; about a minute. Task lists are fresh
ones: never those of a comparison of policies (`task_seed` 0), and no policy plays.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memcon import registry
from memcon.control.plans import PlanTemplate, Rewriter, extract
from memcon.control.progress import ProgressMatcher
from memcon.protocols import Benchmark
from memcon.types import MemoryContext, Task, Trajectory
from support.imitator_play import a_benchmark, as_context, attempt, of_other_types, own_attempt, reference_trajectory

PER_TYPE = 25
STORE_SEED, TEST_SEED = 11, 12
AGENT_SEEDS = (1, 2)
TRIES = 4
# A list long enough to hold PER_TYPE tasks of the rarest type.
NUM_TASKS = {"household": 300, "pddl": 100}

# Success in per cent on the reference page (facts on the offline signal, section 1).
PAGE: Mapping[str, Mapping[str, float]] = {
    "household": {
        "none": 27.0,
        "own nearest 1": 45.0,
        "own nearest 3": 44.7,
        "own nearest 8": 41.0,
        "own irrelevant 1": 25.7,
        "own irrelevant 3": 25.3,
        "own plan": 46.3,
        "expert nearest 1": 69.0,
        "expert nearest 3": 72.3,
        "expert irrelevant 1": 29.7,
        "expert irrelevant 3": 31.7,
        "expert plan": 52.7,
        "oracle": 100.0,
    },
    "pddl": {
        "none": 35.5,
        "expert nearest 1": 71.0,
        "expert nearest 3": 74.0,
        "expert irrelevant 1": 35.5,
        "expert irrelevant 3": 35.5,
        "expert plan": 48.5,
        "oracle": 97.5,
    },
}

Memory = Callable[[Task], MemoryContext]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One column of the table."""

    name: str
    success: float
    # Goal type -> success in per cent.
    by_type: Mapping[str, float]


def tasks_of(name: str, task_seed: int) -> tuple[Benchmark, Sequence[Task]]:
    """The benchmark under `task_seed`, and its first PER_TYPE tasks of each goal type."""
    benchmark = a_benchmark(name, task_seed=task_seed, num_tasks=NUM_TASKS[name])
    kept: dict[str, list[Task]] = defaultdict(list)
    for task in benchmark.tasks():
        if len(kept[task.goal_type]) < PER_TYPE:
            kept[task.goal_type].append(task)
    return benchmark, [task for tasks in kept.values() for task in tasks]


async def own_store(benchmark: Benchmark, tasks: Sequence[Task]) -> Sequence[Trajectory]:
    """For each task the first of TRIES attempts without memory that succeeded."""
    found = []
    for task in tasks:
        for seed in range(11, 11 + TRIES):
            trajectory = await own_attempt(benchmark, task, seed=seed)
            if trajectory.success:
                found.append(trajectory)
                break
    return found


class Store:
    """Solved tasks with the ways to take memory from them."""

    def __init__(self, benchmark: Benchmark, trajectories: Sequence[Trajectory]) -> None:
        self._trajectories = trajectories
        plugin = registry.plugin("embedder", "wordllama")
        self._embedder = plugin.build(registry.configure("embedder", "wordllama", {}))
        self._vectors = self._embedder.embed([one.task.goal for one in trajectories])
        self._rewriter = Rewriter(benchmark.vocabulary)
        self._plans = self._shortest_plans(ProgressMatcher(benchmark.progress_rules))

    def nearest(self, number: int) -> Memory:
        """The nearest goals by the cosine of `wordllama`, as memory `metagpt` retrieves."""

        def memory(task: Task) -> MemoryContext:
            likeness = self._vectors @ self._embedder.embed([task.goal])[0]
            order = np.argsort(-likeness, kind="stable")[:number]
            return as_context([self._trajectories[place] for place in order])

        return memory

    def irrelevant(self, number: int) -> Memory:
        """Tasks of other goal types."""
        return lambda task: as_context(of_other_types(self._trajectories, task, number))

    def plan(self, task: Task) -> MemoryContext:
        """The shortest template of the goal type, numbered."""
        template = self._plans.get(task.goal_type)
        return MemoryContext(plan=self._rewriter.render(template, "numbered")) if template else MemoryContext()

    def _shortest_plans(self, matcher: ProgressMatcher) -> Mapping[str, PlanTemplate]:
        plans: dict[str, PlanTemplate] = {}
        for one in self._trajectories:
            actions = extract(one, rewriter=self._rewriter, matcher=matcher)
            known = plans.get(one.task.goal_type)
            if actions and (known is None or len(actions) < len(known.actions)):
                plans[one.task.goal_type] = PlanTemplate(source_goal=one.task.goal, actions=actions)
        return plans


async def memories(name: str, store_seed: int, oracle: Benchmark) -> Mapping[str, Memory]:
    """Column name -> what it puts into the prompt for a task."""
    benchmark, tasks = tasks_of(name, store_seed)
    own = Store(benchmark, await own_store(benchmark, tasks))
    expert = Store(benchmark, [reference_trajectory(benchmark, task) for task in tasks])
    found: dict[str, Memory] = {"none": lambda _: MemoryContext()}
    for label, store in (("own", own), ("expert", expert)):
        found |= {f"{label} nearest {number}": store.nearest(number) for number in (1, 3, 8)}
        found |= {f"{label} irrelevant {number}": store.irrelevant(number) for number in (1, 3)}
        found[f"{label} plan"] = store.plan
    found["oracle"] = lambda task: as_context([reference_trajectory(oracle, task)])
    return found


async def measure(benchmark: Benchmark, tasks: Sequence[Task], name: str, memory: Memory) -> Cell:
    """Play all tasks with all agent seeds."""
    solved: dict[str, list[bool]] = defaultdict(list)
    for task in tasks:
        for seed in AGENT_SEEDS:
            run = await attempt(benchmark, task, memory(task), seed=seed)
            solved[task.goal_type].append(run.success)
    every = [success for successes in solved.values() for success in successes]
    return Cell(
        name=name,
        success=100.0 * sum(every) / len(every),
        by_type={kind: 100.0 * sum(successes) / len(successes) for kind, successes in solved.items()},
    )


async def table(name: str, store_seed: int, test_seed: int) -> Sequence[Cell]:
    """All columns of the reference page that `name` has."""
    benchmark, tasks = tasks_of(name, test_seed)
    kinds = await memories(name, store_seed, benchmark)
    return [await measure(benchmark, tasks, column, kinds[column]) for column in PAGE[name]]


def as_text(name: str, cells: Sequence[Cell]) -> str:
    """One line a column, and the root mean square deviation from the page."""
    page = PAGE[name]
    lines = [
        f"{cell.name:20s} {cell.success:6.1f}  page {page[cell.name]:6.1f}  "
        + " ".join(f"{kind} {share:.0f}" for kind, share in cell.by_type.items())
        for cell in cells
    ]
    squares = [(cell.success - page[cell.name]) ** 2 for cell in cells]
    return "\n".join([*lines, f"root mean square deviation {(sum(squares) / len(squares)) ** 0.5:.1f}\n"])


if __name__ == "__main__":
    seeds = [int(text) for text in sys.argv[2:]] or [STORE_SEED, TEST_SEED]
    sys.stdout.write(as_text(sys.argv[1], asyncio.run(table(sys.argv[1], *seeds))))
