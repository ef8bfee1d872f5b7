"""Barman: cocktails mixed in one shaker and served in shots, with two hands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from memcon.seeds import Generator
from memcon_workers.benchmarks.pddl.family import Drawn, FactText, Family, Rung, numbered
from memcon_workers.benchmarks.strips import Fact

__all__ = ["BARMAN"]

HANDS = ("hand 1", "hand 2")
MEASURES = ("measure 0", "measure 1", "measure 2")


def draw(generator: Generator, size: int) -> Drawn:
    """`size` cocktails, each wanted in a shot of its own; one or two shots more stand ready."""
    ingredients = numbered("ingredient", generator.randint(3, 4))
    cocktails, shots, shakers = (
        numbered("cocktail", size),
        numbered("shot", size + generator.randint(1, 2)),
        numbered("shaker", 1),
    )
    vessels = shots + shakers
    couples = [(a, b) for a in ingredients for b in ingredients if a < b]
    recipes = [generator.sample(couple, 2) for couple in generator.sample(couples, size)]
    init: set[Fact] = {
        ("recipe", cocktail, first, second) for cocktail, (first, second) in zip(cocktails, recipes, strict=True)
    }
    init |= {("free", hand) for hand in HANDS}
    init |= {(state, vessel) for vessel in vessels for state in ("on-table", "empty", "clean")}
    init |= {("bottom", MEASURES[0]), ("filled-to", shakers[0], MEASURES[0])}
    init |= {("next", lower, higher) for lower, higher in pairwise(MEASURES)}
    objects = {name: name.split()[0] for name in (*HANDS, *ingredients, *cocktails, *vessels, *MEASURES)}
    served = zip(generator.sample(shots, size), cocktails, strict=True)
    return Drawn(
        objects=objects, init=frozenset(init), goal=tuple(("contains", shot, cocktail) for shot, cocktail in served)
    )


def plan(drawn: Drawn) -> Sequence[str]:
    """Mix the cocktails one after another with hand 1, each through the very shot that it is served in."""
    recipes = {fact[1]: fact[2:] for fact in drawn.init if fact[0] == "recipe"}
    actions: list[str] = []
    for number, (_, shot, cocktail) in enumerate(drawn.goal):
        if number:
            actions += ["drain shaker 1 by hand 1", "rinse shaker 1 by hand 1", "set down shaker 1 from hand 1"]
        actions.append(f"grasp {shot} with hand 1")
        for ingredient in recipes[cocktail]:
            actions += [
                f"fill {shot} with {ingredient} by hand 1",
                f"pour {ingredient} from {shot} into shaker 1 by hand 1",
                f"rinse {shot} by hand 1",
            ]
        actions += [f"set down {shot} from hand 1", "grasp shaker 1 with hand 1"]
        actions += [f"shake {cocktail} in shaker 1 by hand 1", f"serve {cocktail} from shaker 1 in {shot} by hand 1"]
    return actions


BARMAN = Family(
    name="barman",
    purpose="Mix drinks at the bar",
    actions={
        "grasp": "grasp {0} with {1}",
        "set-down": "set down {0} from {1}",
        "fill": "fill {0} with {1} by {2}",
        "refill": "fill {0} with {1} by {2}",
        "empty-shot": "empty {0} of {1} by {2}",
        "rinse-shot": "rinse {0} by {2}",
        "pour-first": "pour {1} from {0} into {2} by {3}",
        "pour-more": "pour {1} from {0} into {2} by {3}",
        "shake": "shake {0} in {3} by {4}",
        "serve": "serve {0} from {1} in {2} by {3}",
        "drain": "drain {0} by {2}",
        "rinse-shaker": "rinse {0} by {1}",
    },
    facts=(
        FactText(predicate="recipe", template="the {0} is mixed from the {1} and the {2}", shown="opening"),
        FactText(predicate="holding", template="the {0} holds the {1}"),
        FactText(predicate="free", template="the {0} is free"),
        FactText(predicate="on-table", template="the {0} stands on the bar"),
        FactText(predicate="contains", template="the {0} contains the {1}"),
        FactText(predicate="empty", template="the {0} is empty"),
        FactText(predicate="clean", template="the {0} is clean"),
        FactText(predicate="used", template="the {0} was filled with the {1}"),
        FactText(predicate="shaken", template="the {0} is shaken"),
    ),
    kinds=("cocktail", "hand", "ingredient", "shaker", "shot"),
    takes=("grasp",),
    releases=("set down",),
    draw=draw,
    plan=plan,
    ladder=(Rung(size=1, depth=10), Rung(size=2, depth=3), Rung(size=2, depth=10)),
    sizes=(1, 2),
)
