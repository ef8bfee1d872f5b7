"""Planning problems in words: goal sentences and observations share their clauses, so that an agent can compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memcon_workers.benchmarks.pddl.family import Family
from memcon_workers.benchmarks.strips import Fact, GroundAction, State

__all__ = ["FamilyNarrator", "fact_text", "goal_text"]

LOOK = "look around"
LIST = "check valid actions"


def fact_text(family: Family, fact: Fact) -> str:
    """The clause of `fact`; "" when it is never shown."""
    found = next((one for one in family.facts if one.predicate == fact[0]), None)
    return found.template.format(*fact[1:]) if found else ""


def goal_text(family: Family, goal: Iterable[Fact]) -> str:
    """The goal sentence: "<purpose> so that <clause>, <clause>."."""
    return f"{family.purpose} so that {', '.join(fact_text(family, fact) for fact in goal)}."


class FamilyNarrator:
    """Tells the whole state, one line a time: "Now <clause>, <clause>."."""

    def __init__(self, family: Family, facts: Sequence[Fact], init: State) -> None:
        """`facts`: all facts that can come true, in the order of showing."""
        place = {one.predicate: number for number, one in enumerate(family.facts)}
        shown = sorted((fact for fact in facts if fact[0] in place), key=lambda fact: place[fact[0]])
        opening = {one.predicate for one in family.facts if one.shown == "opening"}
        self._family = family
        self._clauses = [(fact, fact_text(family, fact)) for fact in shown if fact[0] not in opening]
        self._background = [fact_text(family, fact) for fact in shown if fact[0] in opening and fact in init]

    def action(self, action: GroundAction) -> str:
        """The family's wording of `action`."""
        return self._family.actions[action.name].format(*action.arguments)

    def opening(self, state: State) -> str:
        """What never changes, then the state."""
        background = f"{_sentence('Always', self._background)} " if self._background else ""
        return background + self._told(state)

    def after(self, action: GroundAction, state: State) -> str:
        """The whole state."""
        del action
        return self._told(state)

    def questions(self, state: State) -> Sequence[str]:
        """None: "look around" and "check valid actions" are always answered, and not listed."""
        del state
        return ()

    def answer(self, text: str, state: State, choices: Sequence[str]) -> str | None:
        """The state or the list of valid actions."""
        if text == LOOK:
            return self.opening(state)
        return f"Valid actions: {'; '.join(choices)}." if text == LIST else None

    def canonical(self, text: str) -> str:
        """`text` without a final full stop."""
        return text.removesuffix(".")

    def _told(self, state: State) -> str:
        return _sentence("Now", [clause for fact, clause in self._clauses if fact in state])


def _sentence(start: str, clauses: Sequence[str]) -> str:
    return f"{start} {', '.join(clauses)}."
