"""Errors, named by what the caller does next. Owns the classes and the one place where a boundary is crossed.

A message says what was being done, the value met, the allowed values and the next step; a command prints it as one
line and exits with a code other than 0. `BoundaryError` is data, not a crash: the task that met it becomes
`unevaluable` with the boundary's name (architecture: "a failed task is data").
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum

__all__ = [
    "Boundary",
    "BoundaryError",
    "ConfigError",
    "ConflictError",
    "DamagedFileError",
    "InvariantError",
    "LockedError",
    "MemconError",
    "MissingExtraError",
    "NotFoundError",
    "ProviderError",
    "SchemaVersionError",
    "StorageError",
    "UnavailableError",
    "UnknownNameError",
    "boundary",
    "nearest",
    "placed",
]


class MemconError(Exception):
    """Base of every error that memcon raises on purpose. Pickles whole, attributes included."""

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), str(self), dict(self.__dict__))


class ConfigError(MemconError):
    """The settings are wrong: mend the named key and start again."""


class UnknownNameError(ConfigError):
    """A name is not registered: take one of the allowed names."""

    def __init__(self, what: str, name: str, allowed: Iterable[str], *, hint: str = "") -> None:
        self.what, self.name, self.allowed = what, name, sorted(allowed)
        guess = nearest(name, self.allowed)
        message = f"unknown {what} '{name}'; allowed: {', '.join(self.allowed) or 'none'}"
        super().__init__(message + (f" (did you mean '{guess}'?)" if guess else "") + (f"; {hint}" if hint else ""))


class MissingExtraError(ConfigError):
    """An optional library is absent: install the extra that the message names."""

    def __init__(self, library: str, extra: str) -> None:
        self.library, self.extra = library, extra
        super().__init__(f"{library} is not installed; run: pip install 'memcon[{extra}]'")


class DamagedFileError(MemconError):
    """A file cannot be trusted: restore it or move it away; nothing was written over it."""

    def __init__(self, path: object, problem: str, remedy: str) -> None:
        self.path, self.problem, self.remedy = str(path), problem, remedy
        super().__init__(f"{path} is damaged: {problem}; {remedy}")


class SchemaVersionError(MemconError):
    """A file was written under another schema version: use the matching memcon or migrate it."""

    def __init__(
        self, path: object, found: object, expected: object, *, remedy: str = "migrate it or use its memcon"
    ) -> None:
        self.path, self.found, self.expected = str(path), found, expected
        super().__init__(f"{path} has schema version {found}, this memcon reads {expected}; {remedy}")


class StorageError(MemconError):
    """A place cannot be read or written: mend permissions, space or path and run the same command again."""


class LockedError(MemconError):
    """Another process owns the thing: wait for it or end it."""


class UnavailableError(MemconError):
    """A service does not answer now: retrying later is safe."""


class ProviderError(MemconError):
    """A model's provider cannot be reached or refuses us: mend what the message names and run the same command again.

    It ends no task: none can be played, so that the open one is left to be repeated.
    """


class ConflictError(MemconError):
    """The request contradicts what is already recorded: do not retry it."""


class NotFoundError(MemconError):
    """The thing asked for does not exist: check its name."""


class InvariantError(MemconError):
    """Something that cannot happen has happened: stop, and report it as a bug."""


class Boundary(StrEnum):
    """Where a task left our code when it failed."""

    ENVIRONMENT = "environment"
    FRAMEWORK = "framework"
    BACKBONE = "backbone"
    MEMORY = "memory"
    POLICY = "policy"
    WALL_TIME = "wall_time"
    WORKER = "worker"


class BoundaryError(MemconError):
    """A plug-in or service failed inside a task: the task is `unevaluable`, the stream goes on."""

    def __init__(self, where: Boundary, doing: str, cause: BaseException) -> None:
        self.boundary, self.doing = where, doing
        super().__init__(f"{where.value} failed during {doing}: {type(cause).__name__}: {cause}")


def _restore(kind: type[MemconError], message: str, attributes: dict[str, object]) -> MemconError:
    # Constructors take facts, not messages, so unpickling must not call them.
    error = kind.__new__(kind)
    error.args = (message,)
    error.__dict__.update(attributes)
    return error


@contextmanager
def boundary(where: Boundary, doing: str) -> Iterator[None]:
    """Map anything that a port call raises to `BoundaryError`; classified errors pass through unchanged.

    Raises:
        BoundaryError: the call raised an `Exception` that memcon has not classified, or an `UnavailableError`: whose
            service is away shows only here.
    """
    try:
        yield
    except UnavailableError as error:
        raise BoundaryError(where, doing, error) from error
    except MemconError:
        raise
    except Exception as error:
        raise BoundaryError(where, doing, error) from error


def placed(error: MemconError, where: str) -> MemconError:
    """The same error, attributes included, with `where` in front of its text."""
    return _restore(type(error), f"{where}: {error}", dict(error.__dict__))


def nearest(name: str, allowed: Iterable[str]) -> str | None:
    """The allowed name closest to `name`, or None when nothing is near."""
    found = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.6)
    return found[0] if found else None
