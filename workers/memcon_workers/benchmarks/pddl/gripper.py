"""Gripper: balls carried between rooms, two at a time."""

from __future__ import annotations

from collections.abc import Sequence

from memcon.seeds import Generator
from memcon_workers.benchmarks.pddl.family import Drawn, FactText, Family, Rung, numbered, pairs
from memcon_workers.benchmarks.strips import Fact

__all__ = ["GRIPPER"]

ARMS = ("arm 1", "arm 2")


def draw(generator: Generator, size: int) -> Drawn:
    """`size` balls in two or three rooms, each wanted in another room than its own."""
    rooms = numbered("room", generator.randint(2, 3))
    balls = numbered("ball", size)
    start = {ball: generator.choice(rooms) for ball in balls}
    goal: list[Fact] = [
        ("at", ball, generator.choice([room for room in rooms if room != start[ball]])) for ball in balls
    ]
    init: set[Fact] = {("robot-at", generator.choice(rooms)), *(("free", arm) for arm in ARMS)}
    init |= {("at", ball, room) for ball, room in start.items()}
    objects = {**dict.fromkeys(rooms, "room"), **dict.fromkeys(balls, "ball"), **dict.fromkeys(ARMS, "arm")}
    return Drawn(objects=objects, init=frozenset(init), goal=tuple(goal))


def plan(drawn: Drawn) -> Sequence[str]:
    """Load up to two misplaced balls where the robot is, carry them home, and go on with the next ones."""
    at, wanted = pairs(drawn.init, "at"), pairs(frozenset(drawn.goal), "at")
    here = next(fact[1] for fact in drawn.init if fact[0] == "robot-at")
    actions: list[str] = []
    while left := [ball for ball in wanted if at[ball] != wanted[ball]]:
        source = here if here in {at[ball] for ball in left} else at[left[0]]
        here = _move(actions, here, source)
        load = list(zip([ball for ball in left if at[ball] == source], ARMS, strict=False))
        actions += [f"grab {ball} in {source} with {arm}" for ball, arm in load]
        for ball, arm in load:
            here = _move(actions, here, wanted[ball])
            actions.append(f"drop {ball} in {here} with {arm}")
            at[ball] = here
    return actions


def _move(actions: list[str], here: str, there: str) -> str:
    if here != there:
        actions.append(f"move from {here} to {there}")
    return there


GRIPPER = Family(
    name="gripper",
    purpose="Carry the balls between the rooms",
    actions={
        "move": "move from {0} to {1}",
        "grab": "grab {0} in {1} with {2}",
        "drop": "drop {0} in {1} with {2}",
    },
    facts=(
        FactText(predicate="robot-at", template="the robot is in the {0}"),
        FactText(predicate="at", template="the {0} is at the {1}"),
        FactText(predicate="carries", template="the {0} carries the {1}"),
        FactText(predicate="free", template="the {0} is free"),
    ),
    kinds=("arm", "ball", "room"),
    takes=("grab",),
    releases=("drop",),
    visits=(r"move from room \d+ to",),
    draw=draw,
    plan=plan,
    ladder=(Rung(size=2), Rung(size=3), Rung(size=4)),
    sizes=(3, 4, 5, 6),
)
