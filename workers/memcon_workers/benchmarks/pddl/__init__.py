"""The benchmark `pddl`: blocksworld, barman, gripper and tyreworld with seeded, self-made problems (spec BE-2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memcon.checks import choice, in_range
from memcon.errors import ConfigError
from memcon.protocols import Benchmark, Environment
from memcon.registry import Plugin
from memcon.seeds import SeedTree
from memcon.types import ProgressRules, Provenance, Task
from memcon_workers.benchmarks.pddl.family import Family, Rung
from memcon_workers.benchmarks.pddl.problems import BENCHMARK, FAMILIES, draw_task, reference_plan, world_of
from memcon_workers.benchmarks.planning_environment import PlanningEnvironment

__all__ = ["PLUGIN", "PddlBenchmark", "PddlConfig"]

# Redraws of a problem that was drawn before; small problems of few objects do repeat.
MAX_REDRAWS = 200


@dataclass(slots=True, kw_only=True)
class PddlConfig:
    """Which problems are generated."""

    # Dealt over the domains in turn.
    num_tasks: int = 40
    # "ladder": goals that a beginner can reach; in barman and tyreworld one fact on the way. "full": the whole problem.
    goals: str = "ladder"
    domains: tuple[str, ...] = tuple(FAMILIES)
    # Another number, another list of problems; independent of the seed axis of a sweep, so that cells stay paired.
    task_seed: int = 0

    def __post_init__(self) -> None:
        in_range("num_tasks", self.num_tasks, 1, 1000)
        in_range("task_seed", self.task_seed, 0)
        choice("goals", self.goals, ("ladder", "full"))
        for domain in self.domains:
            choice("domains", domain, FAMILIES)
        if not self.domains or len(set(self.domains)) != len(self.domains):
            raise ConfigError(
                f"domains = {list(self.domains)}: expected each of {', '.join(FAMILIES)} at most once, and one at least"
            )


def _rule(group: str, starts: Sequence[str]) -> str:
    return rf"(?:{'|'.join(starts)}) (?P<{group}>[a-z]+ \d+)(?:[ .].*)?"


class PddlBenchmark:
    """Planning problems; the goal type of a task is its domain."""

    name = BENCHMARK
    provenance = Provenance.SELF_MADE
    progress_rules = ProgressRules(
        take=_rule("object", [verb for family in FAMILIES.values() for verb in family.takes]),
        release=_rule("object", [verb for family in FAMILIES.values() for verb in family.releases]),
        visit=_rule("place", [verb for family in FAMILIES.values() for verb in family.visits]),
    )
    has_step_budget = True

    def __init__(self, config: PddlConfig) -> None:
        self._config = config
        families = [FAMILIES[name] for name in config.domains]
        self._families = families
        self.goal_types: tuple[str, ...] = tuple(family.name for family in families)
        self.vocabulary: frozenset[str] = frozenset(kind for family in families for kind in family.kinds)
        self.single_object_types: Mapping[str, str] = {}
        self._tasks: tuple[Task, ...] | None = None

    def tasks(self) -> Sequence[Task]:
        """The problems, domains in turn; a longer list starts with the shorter one."""
        if self._tasks is None:
            self._tasks = self._drawn_tasks()
        return self._tasks

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        """Other problems, domains in turn, over the same sizes; fewer of a domain that has no more of a size."""
        known = {task.task_id: task for task in self.tasks()}
        asked = len(known)
        root = self._root().child("practice")
        for turn in range(per_type):
            for family in self._families:
                task = self._new_task(family, turn, root, known)
                if task is not None:
                    known[task.task_id] = task
        return tuple(known.values())[asked:]

    def environment(self) -> Environment:
        """A fresh environment; all four domains play in it."""
        return PlanningEnvironment(world_of)

    def reference_plan(self, task: Task) -> Sequence[str] | None:
        """The constructive plan of the task's domain, at most 30 steps."""
        return reference_plan(task)

    def part_of(self, task: Task) -> Benchmark:
        """This benchmark."""
        del task
        return self

    def _root(self) -> SeedTree:
        return SeedTree(("benchmark", BENCHMARK, self._config.goals, self._config.task_seed))

    def _drawn_tasks(self) -> tuple[Task, ...]:
        root = self._root()
        tasks: dict[str, Task] = {}
        for number in range(self._config.num_tasks):
            turn, place = divmod(number, len(self._families))
            family = self._families[place]
            task = self._new_task(family, turn, root, tasks)
            if task is None:
                raise ConfigError(
                    f"benchmark pddl: num_tasks = {self._config.num_tasks}: {family.name} has no {turn + 1} different "
                    f"problems of size {self._rung(family, turn).size} within {MAX_REDRAWS} draws; "
                    "lower num_tasks or add domains"
                )
            tasks[task.task_id] = task
        return tuple(tasks.values())

    def _new_task(self, family: Family, turn: int, root: SeedTree, known: Mapping[str, Task]) -> Task | None:
        rung = self._rung(family, turn)
        places = (root.child(family.name, turn, redraw) for redraw in range(MAX_REDRAWS))
        drawn = (draw_task(family, rung, place) for place in places)
        return next((task for task in drawn if task.task_id not in known), None)

    def _rung(self, family: Family, turn: int) -> Rung:
        rungs = family.ladder if self._config.goals == "ladder" else [Rung(size=size) for size in family.sizes]
        return rungs[turn % len(rungs)]


def build(config: PddlConfig) -> Benchmark:
    """The benchmark of `config`."""
    return PddlBenchmark(config)


PLUGIN = Plugin(
    config=PddlConfig,
    build=build,
    summary="blocksworld, barman, gripper, tyreworld; self-made seeded problems, ladder or full goals",
)
