"""Benchmark `greenhouse`: plants that need one remedy each, which nothing in the world tells. Self-made.

Made to show memory at work: a kind of plant always needs the same remedy, so that only the past tells which. A wrong
remedy ends the episode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memcon import checks, codec, ids
from memcon.control.memory.rendering import one_line
from memcon.errors import ConfigError, InvariantError
from memcon.protocols import Benchmark, Environment, Observation, StepResult
from memcon.registry import Plugin
from memcon.seeds import SeedTree
from memcon.types import ProgressRules, Provenance, Task

__all__ = ["PLUGIN", "Greenhouse", "GreenhouseConfig"]

NAME = "greenhouse"
SHELF = "shelf 1"
MAX_STEPS = 12
REFUSAL = "Nothing happens."
KINDS = ("fern", "cactus", "orchid", "ivy")
# Goal type -> the remedies that lie on the shelf.
REMEDIES: Mapping[str, tuple[str, ...]] = {
    "water": ("rainwater", "tapwater", "mist"),
    "feed": ("bonemeal", "seaweed", "ash"),
    "repot": ("clay", "sand", "bark"),
}


@dataclass(slots=True, kw_only=True)
class GreenhouseConfig:
    """Which plants there are."""

    num_tasks: int = 24
    num_benches: int = 4
    # Other plants, for a memory that begins filled: of each goal type.
    num_practice: int = 8
    # Another number, other needs; independent of the seed axis of a sweep, so that cells stay paired.
    task_seed: int = 0

    def __post_init__(self) -> None:
        checks.in_range("num_tasks", self.num_tasks, 1, 5000)
        checks.in_range("num_benches", self.num_benches, 1, 20)
        checks.in_range("num_practice", self.num_practice, 0, 1000)
        checks.in_range("task_seed", self.task_seed, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plant:
    """Payload of a task: all that its environment needs."""

    benchmark: str
    plant: str
    bench: str
    num_benches: int
    remedies: tuple[str, ...]
    need: str


class GreenhouseEnvironment:
    """Plays the tasks of any greenhouse: a walk between shelf and benches, one thing in hand, one remedy to use."""

    blocking = False

    def __init__(self) -> None:
        self._plant: _Plant | None = None
        self._place, self._held, self._progress = "", "", 0.0

    def reset(self, task: Task, seed: int) -> Observation:
        """Stand at the door. All is in the payload: there is no chance for `seed` to drive.

        Raises:
            ConfigError: the task is none of a greenhouse.
        """
        del seed
        self._plant = _plant_of(task)
        self._place, self._held, self._progress = "the door", "", 0.0
        return Observation(
            text=f"You are at the door of a greenhouse with {SHELF} and {self._plant.num_benches} benches."
        )

    def step(self, action: str) -> StepResult:
        """Carry out an admissible action; any other text is refused and changes nothing.

        Raises:
            InvariantError: no episode runs.
        """
        plant = self._running()
        text = one_line(action).lower().removesuffix(".")
        if text not in self.valid_actions():
            return StepResult(observation=REFUSAL, valid=False, done=False, success=False, progress=self._progress)
        if text.startswith("use "):
            return self._used(plant)
        return StepResult(
            observation=self._moved(plant, text), valid=True, done=False, success=False, progress=self._progress
        )

    def valid_actions(self) -> Sequence[str]:
        """What can be done here; nothing when no episode runs."""
        if self._plant is None:
            return []
        plant, held = self._plant, self._held
        benches = [f"bench {number}" for number in range(1, plant.num_benches + 1)]
        actions = [f"go to {place}" for place in (SHELF, *benches) if place != self._place]
        if self._place == SHELF:
            actions += (
                [f"put {held} on {SHELF}"] if held else [f"take {remedy} from {SHELF}" for remedy in plant.remedies]
            )
        if self._place == plant.bench and held:
            actions.append(f"use {held} on {plant.plant}")
        return actions

    def close(self) -> None:
        """Forget the plant; may be called twice."""
        self._plant = None

    def _moved(self, plant: _Plant, text: str) -> str:
        verb, thing, *_ = text.split()
        if verb == "go":
            self._place = text.removeprefix("go to ")
            self._reached(0.75 if self._place == plant.bench and self._held else 0.25)
            return self._shown(plant)
        self._held = thing if verb == "take" else ""
        self._reached(0.5 if self._held else 0.0)
        return f"You {text}."

    def _shown(self, plant: _Plant) -> str:
        if self._place == SHELF:
            return f"On the {SHELF} you see {', '.join(plant.remedies)}."
        there = plant.plant if self._place == plant.bench else "nothing"
        return f"On the {self._place} you see {there}."

    def _used(self, plant: _Plant) -> StepResult:
        success = self._held == plant.need
        self._plant = None
        self._reached(float(success))
        text = f"The {plant.plant} {'thrives' if success else 'droops'}."
        return StepResult(observation=text, valid=True, done=True, success=success, progress=self._progress)

    def _reached(self, progress: float) -> None:
        self._progress = max(self._progress, progress)

    def _running(self) -> _Plant:
        if self._plant is None:
            raise InvariantError(
                "greenhouse: no episode runs (not reset, ended or closed); call reset with a task first"
            )
        return self._plant


class Greenhouse:
    """A `Benchmark`: plants of four kinds, each to be watered, fed or repotted."""

    name = NAME
    provenance = Provenance.SELF_MADE
    goal_types: tuple[str, ...] = tuple(REMEDIES)
    vocabulary = frozenset({*KINDS, "bench", "shelf"})
    progress_rules = ProgressRules(
        take=r"take (?P<object>\w+) from shelf \d+",
        release=r"put (?P<object>\w+) on shelf \d+",
        visit=r"go to (?P<place>(?:shelf|bench) \d+)",
    )
    single_object_types: Mapping[str, str] = {}
    has_step_budget = True
    # Said in every report before the numbers; a benchmark of real tasks has no such attribute.
    constructed: Mapping[str, str] = {NAME: "only the past tells what a plant needs"}

    def __init__(self, config: GreenhouseConfig) -> None:
        self._config = config
        self._root = SeedTree(("benchmark", NAME, config.task_seed))

    def tasks(self) -> Sequence[Task]:
        """Goal types and kinds in turn, so that all pairs come; a longer list starts with the shorter one."""
        return [
            self._task(f"{number}", self.goal_types[number % 3], KINDS[number % 4])
            for number in range(self._config.num_tasks)
        ]

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        """Other plants with the same needs, the first of each goal type before the second of any."""
        return [
            self._task(f"practice-{place}", goal_type, KINDS[place % 4])
            for place in range(min(per_type, self._config.num_practice))
            for goal_type in self.goal_types
        ]

    def environment(self) -> Environment:
        """A fresh environment for any greenhouse."""
        return GreenhouseEnvironment()

    def reference_plan(self, task: Task) -> Sequence[str] | None:
        """Fetch what the plant needs, and use it."""
        plant = _plant_of(task)
        fetch = [f"go to {SHELF}", f"take {plant.need} from {SHELF}"]
        return [*fetch, f"go to {plant.bench}", f"use {plant.need} on {plant.plant}"]

    def part_of(self, task: Task) -> Benchmark:
        """This benchmark."""
        del task
        return self

    def _task(self, number: str, goal_type: str, kind: str) -> Task:
        generator = self._root.child("plant", number, goal_type).generator()
        remedies = REMEDIES[goal_type]
        plant = _Plant(
            benchmark=NAME,
            plant=f"{kind} {generator.randint(1, 9)}",
            bench=f"bench {generator.randint(1, self._config.num_benches)}",
            num_benches=self._config.num_benches,
            remedies=remedies,
            # Of kind and goal type alone: this is what a memory can learn.
            need=self._root.child("need", goal_type, kind).generator().choice(remedies),
        )
        payload = codec.encode(plant)
        return Task(
            task_id=f"{NAME}-{number}-{goal_type}-{ids.stable_hash(NAME, self._config.task_seed, number, payload)}",
            benchmark=NAME,
            goal=f"{goal_type} {plant.plant} on {plant.bench}.",
            goal_type=goal_type,
            payload=payload,
            max_steps=MAX_STEPS,
            provenance=Provenance.SELF_MADE,
        )


def _plant_of(task: Task) -> _Plant:
    try:
        plant = codec.decode(_Plant, task.payload, "payload")
    except codec.CodecError as error:
        raise ConfigError(
            f"greenhouse: starting task '{task.task_id}': {error}; play tasks of the benchmark's own list only"
        ) from error
    if plant.benchmark != NAME:
        raise ConfigError(f"greenhouse: starting task '{task.task_id}': it is one of '{plant.benchmark}'")
    return plant


def _build(config: GreenhouseConfig) -> Benchmark:
    return Greenhouse(config)


PLUGIN = Plugin(config=GreenhouseConfig, build=_build, summary="plants whose needs only the past tells")
