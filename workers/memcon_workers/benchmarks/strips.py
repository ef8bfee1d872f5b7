"""A small STRIPS core: typed objects, conjunctive positive preconditions, add and delete lists (spec BE-2).

Owns grounding and the meaning of an action; knows no file format and no text. A state is a frozenset of facts.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from memcon.errors import ConfigError

__all__ = [
    "Domain",
    "Fact",
    "Goal",
    "GroundAction",
    "Problem",
    "Schema",
    "State",
    "apply",
    "check",
    "ground",
    "holds",
    "reachable",
    "share",
]

# Predicate, then its terms: ("on", "block 1", "block 2"). In a schema a term that starts with "?" is a variable.
Fact: TypeAlias = tuple[str, ...]
State: TypeAlias = frozenset[Fact]
# One of these conjunctions must hold.
Goal: TypeAlias = tuple[frozenset[Fact], ...]

ROOT_TYPE = "object"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """An action with variables."""

    name: str
    # (variable, type), in the order of the arguments.
    parameters: tuple[tuple[str, str], ...]
    preconditions: tuple[Fact, ...]
    add: tuple[Fact, ...]
    delete: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Types, predicates and actions of a family of problems."""

    name: str
    # Type -> parent type; `object` is the root.
    types: Mapping[str, str]
    # Constant -> type.
    constants: Mapping[str, str]
    # Predicate -> types of its terms.
    predicates: Mapping[str, tuple[str, ...]]
    schemas: tuple[Schema, ...]

    def is_a(self, kind: str, ancestor: str) -> bool:
        """Whether `kind` equals `ancestor` or lies below it."""
        while kind not in {ancestor, ROOT_TYPE}:
            kind = self.types.get(kind, ROOT_TYPE)
        return kind == ancestor


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem of a domain."""

    # Object -> type, without the domain's constants.
    objects: Mapping[str, str]
    init: State
    goal: Goal


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundAction:
    """An action without variables."""

    name: str
    arguments: tuple[str, ...]
    preconditions: frozenset[Fact]
    add: frozenset[Fact]
    # Never overlaps `add`: a fact both deleted and added stays true.
    delete: frozenset[Fact]


def apply(action: GroundAction, state: State) -> State:
    """The state after an applicable `action`."""
    return (state - action.delete) | action.add


def holds(goal: Goal, state: State) -> bool:
    """Whether one of the goal's conjunctions is true."""
    return any(conjunction <= state for conjunction in goal)


def share(goal: Goal, state: State) -> float:
    """Largest share of true literals over the goal's conjunctions, 0..1."""
    return max(len(conjunction & state) / len(conjunction) for conjunction in goal)


def check(domain: Domain, problem: Problem) -> None:
    """Refuse a problem that does not fit its domain.

    Raises:
        ConfigError: unknown type, predicate or object, or a term of a wrong type; names the fact.
    """
    for name, kind in problem.objects.items():
        if kind != ROOT_TYPE and kind not in domain.types:
            raise ConfigError(
                f"domain {domain.name}: object '{name}' has unknown type '{kind}'; allowed: {', '.join(domain.types)}"
            )
    if not problem.goal or not all(problem.goal):
        raise ConfigError(f"domain {domain.name}: a problem needs a goal with at least one fact")
    objects = {**domain.constants, **problem.objects}
    for fact in itertools.chain(sorted(problem.init), *map(sorted, problem.goal)):
        _check_fact(domain, objects, fact)


def _check_fact(domain: Domain, objects: Mapping[str, str], fact: Fact) -> None:
    kinds = domain.predicates.get(fact[0]) if fact else None
    if kinds is None or len(kinds) != len(fact) - 1:
        known = ", ".join(f"{name}/{len(terms)}" for name, terms in domain.predicates.items())
        raise ConfigError(f"domain {domain.name}: {fact} is no fact of it; predicates and arities: {known}")
    for term, kind in zip(fact[1:], kinds, strict=True):
        if term not in objects or not domain.is_a(objects[term], kind):
            raise ConfigError(f"domain {domain.name}: {fact}: '{term}' is no object of type {kind}")


def ground(domain: Domain, problem: Problem) -> tuple[GroundAction, ...]:
    """All actions whose preconditions are reachable when nothing is ever deleted, in a fixed order.

    Actions that cannot change any state (a move to the place where one is) are left out. The order is by schema, then
    by the objects' order in the problem.
    """
    actions = _Grounder(domain, problem).run()
    order = {name: place for place, name in enumerate(itertools.chain(domain.constants, problem.objects))}
    schema_order = {schema.name: place for place, schema in enumerate(domain.schemas)}
    return tuple(sorted(actions, key=lambda a: (schema_order[a.name], tuple(order[name] for name in a.arguments))))


def reachable(problem: Problem, actions: Iterable[GroundAction]) -> tuple[Fact, ...]:
    """All facts that can come true, by predicate and then by the objects' order in the problem."""
    order = {name: place for place, name in enumerate(problem.objects)}
    facts = problem.init.union(*(action.add for action in actions))
    # Constants come before the objects, in the order of their names.
    return tuple(sorted(facts, key=lambda fact: (fact[0], tuple((order.get(term, -1), term) for term in fact[1:]))))


class _Grounder:
    """Semi-naive fixpoint: each newly reached fact is joined once with all facts reached before it."""

    def __init__(self, domain: Domain, problem: Problem) -> None:
        self._domain = domain
        self._kinds = {**domain.constants, **problem.objects}
        # One object a fact, so that set operations compare by identity.
        self._interned: dict[Fact, Fact] = {}
        self._queue: deque[Fact] = deque()
        # By predicate, and by predicate + place + term.
        self._index: defaultdict[tuple[str | int, ...], list[Fact]] = defaultdict(list)
        self._found: dict[tuple[str, tuple[str, ...]], GroundAction] = {}
        for fact in sorted(problem.init):
            self._intern(fact)

    def run(self) -> list[GroundAction]:
        triggers: defaultdict[str, list[tuple[Schema, int]]] = defaultdict(list)
        for schema in self._domain.schemas:
            for place, literal in enumerate(schema.preconditions):
                triggers[literal[0]].append((schema, place))
            if not schema.preconditions:
                self._emit(schema, {})
        while self._queue:
            fact = self._queue.popleft()
            self._index[(fact[0],)].append(fact)
            for place, term in enumerate(fact[1:], start=1):
                self._index[(fact[0], place, term)].append(fact)
            for schema, place in triggers.get(fact[0], ()):
                binding = self._match(schema, schema.preconditions[place], fact, {})
                if binding is not None:
                    self._join(schema, schema.preconditions[:place] + schema.preconditions[place + 1 :], binding)
        return [action for action in self._found.values() if action.delete or not action.add <= action.preconditions]

    def _join(self, schema: Schema, literals: tuple[Fact, ...], binding: dict[str, str]) -> None:
        if not literals:
            self._emit(schema, binding)
            return
        # The most bound literal first keeps the join small.
        literal = max(literals, key=lambda item: sum(not term.startswith("?") or term in binding for term in item[1:]))
        rest = tuple(item for item in literals if item is not literal)
        for fact in tuple(self._candidates(literal, binding)):
            extended = self._match(schema, literal, fact, binding)
            if extended is not None:
                self._join(schema, rest, extended)

    def _candidates(self, literal: Fact, binding: Mapping[str, str]) -> list[Fact]:
        for place, term in enumerate(literal[1:], start=1):
            value = binding.get(term, term)
            if not value.startswith("?"):
                return self._index.get((literal[0], place, value), [])
        return self._index.get((literal[0],), [])

    def _match(self, schema: Schema, literal: Fact, fact: Fact, binding: Mapping[str, str]) -> dict[str, str] | None:
        extended = dict(binding)
        kinds = dict(schema.parameters)
        for term, value in zip(literal[1:], fact[1:], strict=True):
            if not term.startswith("?"):
                if term != value:
                    return None
            elif extended.setdefault(term, value) != value or not self._domain.is_a(self._kinds[value], kinds[term]):
                return None
        return extended

    def _emit(self, schema: Schema, binding: Mapping[str, str]) -> None:
        for full in self._completions(schema, binding):
            arguments = tuple(full[variable] for variable, _ in schema.parameters)
            if (schema.name, arguments) in self._found:
                continue
            add = frozenset(self._facts(schema.add, full))
            self._found[schema.name, arguments] = GroundAction(
                name=schema.name,
                arguments=arguments,
                preconditions=frozenset(self._facts(schema.preconditions, full)),
                add=add,
                delete=frozenset(self._facts(schema.delete, full, reached=False)) - add,
            )

    def _completions(self, schema: Schema, binding: Mapping[str, str]) -> Iterator[dict[str, str]]:
        free = [(variable, kind) for variable, kind in schema.parameters if variable not in binding]
        pools = [[name for name, own in self._kinds.items() if self._domain.is_a(own, kind)] for _, kind in free]
        for values in itertools.product(*pools):
            yield {**binding, **{variable: value for (variable, _), value in zip(free, values, strict=True)}}

    def _facts(self, literals: Iterable[Fact], binding: Mapping[str, str], *, reached: bool = True) -> Iterator[Fact]:
        for literal in literals:
            fact = (literal[0], *(binding.get(term, term) for term in literal[1:]))
            yield self._intern(fact) if reached else self._interned.get(fact, fact)

    def _intern(self, fact: Fact) -> Fact:
        if fact not in self._interned:
            self._interned[fact] = fact
            self._queue.append(fact)
        return self._interned[fact]
