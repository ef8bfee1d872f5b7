"""Reference plans of household tasks by someone who knows where everything is; they show that a task can be solved."""

from __future__ import annotations

from collections.abc import Sequence

from memcon_workers.benchmarks.household.room import Room
from memcon_workers.benchmarks.household.things import ENCLOSED, TOOLS, kind_of

__all__ = ["plan_of"]


class _Walk:
    """Actions so far, with where the robot is and which doors it has opened."""

    def __init__(self) -> None:
        self.actions: list[str] = []
        self._here = ""
        self._opened: set[str] = set()

    def reach(self, place: str, *, inside: bool = True) -> None:
        """Stand at `place`, its door open when something is to go in or out."""
        if place != self._here:
            self.actions.append(f"go to {place}")
            self._here = place
        if inside and kind_of(place) in ENCLOSED and place not in self._opened:
            self.actions.append(f"open {place}")
            self._opened.add(place)

    def carry(self, item: str, source: str, target: str, *, change: str = "", tool: str = "") -> None:
        """Bring `item` from `source` to `target`, changed at `tool` on the way."""
        self.take(item, source)
        if tool:
            self.reach(tool, inside=False)
            self.actions.append(f"{change} {item} with {tool}")
        self.reach(target)
        self.actions.append(f"move {item} to {target}")

    def take(self, item: str, source: str) -> None:
        """Take `item` at `source`."""
        self.reach(source)
        self.actions.append(f"take {item} from {source}")


def plan_of(room: Room) -> Sequence[str]:
    """Actions that meet the goal of `room` with its first fitting things."""
    walk = _Walk()
    items = room.named(room.goal_item)
    if room.goal_type == "examine":
        lamp = room.named(room.goal_place)[0]
        walk.take(items[0], room.place_of(items[0]))
        walk.reach(room.place_of(lamp), inside=False)
        return [*walk.actions, f"use {lamp}"]
    target = room.receptacles(room.goal_place)[0]
    change = room.goal_type if room.goal_type in TOOLS else ""
    tool = room.receptacles(TOOLS[change])[0] if change else ""
    for item in items[: 2 if room.goal_type == "puttwo" else 1]:
        walk.carry(item, room.place_of(item), target, change=change, tool=tool)
    return walk.actions
