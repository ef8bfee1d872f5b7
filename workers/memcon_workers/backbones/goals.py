"""A goal sentence as the imitator reads it: clauses, which of them are still open, and the role of a name in them.

Roles are read with the clauses that are open at that moment: an observation that states a clause closes it
(facts on the offline signal, sections 4 and 5.2; without that a solved sub-goal keeps attracting its things).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import combinations

from memcon_workers.backbones.names import Name, ParsedAction, names_in, plain_words

__all__ = [
    "Goal",
    "OpenGoal",
    "Role",
    "Signature",
    "Together",
    "cosine",
    "jaccard",
    "open_goal",
    "parse_goal",
    "signature",
]

_SO_THAT = re.compile(r"\bso that\b")
_CLAUSE_END = re.compile(r"[,.](?:\s|$)")
_AND = re.compile(r"^and\s+")


class Role(IntEnum):
    """What a name is to the goal."""

    OTHER = 0
    GOAL = 1
    UNKNOWN = 2


class Together(IntEnum):
    """Whether two names of one action form one goal clause."""

    NO = 0
    YES = 1
    UNKNOWN = 2


@dataclass(frozen=True, slots=True)
class Clause:
    """One part of a goal."""

    text: str
    # Identities in the order of the clause.
    identities: tuple[str, ...]

    def stated_in(self, observation: str) -> bool:
        """The clause stands in `observation` (lower case), as whole words."""
        start = observation.find(self.text)
        while start >= 0:
            end = start + len(self.text)
            if not (observation[start - 1 : start].isalnum() or observation[end : end + 1].isalnum()):
                return True
            start = observation.find(self.text, start + 1)
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """A goal sentence taken apart; equal sentences share one object."""

    text: str
    words: frozenset[str]
    # Word -> count, numbers removed.
    bag: Counter[str]
    clauses: tuple[Clause, ...]
    # The goal names instances, such as "ball 1", and not only kinds of things.
    is_numbered: bool


@dataclass(frozen=True, slots=True, eq=False)
class OpenGoal:
    """A goal with the clauses that are still open; `goal` None: the goal is not known, so no role is."""

    goal: Goal | None
    clauses: tuple[Clause, ...]
    identities: frozenset[str]

    def role(self, name: Name) -> Role:
        """Role of `name`: by instance where the goal names instances, else by kind."""
        if self.goal is None:
            return Role.UNKNOWN
        if not self.goal.is_numbered:
            return Role.GOAL if name.category in self.goal.words else Role.OTHER
        if not name.identity:
            return Role.UNKNOWN
        return Role.GOAL if name.identity in self.identities else Role.OTHER

    def together(self, action: ParsedAction) -> Together:
        """Whether two names of `action` stand in one open clause; two of one kind must keep the clause's order."""
        if len(action.names) < 2:
            return Together.NO
        roles = [self.role(name) for name in action.names]
        if Role.UNKNOWN in roles:
            return Together.UNKNOWN
        goal_names = [name for name, role in zip(action.names, roles, strict=True) if role is Role.GOAL]
        return Together(any(self._form_clause(*pair) for pair in combinations(goal_names, 2)))

    def _form_clause(self, first: Name, second: Name) -> bool:
        if self.goal is None or not self.goal.is_numbered:
            return first.category != second.category
        for clause in self.clauses:
            order = clause.identities
            if first.identity in order and second.identity in order:
                return first.category != second.category or order.index(first.identity) < order.index(second.identity)
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """All that a match of two steps looks at. Interned, so that matches are memoised by identity."""

    skeleton: str
    categories: tuple[str, ...]
    roles: tuple[Role, ...]
    together: Together


@lru_cache(maxsize=4096)
def parse_goal(text: str) -> Goal:
    """The goal sentence `text` taken apart."""
    lowered = " ".join(text.lower().split())
    parts = _SO_THAT.split(lowered, maxsplit=1)
    pieces = _CLAUSE_END.split(parts[1]) if len(parts) > 1 else [lowered.rstrip(" .")]
    texts = [_AND.sub("", piece.strip()) for piece in pieces]
    clauses = tuple(
        Clause(text=piece, identities=tuple(name.identity for name in names_in(piece))) for piece in texts if piece
    )
    bag = Counter(plain_words(lowered))
    return Goal(
        text=lowered,
        words=frozenset(bag),
        bag=bag,
        clauses=clauses,
        is_numbered=any(clause.identities for clause in clauses),
    )


@lru_cache(maxsize=16384)
def open_goal(goal: Goal | None, observation: str) -> OpenGoal:
    """`goal` with the clauses that `observation` does not state."""
    if goal is None:
        return _open(None, ())
    lowered = observation.lower()
    return _open(goal, tuple(clause for clause in goal.clauses if not clause.stated_in(lowered)))


@lru_cache(maxsize=8192)
def _open(goal: Goal | None, clauses: tuple[Clause, ...]) -> OpenGoal:
    identities = frozenset(identity for clause in clauses for identity in clause.identities)
    return OpenGoal(goal=goal, clauses=clauses, identities=identities)


@lru_cache(maxsize=32768)
def signature(goal: OpenGoal, action: ParsedAction) -> Signature:
    """How `action` looks under `goal`."""
    roles = tuple(goal.role(name) for name in action.names)
    return _signature(action.skeleton, action.categories, roles, goal.together(action))


@lru_cache(maxsize=16384)
def _signature(skeleton: str, categories: tuple[str, ...], roles: tuple[Role, ...], together: Together) -> Signature:
    return Signature(skeleton=skeleton, categories=categories, roles=roles, together=together)


def cosine(left: Counter[str], right: Counter[str]) -> float:
    """Cosine of two bags of words; 0 when one is empty."""
    dot = sum(count * right[word] for word, count in left.items() if word in right)
    norm = math.sqrt(sum(n * n for n in left.values()) * sum(n * n for n in right.values()))
    return dot / norm if norm else 0.0


def jaccard(left: Goal, right: Goal) -> float:
    """Share of identical clauses, closed ones included."""
    first, second = {clause.text for clause in left.clauses}, {clause.text for clause in right.clauses}
    union = len(first | second)
    return len(first & second) / union if union else 0.0
