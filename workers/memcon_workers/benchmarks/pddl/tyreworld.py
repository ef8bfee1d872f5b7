"""Tyreworld: wheels changed with wrench, jack and pump from the boot."""

from __future__ import annotations

from collections.abc import Sequence

from memcon.seeds import Generator
from memcon_workers.benchmarks.pddl.family import Drawn, FactText, Family, Rung, numbered
from memcon_workers.benchmarks.strips import Fact

__all__ = ["TYREWORLD"]

TOOLS = ("wrench 1", "jack 1", "pump 1")
BOOT = "boot 1"


def draw(generator: Generator, size: int) -> Drawn:
    """`size` wheels to change on a car with one hub more; a damaged spare wheel may lie in the boot.

    With one wheel to change the boot is to be put in order again, old wheel included.
    """
    count = size + 1
    hubs = generator.sample(numbered("hub", count), count)
    nuts = generator.sample(numbered("nut", count), count)
    num_wheels = count + size + generator.randint(0, 1)
    wheels = generator.sample(numbered("wheel", num_wheels), num_wheels)
    # The last hub's wheel is in order; the wheels after the mounted ones lie in the boot, sound ones first.
    mounted, spare = wheels[:count], wheels[count:]
    new = spare[:size]
    init: set[Fact] = {("closed", BOOT), *(("in", thing, BOOT) for thing in (*TOOLS, *spare))}
    init |= {(state, hub) for hub in hubs for state in ("fastened", "grounded")}
    init |= {("tight", nut, hub) for nut, hub in zip(nuts, hubs, strict=True)}
    init |= {("on", wheel, hub) for wheel, hub in zip(mounted, hubs, strict=True)}
    init |= {("inflated", mounted[-1])} | {("flat", wheel) for wheel in wheels if wheel != mounted[-1]}
    init |= {("intact", wheel) for wheel in (mounted[-1], *new)}
    goal: list[Fact] = []
    for hub, nut, wheel in zip(hubs[:size], nuts[:size], new, strict=True):
        goal += [("on", wheel, hub), ("inflated", wheel), ("tight", nut, hub)]
    if size == 1:
        goal += [("in", thing, BOOT) for thing in (mounted[0], *TOOLS)] + [("closed", BOOT)]
    objects = {name: name.split()[0] for name in (BOOT, *sorted(hubs), *sorted(nuts), *sorted(wheels), *TOOLS)}
    return Drawn(objects=objects, init=frozenset(init), goal=tuple(goal))


def plan(drawn: Drawn) -> Sequence[str]:
    """Fetch the tools, change the wheels hub by hub, then stow what the goal wants stowed."""
    old = {fact[2]: fact[1] for fact in drawn.init if fact[0] == "on"}
    new = {fact[2]: fact[1] for fact in drawn.goal if fact[0] == "on"}
    nuts = {fact[2]: fact[1] for fact in drawn.init if fact[0] == "tight"}
    actions = [f"open {BOOT}", *(f"fetch {tool} from {BOOT}" for tool in TOOLS)]
    for hub, wheel in new.items():
        nut = nuts[hub]
        actions += [
            f"fetch {wheel} from {BOOT}",
            f"inflate {wheel} with pump 1",
            f"loosen {nut} on {hub} with wrench 1",
            f"raise {hub} with jack 1",
            f"unscrew {nut} from {hub} with wrench 1",
            f"remove {old[hub]} from {hub}",
            f"mount {wheel} on {hub}",
            f"screw {nut} onto {hub} with wrench 1",
            f"lower {hub} with jack 1",
            f"tighten {nut} on {hub} with wrench 1",
        ]
    actions += [f"stow {fact[1]} in {BOOT}" for fact in drawn.goal if fact[0] == "in"]
    return [*actions, f"close {BOOT}"] if ("closed", BOOT) in drawn.goal else actions


TYREWORLD = Family(
    name="tyreworld",
    purpose="Get the car ready to drive",
    actions={
        "open": "open {0}",
        "close": "close {0}",
        "fetch": "fetch {0} from {1}",
        "stow": "stow {0} in {1}",
        "loosen": "loosen {0} on {1} with {2}",
        "tighten": "tighten {0} on {1} with {2}",
        "raise": "raise {0} with {1}",
        "lower": "lower {0} with {1}",
        "unscrew": "unscrew {0} from {1} with {2}",
        "screw": "screw {0} onto {1} with {2}",
        "remove": "remove {0} from {1}",
        "mount": "mount {0} on {1}",
        "inflate": "inflate {0} with {1}",
    },
    facts=(
        FactText(predicate="intact", template="the {0} is intact", shown="opening"),
        FactText(predicate="open", template="the {0} is open"),
        FactText(predicate="closed", template="the {0} is closed"),
        FactText(predicate="in", template="the {0} is in the {1}"),
        FactText(predicate="have", template="you have the {0}"),
        FactText(predicate="tight", template="the {0} is tight on the {1}"),
        FactText(predicate="loose", template="the {0} is loose on the {1}"),
        FactText(predicate="on", template="the {0} is on the {1}"),
        FactText(predicate="bare", template="the {0} is bare"),
        FactText(predicate="grounded", template="the {0} is on the ground"),
        FactText(predicate="raised", template="the {0} is jacked up"),
        FactText(predicate="flat", template="the {0} is flat"),
        FactText(predicate="inflated", template="the {0} is inflated"),
    ),
    kinds=("boot", "hub", "jack", "nut", "pump", "wheel", "wrench"),
    takes=("fetch", "unscrew", "remove", r"lower hub \d+ with"),
    releases=("stow", "screw", "mount", r"raise hub \d+ with"),
    draw=draw,
    plan=plan,
    ladder=(Rung(size=1, depth=6), Rung(size=2, depth=11), Rung(size=2, depth=7), Rung(size=1, depth=10)),
    sizes=(1, 2),
)
