"""The benchmark `household`: our own household domain with the six task types of ALFWorld (spec BE-1, BE-7).

A stand-in for machines without the ALFWorld engine and its games: same kinds of tasks, same wording, self-made rooms.
Its results are never those of ALFWorld; every task says `self-made`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from memcon import codec, ids
from memcon.checks import in_range
from memcon.errors import ConfigError
from memcon.protocols import Benchmark, Environment
from memcon.registry import Plugin
from memcon.seeds import SeedTree
from memcon.types import ProgressRules, Provenance, Task
from memcon_workers.benchmarks.domain_file import read_domain
from memcon_workers.benchmarks.household.generator import draw_room
from memcon_workers.benchmarks.household.goals import GOAL_TYPES, goal_sentence, goal_type
from memcon_workers.benchmarks.household.narrator import HouseholdNarrator
from memcon_workers.benchmarks.household.plans import plan_of
from memcon_workers.benchmarks.household.room import Room, problem_of
from memcon_workers.benchmarks.household.things import ITEMS, LAMP, ROOMS
from memcon_workers.benchmarks.planning_environment import PlanningEnvironment, World, open_world

__all__ = ["PLUGIN", "HouseholdBenchmark", "HouseholdConfig"]

NAME = "household"
MAX_STEPS = 30
# Redraws of a practice room that is a room of the list, or was drawn before; the smallest rooms do repeat.
MAX_REDRAWS = 200
# Tasks a type in a list of 134, as in ALFWorld's unseen split (spec BE-1); other lengths keep the shares.
QUOTAS = {"put": 24, "examine": 18, "clean": 31, "heat": 23, "cool": 21, "puttwo": 17}


@dataclass(slots=True, kw_only=True)
class HouseholdConfig:
    """Which rooms are generated."""

    num_tasks: int = 134
    # Receptacles of a room; more of them make the search longer (success without memory 24 % at 6, 16 % at 24).
    max_receptacles: int = 6
    # Another number, another list of rooms; independent of the seed axis of a sweep, so that cells stay paired.
    task_seed: int = 0

    def __post_init__(self) -> None:
        in_range("num_tasks", self.num_tasks, 1, 5000)
        in_range("max_receptacles", self.max_receptacles, 3, 24)
        in_range("task_seed", self.task_seed, 0)


class HouseholdBenchmark:
    """Rooms with one thing to do."""

    name = NAME
    provenance = Provenance.SELF_MADE
    goal_types = GOAL_TYPES
    vocabulary = frozenset({LAMP, *ITEMS, *(kind for room in ROOMS.values() for kind in room)})
    progress_rules = ProgressRules(
        take=r"take (?P<object>[a-z]+ \d+) from [a-z]+ \d+\.?",
        release=r"(?:move|put) (?P<object>[a-z]+ \d+) (?:in/on|into|onto|in|on|to) [a-z]+ \d+\.?",
        visit=r"go to (?P<place>[a-z]+ \d+)\.?",
    )
    single_object_types: Mapping[str, str] = MappingProxyType({"puttwo": "put"})
    has_step_budget = True

    def __init__(self, config: HouseholdConfig) -> None:
        self._config = config
        self._tasks: tuple[Task, ...] | None = None

    def tasks(self) -> Sequence[Task]:
        """The rooms, types mixed by their shares; a longer list starts with the shorter one."""
        if self._tasks is None:
            root = self._root()
            kinds = _types_in_turn(self._config.num_tasks)
            self._tasks = tuple(_draw_task(kind, root.child(number), self._config) for number, kind in enumerate(kinds))
        return self._tasks

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        """Other rooms, the six types in turn; fewer of a type that has no more, and more start with the fewer ones."""
        root = self._root().child("practice")
        known = {task.task_id for task in self.tasks()}
        found: list[Task] = []
        for number in range(per_type):
            for kind in GOAL_TYPES:
                task = self._unknown_task(kind, root.child(kind, number), known)
                if task is not None:
                    known.add(task.task_id)
                    found.append(task)
        return tuple(found)

    def environment(self) -> Environment:
        """A fresh environment for any of the rooms."""
        return PlanningEnvironment(world_of)

    def reference_plan(self, task: Task) -> Sequence[str] | None:
        """A short plan by someone who knows where everything is."""
        return plan_of(_room(task))

    def part_of(self, task: Task) -> Benchmark:
        """This benchmark."""
        del task
        return self

    def _root(self) -> SeedTree:
        return SeedTree(("benchmark", NAME, self._config.task_seed, self._config.max_receptacles))

    def _unknown_task(self, kind: str, place: SeedTree, known: Set[str]) -> Task | None:
        redraws = (_draw_task(kind, place.child(number), self._config) for number in range(MAX_REDRAWS))
        return next((task for task in redraws if task.task_id not in known), None)


def world_of(task: Task) -> World:
    """The grounded world of `task`; equal payloads share one.

    Raises:
        ConfigError: the payload is not one of this benchmark, or is damaged.
    """
    try:
        return _world(codec.encode_json(_room(task)))
    except ConfigError as error:
        raise ConfigError(
            f"benchmark household: starting task '{task.task_id}': {error}; play tasks of the benchmark's own list only"
        ) from error


@lru_cache(maxsize=512)
def _world(text: str) -> World:
    room = codec.decode_json(Room, text)
    things = [thing for names in room.contents.values() for thing in names]
    narrator = HouseholdNarrator(list(room.contents), sorted(things))
    return open_world(read_domain(__package__, "domain.pddl"), problem_of(room), lambda facts: narrator)


def _room(task: Task) -> Room:
    try:
        return codec.decode(Room, task.payload, "payload")
    except codec.CodecError as error:
        raise ConfigError(str(error)) from error


def _types_in_turn(count: int) -> list[str]:
    """Goal types, each next one the type that is furthest behind its share."""
    total = sum(QUOTAS.values())
    given = dict.fromkeys(QUOTAS, 0)
    turns: list[str] = []
    for number in range(1, count + 1):
        # Integers only: a float tie would hang on rounding.
        behind = max(QUOTAS, key=lambda kind: QUOTAS[kind] * number - given[kind] * total)
        given[behind] += 1
        turns.append(behind)
    return turns


def _draw_task(kind: str, place: SeedTree, config: HouseholdConfig) -> Task:
    generator = place.generator()
    room = draw_room(kind, generator, config.max_receptacles)
    goal = goal_sentence(kind, room.goal_item, room.goal_place, generator)
    payload = codec.encode(room)
    return Task(
        task_id=f"{NAME}-{kind}-{ids.stable_hash(NAME, goal, payload)}",
        benchmark=NAME,
        goal=goal,
        goal_type=goal_type(goal),
        payload=payload,
        max_steps=MAX_STEPS,
        provenance=Provenance.SELF_MADE,
    )


def build(config: HouseholdConfig) -> Benchmark:
    """The benchmark of `config`."""
    return HouseholdBenchmark(config)


PLUGIN = Plugin(
    config=HouseholdConfig,
    build=build,
    summary="self-made stand-in for ALFWorld: six household task types in seeded rooms",
)
