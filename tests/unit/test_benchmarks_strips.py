"""The STRIPS core: grounding, application, goals and the checks of problems and domain files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from memcon.errors import ConfigError, MissingExtraError
from memcon_workers.benchmarks import domain_file, strips
from memcon_workers.benchmarks.domain_file import read_domain
from memcon_workers.benchmarks.strips import Domain, Fact, Problem, Schema

DOMAIN = Domain(
    name="walk",
    types={"room": "place", "place": "object", "key": "object"},
    constants={"yard": "place"},
    predicates={"at": ("place",), "door": ("place", "place"), "key-in": ("key", "room"), "have": ("key",)},
    schemas=(
        Schema(
            name="walk",
            parameters=(("?from", "place"), ("?to", "place")),
            preconditions=(("at", "?from"), ("door", "?from", "?to")),
            add=(("at", "?to"),),
            delete=(("at", "?from"),),
        ),
        Schema(
            name="take",
            parameters=(("?key", "key"), ("?room", "room")),
            preconditions=(("at", "?room"), ("key-in", "?key", "?room")),
            add=(("have", "?key"),),
            delete=(("key-in", "?key", "?room"),),
        ),
    ),
)
OBJECTS = {"hall": "room", "attic": "room", "cellar": "room", "key 1": "key"}
INIT: frozenset[Fact] = frozenset(
    {
        ("at", "yard"),
        ("door", "yard", "hall"),
        ("door", "hall", "attic"),
        ("door", "hall", "hall"),
        ("key-in", "key 1", "attic"),
    }
)
GOAL = (frozenset({("have", "key 1"), ("at", "hall")}),)


def a_problem(**changes: object) -> Problem:
    fields: dict[str, object] = {"objects": OBJECTS, "init": INIT, "goal": GOAL, **changes}
    return Problem(**fields)  # type: ignore[arg-type]


def texts(problem: Problem) -> list[str]:
    return [" ".join((action.name, *action.arguments)) for action in strips.ground(DOMAIN, problem)]


def test_only_reachable_actions_are_grounded_in_schema_then_object_order() -> None:
    assert texts(a_problem()) == ["walk yard hall", "walk hall attic", "take key 1 attic"]


def test_an_action_that_cannot_change_anything_is_left_out() -> None:
    # the door from the hall to the hall is open, and leads nowhere
    assert "walk hall hall" not in texts(a_problem())


def test_the_order_of_actions_does_not_hang_on_the_order_of_facts() -> None:
    rebuilt = frozenset(sorted(INIT, reverse=True))
    assert texts(a_problem(init=rebuilt)) == texts(a_problem())


def test_a_parameter_that_no_precondition_binds_runs_over_its_type() -> None:
    anywhere = Schema(name="jump", parameters=(("?to", "room"),), preconditions=(), add=(("at", "?to"),), delete=())
    domain = Domain(name="jump", types=DOMAIN.types, constants={}, predicates=DOMAIN.predicates, schemas=(anywhere,))
    found = strips.ground(domain, Problem(objects=OBJECTS, init=frozenset(), goal=GOAL))
    assert [action.arguments for action in found] == [("hall",), ("attic",), ("cellar",)]


def test_applying_deletes_then_adds() -> None:
    walk = strips.ground(DOMAIN, a_problem())[0]
    after = strips.apply(walk, INIT)
    assert ("at", "hall") in after
    assert ("at", "yard") not in after
    assert len(after) == len(INIT)


def test_reachable_facts_come_in_a_fixed_order() -> None:
    problem = a_problem()
    facts = strips.reachable(problem, strips.ground(DOMAIN, problem))
    assert [fact for fact in facts if fact[0] == "at"] == [("at", "yard"), ("at", "hall"), ("at", "attic")]


def test_the_share_is_that_of_the_best_alternative() -> None:
    goal = (*GOAL, frozenset({("at", "yard")}))
    assert strips.share(GOAL, INIT) == 0.0
    assert strips.share(GOAL, INIT | {("have", "key 1")}) == 0.5
    assert strips.share(goal, INIT) == 1.0
    assert strips.holds(goal, INIT)
    assert not strips.holds(GOAL, INIT)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"objects": {**OBJECTS, "dog": "animal"}}, "unknown type 'animal'"),
        ({"init": INIT | {("near", "hall")}}, "predicates and arities"),
        ({"init": INIT | {("at", "hall", "attic")}}, "predicates and arities"),
        ({"init": INIT | {("at", "moon")}}, "'moon' is no object of type place"),
        ({"init": INIT | {("have", "hall")}}, "'hall' is no object of type key"),
        ({"init": INIT | {()}}, "predicates and arities"),
        ({"goal": ()}, "at least one fact"),
        ({"goal": (frozenset(),)}, "at least one fact"),
    ],
)
def test_a_problem_that_does_not_fit_its_domain_is_refused(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match="domain walk") as caught:
        strips.check(DOMAIN, a_problem(**changes))
    assert named in str(caught.value)


# --- domain files ----------------------------------------------------------------------------------------------------

FILE = """(define (domain d) (:requirements :strips :typing :negative-preconditions :disjunctive-preconditions)
 (:types room) (:constants base - room) (:predicates (at ?r - room) (free))
 (:action go :parameters (?r - room) :precondition {precondition} :effect (and (at ?r) (not (free)))))"""


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    def read_text(text: str) -> Domain:
        (tmp_path / "d.pddl").write_text(text)
        monkeypatch.setattr(domain_file, "files", lambda package: tmp_path)
        read_domain.cache_clear()
        return read_domain("ignored", "d.pddl")

    yield read_text
    read_domain.cache_clear()


def test_a_domain_file_becomes_schemas(read: object) -> None:
    domain = read(FILE.format(precondition="(and (free))"))  # type: ignore[operator]
    assert domain.constants == {"base": "room"}
    assert domain.predicates == {"at": ("room",), "free": ()}
    schema = domain.schemas[0]
    assert schema.parameters == (("?r", "room"),)
    assert (schema.preconditions, schema.add, schema.delete) == ((("free",),), (("at", "?r"),), (("free",),))


@pytest.mark.parametrize(
    ("precondition", "named"),
    [
        ("(not (free))", "negative precondition"),
        ("(or (free) (at ?r))", "Or is not supported"),
        ("(and (free", "mend the file"),
    ],
)
def test_more_than_strips_is_refused_with_its_place(read: object, precondition: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        read(FILE.format(precondition=precondition))  # type: ignore[operator]


def test_a_machine_without_the_parser_is_told_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pddl", None)
    read_domain.cache_clear()
    with pytest.raises(MissingExtraError, match=r"memcon\[platform\]"):
        read_domain("memcon_workers.benchmarks.household", "domain.pddl")
