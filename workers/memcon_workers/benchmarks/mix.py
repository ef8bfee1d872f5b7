"""The benchmark `mix`: a list of tasks of several benchmarks, shared out by weight.

Owns the shares, the order of the list and the names of goal types; each task stays its part's (`Task.benchmark`) and is
played in the part's own environment. The default is the mix of docs/prototype.md (1), whose
families were constructed to want different memory arms: its headroom is by construction.

Measured with the imitator, success in per cent with its standard error over 40 lists (task seeds 0 to 39), that page's
figure in brackets: `python -m support.family_table 0 40` in tests/, an outcome matrix over memory `metagpt` in which
one arm is played at task start. Wordings and sizes were chosen on task seeds 100 to 121.

                  shallow          medium            deep            plan            noop
    household   58.1 1.0 (46)   59.8 1.1 (45)   60.4 1.4 (45)   65.3 1.3 (50)   29.4 1.2 (23)
    pddl        66.5 1.1 (60)   68.1 1.3 (60)   69.6 1.1 (60)   65.7 1.2 (59)   31.2 1.0 (35)
    habit       52.3 2.7 (56)   51.7 2.5 (57)   58.8 2.3 (62)   52.3 2.7 (56)   16.7 1.3 (18)
    audit       28.8 0.9 (30)   34.4 1.2 (33)   68.2 1.2 (68)   28.8 0.9 (30)   88.5 0.9 (88)
    recur       84.3 2.9 (78)   86.4 2.4 (80)   86.8 2.4 (79)   85.4 2.8 (77)   47.8 3.3 (45)
    trivia      90.0 1.6 (87)   90.0 1.6        90.0 1.6        90.0 1.6        90.0 1.6 (87)
    mix         58.7 0.8 (54)   60.7 0.8 (55)   68.5 0.8 (62)   60.7 0.8 (55)   44.1 0.7 (43)
    tokens       307    (286)    627    (542)    940    (813)    349    (322)      0     (0)

The shape is the page's; levels differ. Household and PDDL are as they are, under this imitator and these plan templates
(see `memcon_workers.backbones.imitator`). `habit` is what its probabilities give: one record .518, the majority of
three .605; between single lists of 24 tasks and 5 clients their difference varies with a standard deviation of 12
points. On `metagpt`, which has no insights, insight-only is shallow; the page's prototype had rules (PDDL 62).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memcon import registry
from memcon.checks import in_range
from memcon.errors import ConfigError
from memcon.protocols import Benchmark, Environment
from memcon.registry import Plugin
from memcon.types import Provenance, Task
from memcon_workers.benchmarks.dispatching import DispatchingEnvironment, Route
from memcon_workers.benchmarks.mix_parts import Part, PartConfig, dealt, read_parts, shares
from memcon_workers.benchmarks.questions import NO_PROGRESS

__all__ = ["PLUGIN", "MixBenchmark", "MixConfig"]

NAME = "mix"


def _main_mix() -> tuple[Mapping[str, Any], ...]:
    # Demonstrations of household and PDDL are few, the logs of `habit` are all of them.
    return (
        {"name": "household", "weight": 0.27, "practice_per_type": 3},
        {"name": "pddl", "weight": 0.18, "practice_per_type": 3},
        {"name": "habit", "weight": 0.18},
        {"name": "audit", "weight": 0.18},
        {"name": "recur", "weight": 0.13},
        {"name": "trivia", "weight": 0.06},
    )


@dataclass(slots=True, kw_only=True)
class MixConfig:
    """Which benchmarks, and how much of each.

    Raises:
        ConfigError: the weights do not sum to 1, a part has no task, is a mix or is given twice; or its own settings
            are refused.
        UnknownNameError: a part is no registered benchmark.
    """

    num_tasks: int = 134
    # Each: `name`, `weight`, and any setting of that benchmark but `num_tasks`; `practice_per_type` bounds what the
    # part gives to a memory before a stream begins.
    parts: tuple[Mapping[str, Any], ...] = field(default_factory=_main_mix)
    # Given to parts that have a `task_seed` and do not name one.
    task_seed: int = 0

    def __post_init__(self) -> None:
        in_range("num_tasks", self.num_tasks, 1, 5000)
        in_range("task_seed", self.task_seed, 0)
        read_parts(self.parts, num_tasks=self.num_tasks, task_seed=self.task_seed, whole=NAME)


class MixBenchmark:
    """Tasks of several benchmarks in one list. What an action means differs by part: ask `part_of`."""

    name = NAME
    progress_rules = NO_PROGRESS

    def __init__(self, config: MixConfig) -> None:
        read = read_parts(config.parts, num_tasks=config.num_tasks, task_seed=config.task_seed, whole=NAME)
        counts = shares([part.weight for part in read], config.num_tasks)
        sources = [_built(part) for part in read]
        shared = _shared_types(sources)
        self._parts = [
            Part(source, num_tasks=count, practice_per_type=part.practice_per_type, prefixed=shared)
            for part, source, count in zip(read, sources, counts, strict=True)
        ]
        self._tasks: tuple[Task, ...] | None = None
        self._places: dict[str, int] = {}
        official = all(part.provenance is Provenance.OFFICIAL for part in self._parts)
        self.provenance = Provenance.OFFICIAL if official else Provenance.SELF_MADE
        self.goal_types: tuple[str, ...] = tuple(
            dict.fromkeys(kind for part in self._parts for kind in part.goal_types)
        )
        self.vocabulary: frozenset[str] = frozenset().union(*(part.vocabulary for part in self._parts))
        self.single_object_types: Mapping[str, str] = {
            double: single for part in self._parts for double, single in part.single_object_types.items()
        }
        self.has_step_budget = any(part.has_step_budget for part in self._parts)
        self.constructed: Mapping[str, str] = {
            family: purpose for source in sources for family, purpose in getattr(source, "constructed", {}).items()
        }

    def tasks(self) -> Sequence[Task]:
        """The parts' tasks, each next one of the part that is furthest behind its share.

        Raises:
            ConfigError: a part has too few tasks, or two parts give the same one.
        """
        if self._tasks is None:
            left = [iter(part.tasks()) for part in self._parts]
            counts = [part.num_tasks for part in self._parts]
            turns = dealt(counts)
            tasks = tuple(next(left[place]) for place in turns)
            self._places = _places(turns, tasks)
            self._tasks = tasks
        return self._tasks

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        """The parts' practice tasks, part by part; none that is a task of the mix."""
        asked = {task.task_id for task in self.tasks()}
        given: Counter[str] = Counter()
        found: dict[str, Task] = {}
        for part in self._parts:
            for task in part.practice_tasks(per_type):
                if task.task_id not in asked and task.task_id not in found and given[task.goal_type] < per_type:
                    found[task.task_id] = task
                    given[task.goal_type] += 1
        return tuple(found.values())

    def environment(self) -> Environment:
        """One environment for all parts; a part's own is opened when its first task comes."""
        return DispatchingEnvironment(self._route, num_keys=len(self._parts))

    def reference_plan(self, task: Task) -> Sequence[str] | None:
        """That of the task's part."""
        return self._parts[self._place(task)].reference_plan(task)

    def part_of(self, task: Task) -> Benchmark:
        """The part that made `task`.

        Raises:
            ConfigError: no part did.
        """
        return self._parts[self._place(task)].part_of(task)

    def _route(self, task: Task) -> Route:
        place = self._place(task)
        return Route(key=str(place), benchmark=self._parts[place].source, task=self._parts[place].own(task))

    def _place(self, task: Task) -> int:
        self.tasks()
        place = self._places.get(task.task_id)
        if place is not None and self._parts[place].name == task.benchmark:
            return place
        # A practice task: any part of its benchmark can play it.
        found = [number for number, part in enumerate(self._parts) if part.name == task.benchmark]
        if not found:
            names = ", ".join(dict.fromkeys(part.name for part in self._parts))
            raise ConfigError(
                f"benchmark mix: task '{task.task_id}' is of benchmark '{task.benchmark}', which is no part; "
                f"parts: {names}; play tasks of the mix's own list only"
            )
        return found[0]


def _places(turns: Sequence[int], tasks: Sequence[Task]) -> dict[str, int]:
    """Task id -> place of its part."""
    places: dict[str, int] = {}
    for place, task in zip(turns, tasks, strict=True):
        other = places.setdefault(task.task_id, place)
        if other != place:
            first, second = sorted((other, place))
            raise ConfigError(
                f"benchmark mix: parts[{first}] and parts[{second}] ('{task.benchmark}') both have task "
                f"'{task.task_id}'; give one of them another task_seed"
            )
    return places


def _built(part: PartConfig) -> Benchmark:
    benchmark: Benchmark = registry.plugin("benchmark", part.name).build(part.config)
    return benchmark


def _shared_types(sources: Sequence[Benchmark]) -> frozenset[str]:
    """Goal types that two different benchmarks have."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources:
        for kind in source.goal_types:
            owners[kind].add(source.name)
    return frozenset(kind for kind, names in owners.items() if len(names) > 1)


def build(config: MixConfig) -> Benchmark:
    """The benchmark of `config`."""
    return MixBenchmark(config)


PLUGIN = Plugin(
    config=MixConfig,
    build=build,
    summary="parts by weight; the default is put together by us so that its families want different memory arms",
)
