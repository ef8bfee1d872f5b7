"""A household task as stored: a room, what lies where, and the goal; and the STRIPS problem that it stands for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from memcon.errors import ConfigError
from memcon_workers.benchmarks.household.goals import GOAL_TYPES
from memcon_workers.benchmarks.household.things import ENCLOSED, ITEMS, LAMP, TOOLS, kind_of
from memcon_workers.benchmarks.strips import Fact, Goal, Problem

__all__ = ["MIDDLE", "SCHEMA_VERSION", "Room", "problem_of"]

SCHEMA_VERSION = 1
MIDDLE = "middle"
# What the changing goal types leave behind.
RESULTS: Mapping[str, str] = {"clean": "clean", "heat": "hot", "cool": "cool"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Payload of a household task."""

    schema_version: int
    goal_type: str
    room: str
    # Item kind of the goal; its receptacle kind, or the lamp kind for `examine`.
    goal_item: str
    goal_place: str
    # Receptacle -> items and lamps in it at the start, all in the order of showing. Doors are closed.
    contents: Mapping[str, tuple[str, ...]]

    def named(self, kind: str) -> list[str]:
        """Instances of an item or lamp kind."""
        return [name for names in self.contents.values() for name in names if kind_of(name) == kind]

    def receptacles(self, kind: str) -> list[str]:
        """Receptacles of a kind."""
        return [name for name in self.contents if kind_of(name) == kind]

    def place_of(self, thing: str) -> str:
        """The receptacle where `thing` is at the start."""
        return next(place for place, names in self.contents.items() if thing in names)


def problem_of(room: Room) -> Problem:
    """The STRIPS problem of `room`.

    Raises:
        ConfigError: unknown version, goal type or item kind, a thing in two places, or a goal that nothing can meet.
    """
    if room.schema_version != SCHEMA_VERSION or room.goal_type not in GOAL_TYPES:
        raise ConfigError(
            f"payload version {room.schema_version} with goal type '{room.goal_type}'; "
            f"this memcon plays version {SCHEMA_VERSION} of {', '.join(GOAL_TYPES)}"
        )
    tools = set(TOOLS.values())
    objects = {name: kind_of(name) if kind_of(name) in tools else "receptacle" for name in room.contents}
    init: set[Fact] = {("robot-at", MIDDLE), ("hand-empty",)}
    for receptacle, things in room.contents.items():
        closed = kind_of(receptacle) in ENCLOSED
        init |= {("closed", receptacle), ("openable", receptacle)} if closed else {("open", receptacle)}
        for thing in things:
            if thing in objects:
                raise ConfigError(f"payload has '{thing}' in two places")
            is_lamp = kind_of(thing) == LAMP
            objects[thing] = "lamp" if is_lamp else "item"
            init |= (
                {("stands-at", thing, receptacle), ("unlit", thing)}
                if is_lamp
                else _item_facts(thing, receptacle, room)
            )
    return Problem(objects=objects, init=frozenset(init), goal=_goal(room))


def _item_facts(item: str, receptacle: str, room: Room) -> set[Fact]:
    kind = ITEMS.get(kind_of(item))
    if kind is None:
        raise ConfigError(f"payload names the unknown item '{item}'; known kinds: {', '.join(sorted(ITEMS))}")
    able = {"clean": "cleanable", "heat": "heatable", "cool": "coolable"}
    facts: set[Fact] = {("in", item, receptacle), ("dirty", item), ("not-hot", item), ("not-cool", item)}
    facts |= {("fits", item, place) for place in room.contents if kind_of(place) in kind.fits}
    return facts | {(able[change], item) for change in kind.changes}


def _goal(room: Room) -> Goal:
    """One conjunction for each choice of instances, as the goal sentence leaves them open."""
    items = room.named(room.goal_item)
    goal: list[frozenset[Fact]] = []
    if room.goal_type == "examine":
        for item, lamp in itertools.product(items, room.named(room.goal_place)):
            goal.append(frozenset({("holding", item), ("lit", lamp), ("robot-at", room.place_of(lamp))}))
    for place in room.receptacles(room.goal_place):
        if room.goal_type == "puttwo":
            goal += [
                frozenset({("in", one, place), ("in", other, place)}) for one, other in itertools.combinations(items, 2)
            ]
            continue
        change = RESULTS.get(room.goal_type)
        for item in items:
            goal.append(frozenset({("in", item, place), *([(change, item)] if change else [])}))
    if not goal:
        raise ConfigError(
            f"no choice of things in the room meets the payload's goal "
            f"({room.goal_type}, {room.goal_item}, {room.goal_place})"
        )
    return tuple(goal)
