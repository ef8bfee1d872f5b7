"""What a planning domain is made of here: a PDDL file, its wording, a generator and a reference planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from memcon.seeds import Generator
from memcon_workers.benchmarks.strips import Fact

__all__ = ["Drawn", "FactText", "Family", "Rung", "numbered", "pairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactText:
    """How a fact reads. A predicate without one is never shown, being the complement of a shown one."""

    predicate: str
    template: str
    # "opening": it never changes, so one showing is enough.
    shown: Literal["always", "opening"] = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A generated problem with its full goal; objects are named as agents read them ("ball 1")."""

    objects: Mapping[str, str]
    init: frozenset[Fact]
    # In the order of the goal sentence.
    goal: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step of the ladder: a problem size, and the reference-plan step whose new fact is the goal."""

    size: int
    # 1-based; None = the full goal.
    depth: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One planning domain."""

    name: str
    # Start of every goal sentence; shares no verb with an action, so that it gives no step away.
    purpose: str
    # Schema -> text with the schema's arguments by place.
    actions: Mapping[str, str]
    facts: tuple[FactText, ...]
    # Words whose numbered instances are objects.
    kinds: tuple[str, ...]
    # Regular expressions of what stands before the object that an action takes, or lets go (MC-5).
    takes: tuple[str, ...]
    releases: tuple[str, ...]
    # ... and before the place that it visits (MC-6).
    visits: tuple[str, ...] = ()
    draw: Callable[[Generator, int], Drawn]
    # Action texts that reach the full goal of what `draw` gave.
    plan: Callable[[Drawn], Sequence[str]]
    # Rungs of the ladder, taken in turn; sizes of full problems, taken in turn.
    ladder: tuple[Rung, ...]
    sizes: tuple[int, ...]


def numbered(kind: str, count: int) -> list[str]:
    """Names "kind 1" .. "kind count"; at most 9, so that no name is the start of another one."""
    return [f"{kind} {number}" for number in range(1, count + 1)]


def pairs(facts: frozenset[Fact], predicate: str) -> dict[str, str]:
    """First term -> second term of the binary `predicate`, in the order of the first."""
    return {fact[1]: fact[2] for fact in sorted(facts) if fact[0] == predicate}
