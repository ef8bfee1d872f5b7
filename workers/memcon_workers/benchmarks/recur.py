"""The benchmark `recur`: three fixed jobs that come again and again, unchanged. Constructed by us.

Built to show a family in which ANY retrieval helps: the jobs (blocks, gripper, examining a thing under a lamp) are made
by the benchmarks `pddl` and `household`; once one is solved its record shows the way, step by step. Each job is a goal
type of its own. The family shows a mechanism and says nothing about how often real tasks repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memcon import codec, ids, registry
from memcon.checks import in_range
from memcon.errors import ConfigError, InvariantError
from memcon.protocols import Benchmark, Environment
from memcon.registry import Plugin
from memcon.seeds import SeedTree
from memcon.types import Provenance, Task
from memcon_workers.benchmarks.dispatching import DispatchingEnvironment, Route
from memcon_workers.benchmarks.questions import NO_PROGRESS

__all__ = ["PLUGIN", "RecurBenchmark", "RecurConfig"]

NAME = "recur"
SCHEMA_VERSION = 1
# Task seeds are below this.
_SEEDS = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """Where a job comes from: the `place`-th task (0-based) of `goal_type` in the list of `benchmark`."""

    benchmark: str
    parameters: Mapping[str, Any]
    goal_type: str
    place: int


# Job -> its recipe. Sizes were chosen on task seeds from 100 on, so that about half of the attempts without memory
# fail: blocks of the next size are hardly ever solved once, and what was never solved cannot be retrieved.
_RECIPES: Mapping[str, _Recipe] = {
    "blocks": _Recipe(
        benchmark="pddl",
        parameters={"domains": ("blocksworld",), "num_tasks": 3},
        goal_type="blocksworld",
        place=0,
    ),
    "gripper": _Recipe(
        benchmark="pddl", parameters={"domains": ("gripper",), "num_tasks": 3}, goal_type="gripper", place=0
    ),
    "examine": _Recipe(benchmark="household", parameters={"num_tasks": 12}, goal_type="examine", place=0),
}


@dataclass(slots=True, kw_only=True)
class RecurConfig:
    """Which jobs, and how often."""

    # Dealt over the three jobs in turn: 18 = each one six times.
    num_tasks: int = 18
    # Another number, other jobs; independent of the seed axis of a sweep, so that cells stay paired.
    task_seed: int = 0

    def __post_init__(self) -> None:
        in_range("num_tasks", self.num_tasks, 1, 5000)
        in_range("task_seed", self.task_seed, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Which job, the how-manieth time (1-based), and the job itself, as the benchmark that made it stores it."""

    schema_version: int
    job: str
    occurrence: int
    task: Mapping[str, Any]


class _Job:
    """One job: the benchmark that made it under the name `recur`, with the one goal type that the job is."""

    name = NAME

    def __init__(self, name: str, recipe: _Recipe, task_seed: int) -> None:
        seed = SeedTree(("benchmark", NAME, task_seed)).child(name).value() % _SEEDS
        parameters = {**recipe.parameters, "task_seed": seed}
        config = registry.configure("benchmark", recipe.benchmark, parameters)
        source: Benchmark = registry.plugin("benchmark", recipe.benchmark).build(config)
        self._name, self._recipe, self.source = name, recipe, source
        self._original: Task | None = None
        self.provenance = source.provenance
        self.goal_types: tuple[str, ...] = (f"job_{name}",)
        self.vocabulary = source.vocabulary
        self.progress_rules = source.progress_rules
        self.single_object_types: Mapping[str, str] = {}
        self.has_step_budget = source.has_step_budget

    def tasks(self) -> Sequence[Task]:
        """The job, once."""
        return [self.occurrence(1)]

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        """None: there is no job beside it."""
        del per_type
        return ()

    def environment(self) -> Environment:
        """A fresh environment for the job."""
        return DispatchingEnvironment(
            lambda task: Route(key="", benchmark=self.source, task=self.own(task)), num_keys=1
        )

    def reference_plan(self, task: Task) -> Sequence[str] | None:
        """That of the benchmark that made the job."""
        return self.source.reference_plan(self.own(task))

    def part_of(self, task: Task) -> Benchmark:
        """This job."""
        del task
        return self

    def occurrence(self, number: int) -> Task:
        """The job for the `number`-th time (1-based)."""
        made = self._made()
        payload = Payload(schema_version=SCHEMA_VERSION, job=self._name, occurrence=number, task=made.payload)
        return replace(
            made,
            task_id=f"{NAME}-{self._name}-{number}-{ids.stable_hash(NAME, made.task_id)}",
            benchmark=NAME,
            goal_type=self.goal_types[0],
            payload=codec.encode(payload),
        )

    def own(self, task: Task) -> Task:
        """`task` as the benchmark that made the job knows it."""
        return replace(task, benchmark=self.source.name, goal_type=self._recipe.goal_type, payload=_payload(task).task)

    def _made(self) -> Task:
        if self._original is None:
            fitting = [task for task in self.source.tasks() if task.goal_type == self._recipe.goal_type]
            if len(fitting) <= self._recipe.place:
                raise InvariantError(f"recur: '{self._recipe.benchmark}' gives too few tasks for job '{self._name}'")
            self._original = fitting[self._recipe.place]
        return self._original


class RecurBenchmark:
    """Three jobs, each of them many times. What an action means differs by job: ask `part_of`."""

    name = NAME
    provenance = Provenance.SELF_MADE
    progress_rules = NO_PROGRESS
    has_step_budget = True

    def __init__(self, config: RecurConfig) -> None:
        self._config = config
        self._jobs = {name: _Job(name, recipe, config.task_seed) for name, recipe in _RECIPES.items()}
        self.goal_types: tuple[str, ...] = tuple(kind for job in self._jobs.values() for kind in job.goal_types)
        self.vocabulary: frozenset[str] = frozenset().union(*(job.vocabulary for job in self._jobs.values()))
        self.single_object_types: Mapping[str, str] = {}
        self.constructed: Mapping[str, str] = {NAME: "any retrieval helps"}

    def tasks(self) -> Sequence[Task]:
        """The jobs in turn; a longer list starts with the shorter one."""
        jobs = list(self._jobs.values())
        return [
            jobs[number % len(jobs)].occurrence(number // len(jobs) + 1) for number in range(self._config.num_tasks)
        ]

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        """None: there are no other jobs; the first times are the practice."""
        del per_type
        return ()

    def environment(self) -> Environment:
        """A fresh environment for all jobs."""
        return DispatchingEnvironment(self._route, num_keys=len({job.source.name for job in self._jobs.values()}))

    def reference_plan(self, task: Task) -> Sequence[str] | None:
        """That of the benchmark that made the job."""
        return self._job(task).reference_plan(task)

    def part_of(self, task: Task) -> Benchmark:
        """The job of `task`, which bears this benchmark's name and knows what its actions mean."""
        return self._job(task)

    def _route(self, task: Task) -> Route:
        job = self._job(task)
        return Route(key=job.source.name, benchmark=job.source, task=job.own(task))

    def _job(self, task: Task) -> _Job:
        return self._jobs[_payload(task).job]


def _payload(task: Task) -> Payload:
    try:
        payload = codec.decode(Payload, task.payload, "payload")
    except codec.CodecError as error:
        raise _refused(task, str(error)) from error
    if payload.schema_version != SCHEMA_VERSION or payload.job not in _RECIPES:
        raise _refused(
            task,
            f"payload version {payload.schema_version} with job '{payload.job}'; "
            f"this memcon plays version {SCHEMA_VERSION} of {', '.join(_RECIPES)}",
        )
    return payload


def _refused(task: Task, problem: str) -> ConfigError:
    return ConfigError(
        f"benchmark recur: starting task '{task.task_id}': {problem}; play tasks of the benchmark's own list only"
    )


def build(config: RecurConfig) -> Benchmark:
    """The benchmark of `config`."""
    return RecurBenchmark(config)


PLUGIN = Plugin(
    config=RecurConfig,
    build=build,
    summary="constructed by us to show that any retrieval can help: three fixed jobs, each repeated unchanged",
)
