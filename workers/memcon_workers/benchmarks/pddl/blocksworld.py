"""Blocksworld: random tower partitions, rebuilt from the table up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from memcon.seeds import Generator
from memcon_workers.benchmarks.pddl.family import Drawn, FactText, Family, Rung, numbered, pairs
from memcon_workers.benchmarks.strips import Fact

__all__ = ["BLOCKSWORLD"]


def _towers(generator: Generator, blocks: Sequence[str]) -> list[list[str]]:
    """A random partition into towers, each from bottom to top."""
    shuffled = generator.sample(blocks, len(blocks))
    towers: list[list[str]] = []
    for block in shuffled:
        place = generator.randrange(len(towers) + 1)
        if place == len(towers):
            towers.append([block])
        else:
            towers[place].append(block)
    return towers


def _relations(towers: Sequence[Sequence[str]]) -> list[Fact]:
    return [("on", upper, lower) for tower in towers for lower, upper in pairwise(tower)]


def draw(generator: Generator, size: int) -> Drawn:
    """`size` blocks in towers; the goal is another partition with at least one tower of two, not true at the start."""
    blocks = numbered("block", size)
    start = _towers(generator, blocks)
    init = {("arm-empty",), *_relations(start)}
    init |= {("on-table", tower[0]) for tower in start} | {("clear", tower[-1]) for tower in start}
    goal: list[Fact] = []
    while set(goal) <= init:
        goal = _relations(_towers(generator, blocks))
    return Drawn(objects=dict.fromkeys(blocks, "block"), init=frozenset(init), goal=tuple(goal))


def plan(drawn: Drawn) -> Sequence[str]:
    """Unstack every block that is not in its final place, then build the goal towers bottom up."""
    below = pairs(drawn.init, "on")
    wanted = pairs(frozenset(drawn.goal), "on")
    settled = {block for block in drawn.objects if _is_settled(block, below, wanted)}
    actions: list[str] = []
    while movable := [block for block in below if block not in settled and block not in below.values()]:
        lower = below.pop(movable[0])
        actions += [f"unstack {movable[0]} from {lower}", f"put down {movable[0]}"]
    while ready := [
        upper for upper, lower in wanted.items() if upper not in settled and _is_built(lower, wanted, settled)
    ]:
        actions += [f"pick up {ready[0]}", f"stack {ready[0]} on {wanted[ready[0]]}"]
        settled.add(ready[0])
    return actions


def _is_settled(block: str, below: dict[str, str], wanted: dict[str, str]) -> bool:
    """`block` and all under it are where the goal wants them."""
    while below.get(block) == wanted.get(block):
        if block not in below:
            return True
        block = below[block]
    return False


def _is_built(block: str, wanted: dict[str, str], settled: set[str]) -> bool:
    """A block can be built on: it stays on the table, or is in its place."""
    return block not in wanted or block in settled


BLOCKSWORLD = Family(
    name="blocksworld",
    purpose="Rearrange the blocks",
    actions={
        "pick-up": "pick up {0}",
        "put-down": "put down {0}",
        "stack": "stack {0} on {1}",
        "unstack": "unstack {0} from {1}",
    },
    facts=(
        FactText(predicate="on", template="the {0} is on the {1}"),
        FactText(predicate="on-table", template="the {0} is on the table"),
        FactText(predicate="clear", template="the {0} is clear"),
        FactText(predicate="holding", template="the arm holds the {0}"),
        FactText(predicate="arm-empty", template="the arm is empty"),
    ),
    kinds=("block",),
    takes=("pick up", "unstack"),
    releases=("put down", "stack"),
    draw=draw,
    plan=plan,
    ladder=(Rung(size=4), Rung(size=5), Rung(size=6)),
    sizes=(4, 5, 6, 7),
)
