"""PDDL domain files to `strips.Domain`, through the `pddl` parser. Negative or quantified preconditions are refused."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import Any

from memcon.errors import ConfigError, MissingExtraError
from memcon_workers.benchmarks.strips import ROOT_TYPE, Domain, Fact, Schema

__all__ = ["read_domain"]


@cache
def read_domain(package: str, file: str) -> Domain:
    """The domain in `file` beside the modules of `package`.

    The parser gives sets, so constants, predicates and actions come in the order of their names.

    Raises:
        MissingExtraError: the `pddl` library is absent.
        ConfigError: the file cannot be parsed, or uses more than STRIPS with types.
    """
    try:
        from pddl import parse_domain  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError("pddl", "platform") from error
    with as_file(files(package) / file) as path:
        try:
            parsed = parse_domain(str(path))
        except Exception as error:
            raise ConfigError(f"reading PDDL domain {path}: {type(error).__name__}: {error}; mend the file") from error
    return Domain(
        name=str(parsed.name),
        types={str(name): str(parent or ROOT_TYPE) for name, parent in sorted(parsed.types.items())},
        constants={
            _name(constant): str(constant.type_tag or ROOT_TYPE) for constant in sorted(parsed.constants, key=_name)
        },
        predicates={
            _name(predicate): tuple(_type(term) for term in predicate.terms)
            for predicate in sorted(parsed.predicates, key=_name)
        },
        schemas=tuple(_schema(action) for action in sorted(parsed.actions, key=_name)),
    )


def _name(item: Any) -> str:
    # A plain string: the parser's own class of names compares ten times slower.
    return str(item.name)


def _type(term: Any) -> str:
    tags = sorted(str(tag) for tag in term.type_tags)
    if len(tags) > 1:
        raise ConfigError(f"PDDL variable '{term.name}' has the types {tags}: only one type a variable is supported")
    return tags[0] if tags else ROOT_TYPE


def _schema(action: Any) -> Schema:
    where = f"PDDL action '{action.name}'"
    wanted, unwanted = _literals(action.precondition, where)
    if unwanted:
        raise ConfigError(
            f"{where}: negative precondition {unwanted[0]}; state its complement as a predicate of its own"
        )
    add, delete = _literals(action.effect, where)
    parameters = tuple((f"?{variable.name}", _type(variable)) for variable in action.parameters)
    return Schema(name=str(action.name), parameters=parameters, preconditions=wanted, add=add, delete=delete)


def _literals(formula: Any, where: str) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
    """Positive and negated literals of a conjunction."""
    kind = type(formula).__name__
    if formula is None:
        return (), ()
    if kind == "And":
        parts = [_literals(operand, where) for operand in formula.operands]
        return tuple(fact for part in parts for fact in part[0]), tuple(fact for part in parts for fact in part[1])
    if kind == "Predicate":
        return ((_name(formula), *map(_term, formula.terms)),), ()
    if kind == "Not" and type(formula.argument).__name__ == "Predicate":
        return (), _literals(formula.argument, where)[0]
    raise ConfigError(f"{where}: {kind} is not supported; only conjunctions of literals are")


def _term(term: Any) -> str:
    return f"?{term.name}" if type(term).__name__ == "Variable" else _name(term)
