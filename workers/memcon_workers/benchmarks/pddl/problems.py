"""Tasks of planning problems: payloads, the ladder of goals, and the worlds that they open."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from memcon import codec, ids
from memcon.errors import ConfigError, InvariantError
from memcon.seeds import SeedTree
from memcon.types import Provenance, Task
from memcon_workers.benchmarks import strips
from memcon_workers.benchmarks.domain_file import read_domain
from memcon_workers.benchmarks.pddl.barman import BARMAN
from memcon_workers.benchmarks.pddl.blocksworld import BLOCKSWORLD
from memcon_workers.benchmarks.pddl.family import Drawn, Family, Rung
from memcon_workers.benchmarks.pddl.gripper import GRIPPER
from memcon_workers.benchmarks.pddl.tyreworld import TYREWORLD
from memcon_workers.benchmarks.pddl.wording import FamilyNarrator, fact_text, goal_text
from memcon_workers.benchmarks.planning_environment import World, open_world
from memcon_workers.benchmarks.strips import Fact, State

__all__ = ["FAMILIES", "MAX_STEPS", "draw_task", "reference_plan", "world_of"]

FAMILIES: Mapping[str, Family] = {family.name: family for family in (BLOCKSWORLD, BARMAN, GRIPPER, TYREWORLD)}
MAX_STEPS = 30
SCHEMA_VERSION = 1
BENCHMARK = "pddl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A whole problem, so that a stored task plays alike whatever the generators become."""

    schema_version: int
    domain: str
    objects: Mapping[str, str]
    init: tuple[tuple[str, ...], ...]
    goal: tuple[tuple[str, ...], ...]
    # The full goal that the reference planner aims at; a ladder goal comes true on the way.
    full_goal: tuple[tuple[str, ...], ...]


def draw_task(family: Family, rung: Rung, place: SeedTree) -> Task:
    """The problem drawn at `place` of the seed tree.

    Raises:
        InvariantError: the reference plan fails, or no shown fact first comes true at the rung's depth.
    """
    generator = place.generator()
    drawn = family.draw(generator, rung.size)
    goal = drawn.goal if rung.depth is None else (generator.choice(_first_reached(family, drawn, rung.depth)),)
    payload = Payload(
        schema_version=SCHEMA_VERSION,
        domain=family.name,
        objects=drawn.objects,
        init=tuple(sorted(drawn.init)),
        goal=goal,
        full_goal=drawn.goal,
    )
    encoded = codec.encode(payload)
    return Task(
        task_id=f"{family.name}-{ids.stable_hash(BENCHMARK, encoded)}",
        benchmark=BENCHMARK,
        goal=goal_text(family, goal),
        goal_type=family.name,
        payload=encoded,
        max_steps=MAX_STEPS,
        provenance=Provenance.SELF_MADE,
    )


def world_of(task: Task) -> World:
    """The grounded world of `task`; equal payloads share one.

    Raises:
        ConfigError: the payload is not one of this benchmark, or is damaged.
    """
    try:
        return _world(codec.encode_json(_payload(task)))
    except ConfigError as error:
        raise ConfigError(
            f"benchmark pddl: starting task '{task.task_id}': {error}; play tasks of the benchmark's own list only"
        ) from error


def reference_plan(task: Task) -> Sequence[str]:
    """The constructive plan of the full goal, cut where the task's goal is true.

    Raises:
        ConfigError: as in `world_of`.
        InvariantError: the plan does not reach the goal.
    """
    payload, world = _payload(task), world_of(task)
    drawn = Drawn(objects=payload.objects, init=frozenset(payload.init), goal=payload.full_goal)
    actions = FAMILIES[payload.domain].plan(drawn)
    for number, state in enumerate(_states(world, actions)):
        if strips.holds(world.problem.goal, state):
            return actions[:number]
    raise InvariantError(f"pddl: the reference plan of task {task.task_id} does not reach its goal '{task.goal}'")


def _payload(task: Task) -> Payload:
    try:
        payload = codec.decode(Payload, task.payload, "payload")
    except codec.CodecError as error:
        raise ConfigError(str(error)) from error
    if payload.schema_version != SCHEMA_VERSION or payload.domain not in FAMILIES:
        raise ConfigError(
            f"payload version {payload.schema_version} with domain '{payload.domain}'; "
            f"this memcon plays version {SCHEMA_VERSION} of {', '.join(FAMILIES)}"
        )
    return payload


@lru_cache(maxsize=512)
def _world(text: str) -> World:
    payload = codec.decode_json(Payload, text)
    init = frozenset(payload.init)
    return _open(FAMILIES[payload.domain], payload.objects, init, payload.goal)


def _open(family: Family, objects: Mapping[str, str], init: State, goal: Sequence[Fact]) -> World:
    domain = read_domain(__package__, f"domains/{family.name}.pddl")
    problem = strips.Problem(objects=objects, init=init, goal=(frozenset(goal),))
    return open_world(domain, problem, lambda facts: FamilyNarrator(family, facts, init))


def _states(world: World, actions: Sequence[str]) -> list[State]:
    """States along `actions`, the initial one first."""
    states = [world.problem.init]
    for text in actions:
        chosen = [action for action in world.by_text.get(text, ()) if action.preconditions <= states[-1]]
        if not chosen:
            raise InvariantError(f"pddl: reference plan: '{text}' cannot be done at step {len(states)}")
        states.append(strips.apply(chosen[0], states[-1]))
    return states


def _first_reached(family: Family, drawn: Drawn, depth: int) -> list[Fact]:
    """Shown facts that the reference plan makes true at step `depth` (1-based) and never before."""
    states = _states(_open(family, drawn.objects, drawn.init, drawn.goal), family.plan(drawn))
    if depth >= len(states):
        raise InvariantError(
            f"pddl: {family.name}: rung at step {depth} of a reference plan of {len(states) - 1} steps"
        )
    before = frozenset(itertools.chain.from_iterable(states[:depth]))
    facts = [fact for fact in sorted(states[depth] - before) if fact_text(family, fact)]
    if not facts:
        raise InvariantError(f"pddl: {family.name}: no shown fact is new at step {depth} of the reference plan")
    return facts
