"""What the bodies share: the loop that a test's coroutines run on, and failures that say what the contract wants.

A body's test is a plain function, so that plain pytest runs it. Its failure names the method of the port, what the
contract wants of it, and what was met; it reads the same with and without pytest's rewriting of asserts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import fields, is_dataclass
from reprlib import Repr
from types import TracebackType
from typing import Any, NoReturn, Protocol, TypeVar

import pytest

from memcon import codec, registry

__all__ = ["Contract", "Run", "accepts", "expect", "expect_equal", "expect_kind", "expect_port", "refuses", "to_give"]

T = TypeVar("T")

# Long enough for a step or a retrieval, short enough to be read.
_SHOWN = Repr()
_SHOWN.maxstring = _SHOWN.maxother = 400
_SHOWN.maxlist = _SHOWN.maxtuple = _SHOWN.maxdict = _SHOWN.maxset = 12


class Run(Protocol):
    """Runs a coroutine to its end and gives its result."""

    def __call__(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        """The result of `coroutine`; all calls of one test share one event loop."""
        ...


class Contract:
    """Base of the bodies. A fixture that has something to await takes `run`, as the tests do."""

    @pytest.fixture
    def run(self) -> Iterator[Run]:
        """The event loop of one test: what a fixture started on it is still there for the test, and for the end."""
        with asyncio.Runner() as runner:
            yield runner.run


def expect(holds: bool, where: str, wants: str, *, met: object) -> None:
    """Fail the test unless `holds`: `where` (the port's method) `wants` something, and `met` came instead."""
    __tracebackhide__ = True
    if not holds:
        raise AssertionError(f"by contract, {where} {wants}\n  met: {_SHOWN.repr(met)}")


def expect_equal(met: object, wanted: object, where: str, *, wants: str) -> None:
    """Fail the test unless `met` equals `wanted`; otherwise as `expect`."""
    __tracebackhide__ = True
    if met != wanted:
        place, met, wanted = _first_difference(met, wanted)
        at = f" at {place}" if place else ""
        shown = f"\n  wanted{at}: {_SHOWN.repr(wanted)}\n  met{at}:    {_SHOWN.repr(met)}"
        raise AssertionError(f"by contract, {where} {wants}{shown}")


def expect_port(thing: object, port: type) -> None:
    """Fail the test unless `thing` has all that the protocol `port` has; otherwise as `expect`."""
    __tracebackhide__ = True
    missing = registry.lacking(port, thing)
    expect(not missing, port.__name__, f"has all of {_name(port)}", met=f"no {', '.join(missing)}")


def expect_kind(met: object, kind: type, where: str) -> None:
    """Fail the test unless `met` is the dataclass `kind` with fields of their types; otherwise as `expect`."""
    __tracebackhide__ = True
    expect(isinstance(met, kind), where, f"gives a {_name(kind)}", met=met)
    wants = f"gives a {_name(kind)} whose fields have their types: it is stored as JSON, and read again"
    with accepts(where, wants=wants):
        again: object = codec.decode(kind, codec.encode(met))
    expect_equal(met, again, where, wants=wants)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _first_difference(met: object, wanted: object) -> tuple[str, object, object]:
    """Where two values differ first, and the parts there: long ones are cut before a reader would see it."""
    place = ""
    while type(met) is type(wanted):
        parts, others = _parts(met), _parts(wanted)
        if len(parts) != len(others):
            break
        differing = [name for name in parts if parts[name] != others[name]]
        if not differing:
            break
        place, met, wanted = place + differing[0], parts[differing[0]], others[differing[0]]
    return place, met, wanted


def _parts(value: object) -> dict[str, Any]:
    """Place -> part, of a list, a tuple, a dict or a dataclass; of anything else nothing."""
    if isinstance(value, dict):
        return {str(key): part for key, part in value.items()}
    if isinstance(value, list | tuple):
        return {f"[{index}]": part for index, part in enumerate(value)}
    if is_dataclass(value):
        return {f".{field.name}": getattr(value, field.name) for field in fields(value)}
    return {}


class Refusal:
    """The block must raise an error of one kind; `error` is the one that it raised."""

    def __init__(self, kind: type[Exception], where: str, *, wants: str, naming: str) -> None:
        self._kind, self._where, self._wants, self._naming = kind, where, wants, naming
        self.error: Exception | None = None

    def __enter__(self) -> Refusal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        __tracebackhide__ = True
        if error is not None and not isinstance(error, Exception):
            return False
        wanted = f"by contract, {self._where} {self._wants}\n  wanted: {_name(self._kind)}"
        wanted += f" whose text holds '{self._naming}'" if self._naming else ""
        if error is None:
            raise AssertionError(f"{wanted}\n  met:    no error")
        if not isinstance(error, self._kind) or self._naming not in str(error):
            raise AssertionError(f"{wanted}\n  met:    {type(error).__qualname__}: {error}") from error
        self.error = error
        return True


class Acceptance:
    """The block must not raise."""

    def __init__(self, where: str, wants: str) -> None:
        self._where, self._wants = where, wants

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        is_met = error is None or isinstance(error, AssertionError) or not isinstance(error, Exception)
        if not is_met:
            met = f"{type(error).__qualname__}: {error}"
            raise AssertionError(f"by contract, {self._where} {self._wants}\n  met: {met}") from error


def accepts(where: str, *, wants: str) -> Acceptance:
    """Fail the test when the block raises, where the contract wants that it does not; otherwise as `expect`."""
    return Acceptance(where, wants)


def refuses(kind: type[Exception], where: str, *, wants: str, naming: str = "") -> Refusal:
    """Fail the test unless the block raises an error of `kind` whose text holds `naming`; otherwise as `expect`."""
    return Refusal(kind, where, wants=wants, naming=naming)


def to_give(body: object, fixture: str, gives: str, what: str) -> NoReturn:
    """Fail the test: the subclass does not override `fixture`, which `gives` a type and is `what`."""
    pytest.fail(
        f"{type(body).__name__} does not give the fixture `{fixture}`: {what}. Override it in your class:\n\n"
        f"    @pytest.fixture\n    def {fixture}(self) -> {gives}:\n        return ...",
        pytrace=False,
    )
