"""Success by family and memory arm in the default mix: what the constructed families are built to show, measured.

`python -m support.family_table FIRST_SEED NUM_STREAMS`, in tests/; about five seconds a stream. No Ray, no policy: an
outcome matrix. A stream is the mix under its own `task_seed`, shuffled; all arms are played on every task, with one
memory block at its start, one memory and one agent seed; the memory then keeps the attempt of an arm drawn evenly, if
it succeeded. At the start it holds 3 reference plans of each household and PDDL goal type and the logs of `habit`.
Task seeds from 100 on were used to choose wordings and sizes of the worlds; report others.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memcon import registry
from memcon.control.memory.rendering import render_trajectory
from memcon.control.plans import PlanTemplate, Rewriter, extract
from memcon.control.progress import ProgressMatcher
from memcon.protocols import AgentRun, Benchmark
from memcon.seeds import SeedTree
from memcon.tokens import estimate_tokens
from memcon.types import MemoryContext, MemoryItem, Task, Trajectory
from support.imitator_play import a_benchmark, attempt, reference_trajectory

# Practice tasks of a type at most; the default mix bounds household and PDDL itself.
PER_TYPE = 25
FAMILIES = ("household", "pddl", "habit", "audit", "recur", "trivia")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What is put into the prompt at task start. On memory `metagpt` insight-only is shallow and Re-Retrieve medium."""

    top_k: int
    plan: bool = False


ARMS: Mapping[str, Arm] = {
    "shallow": Arm(top_k=1),
    "medium": Arm(top_k=2),
    "deep": Arm(top_k=3),
    "plan": Arm(top_k=1, plan=True),
    "noop": Arm(top_k=0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One arm on one task."""

    stream: int
    family: str
    goal_type: str
    arm: str
    success: bool
    # Estimated, of the memory block.
    tokens: int


class Store:
    """Successes with what `metagpt` and the plan index make of them, in memory."""

    def __init__(self) -> None:
        plugin = registry.plugin("embedder", "wordllama")
        self._embedder = plugin.build(registry.configure("embedder", "wordllama", {}))
        self._texts: list[str] = []
        self._goals: list[str] = []
        self._vectors: list[np.ndarray] = []
        self._plans: dict[str, PlanTemplate] = {}

    def add(self, trajectory: Trajectory, part: Benchmark) -> None:
        """File the attempt; its plan replaces a longer one of the goal type."""
        task = trajectory.task
        self._texts.append(render_trajectory(trajectory))
        self._goals.append(task.goal)
        self._vectors.append(self._embedder.embed([task.goal])[0])
        actions = extract(trajectory, rewriter=Rewriter(part.vocabulary), matcher=ProgressMatcher(part.progress_rules))
        known = self._plans.get(task.goal_type)
        if actions and (known is None or len(actions) < len(known.actions)):
            self._plans[task.goal_type] = PlanTemplate(source_goal=task.goal, actions=actions)

    def context(self, task: Task, arm: Arm, part: Benchmark) -> MemoryContext:
        """The memory block of `arm`: nearest goals, the very same text first, then the older one."""
        if arm.top_k == 0 or not self._texts:
            return MemoryContext()
        scores = np.round(np.stack(self._vectors).astype(np.float64) @ self._embedder.embed([task.goal])[0], 6)
        order = np.lexsort((np.array([goal != task.goal for goal in self._goals]), -scores))[: arm.top_k]
        items = tuple(
            MemoryItem(item_id=f"success-{place}", source="success", score=1.0, text=self._texts[place])
            for place in order
        )
        template = self._plans.get(task.goal_type) if arm.plan else None
        plan = Rewriter(part.vocabulary).render(template, "numbered") if template else ""
        return MemoryContext(items=items, plan=plan)


async def play_arms(
    benchmark: Benchmark, task: Task, store: Store, *, seed: int
) -> tuple[Sequence[Played], Mapping[str, AgentRun]]:
    """Every arm on `task`, with what is in `store` now; rows and runs by arm."""
    part = benchmark.part_of(task)
    rows, runs = [], {}
    for name, arm in ARMS.items():
        context = store.context(task, arm, part)
        run = runs[name] = await attempt(benchmark, task, context, seed=seed)
        row = Played(
            stream=seed,
            family=task.benchmark,
            goal_type=task.goal_type,
            arm=name,
            success=run.success,
            tokens=sum(estimate_tokens(text) for text in (*(item.text for item in context.items), context.plan)),
        )
        rows.append(row)
    return rows, runs


async def stream(number: int) -> list[Played]:
    """All arms on all tasks of the mix under task seed `number`."""
    benchmark, place = a_benchmark("mix", task_seed=number), SeedTree(("family_table", number))
    store = Store()
    for task in benchmark.practice_tasks(PER_TYPE):
        store.add(reference_trajectory(benchmark, task), benchmark.part_of(task))
    tasks = list(benchmark.tasks())
    place.child("order").generator().shuffle(tasks)
    every: list[Played] = []
    for ordinal, task in enumerate(tasks):
        rows, runs = await play_arms(benchmark, task, store, seed=number)
        every += rows
        kept = runs[place.child("arm", ordinal).generator().choice(list(ARMS))]
        if kept.success:
            learned = Trajectory(task=task, first_observation=kept.first_observation, steps=kept.steps, success=True)
            store.add(learned, benchmark.part_of(task))
    return every


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error over streams."""
    mean = math.fsum(values) / len(values)
    spread = math.fsum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    return mean, math.sqrt(spread / len(values))


def as_text(rows: Sequence[Played]) -> str:
    """A line a family, then one a goal type: success in per cent with its standard error over streams."""
    lines = [f"{'':16s}" + "".join(f"{name:>13s}" for name in ARMS)]
    groups: dict[str, list[Played]] = {"mix": list(rows)}
    for family in FAMILIES:
        groups[family] = [row for row in rows if row.family == family]
    for kind in sorted({row.goal_type for row in rows} - set(FAMILIES)):
        groups[f"  {kind}"] = [row for row in rows if row.goal_type == kind]
    for label, members in groups.items():
        cells = [mean_and_error(by_stream(members, name)) for name in ARMS]
        lines.append(f"{label:16s}" + "".join(f"{mean:8.1f} {error:4.1f}" for mean, error in cells))
    tokens = [mean_and_error([row.tokens for row in rows if row.arm == name])[0] for name in ARMS]
    lines.append(f"{'tokens a task':16s}" + "".join(f"{mean:8.0f}     " for mean in tokens))
    return "\n".join(lines) + "\n"


def by_stream(rows: Sequence[Played], arm: str) -> list[float]:
    """Success of `arm` in per cent, stream by stream."""
    solved: dict[int, list[bool]] = defaultdict(list)
    for row in rows:
        if row.arm == arm:
            solved[row.stream].append(row.success)
    return [100.0 * sum(successes) / len(successes) for successes in solved.values()]


async def table(first: int, number: int) -> list[Played]:
    """The streams of `number` task seeds from `first` on."""
    return [row for seed in range(first, first + number) for row in await stream(seed)]


if __name__ == "__main__":
    sys.stdout.write(as_text(asyncio.run(table(int(sys.argv[1]), int(sys.argv[2])))))
