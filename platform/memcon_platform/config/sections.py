"""Plain data to config dataclasses, with errors that name the key path. Knows neither files nor plug-ins."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from memcon import codec
from memcon.errors import ConfigError, UnknownNameError

__all__ = [
    "KeyPathError",
    "as_mapping",
    "check_fields",
    "check_keys",
    "join",
    "refusing",
    "required",
    "section",
    "whole_number",
]

T = TypeVar("T")


class KeyPathError(ConfigError):
    """The value at `path` of the config is wrong: mend it and start again."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(message)


def join(path: str, key: object) -> str:
    """The key path of `key` below `path`."""
    return f"{path}.{key}" if path else str(key)


@contextmanager
def refusing(path: str) -> Iterator[None]:
    """Give every config error inside the block the key path that it belongs to.

    Raises:
        KeyPathError: a `ConfigError` or `CodecError` was raised inside.
    """
    try:
        yield
    except KeyPathError:
        raise
    except (ConfigError, codec.CodecError) as error:
        text = str(error)
        at = text.split(": ", 1)[0]
        if at == path or (at.startswith((f"{path}.", f"{path}[")) and " " not in at):
            raise KeyPathError(at, text) from error
        raise KeyPathError(path, f"{path}: {text}" if path else text) from error


def as_mapping(value: Any, path: str) -> Mapping[str, Any]:
    """`value` if it is a mapping.

    Raises:
        KeyPathError: it is something else.
    """
    if not isinstance(value, Mapping):
        raise KeyPathError(path, f"{path}: expected a mapping (key: value), got {value!r}")
    return value


def check_keys(mapping: Mapping[Any, Any], known: Iterable[str], path: str) -> None:
    """Refuse a key that is none of `known`.

    Raises:
        KeyPathError: names the key, the allowed ones and the nearest.
    """
    allowed = list(known)
    for key in mapping:
        if key not in allowed:
            message = str(UnknownNameError("key", str(key), allowed))
            raise KeyPathError(join(path, key), f"{path}: {message}" if path else message)


def check_fields(kind: Any, value: Any, path: str) -> None:
    """Refuse unknown keys in `value`, a mapping for the dataclass `kind`, at any depth.

    Raises:
        KeyPathError: as in `check_keys` and `as_mapping`.
    """
    mapping = as_mapping(value, path)
    hints = typing.get_type_hints(kind)
    check_keys(mapping, (field.name for field in dataclasses.fields(kind)), path)
    for key, item in mapping.items():
        if (nested := _nested(hints[key], item)) is not None:
            check_fields(nested, item, join(path, key))


def section(kind: type[T], value: Any, path: str) -> T:
    """The dataclass `kind` with the keys of `value` over its defaults.

    Raises:
        KeyPathError: unknown or missing key, wrong type, or a value that the dataclass refuses.
    """
    mapping = as_mapping(value, path)
    check_fields(kind, mapping, path)
    hints = typing.get_type_hints(kind)
    decoded = {}
    for key, item in mapping.items():
        here, hint = join(path, key), hints[key]
        with refusing(here):
            nested = _nested(hint, item)
            decoded[key] = codec.decode(hint, item, here) if nested is None else section(nested, item, here)
    if missing := [key for key in required(kind) if key not in mapping]:
        raise KeyPathError(path, f"{path}: needs {', '.join(missing)}")
    with refusing(path):
        return kind(**decoded)


def required(kind: Any) -> list[str]:
    """Fields of the dataclass `kind` that have no default."""
    missing = dataclasses.MISSING
    return [f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing]


def whole_number(value: Any, path: str, *, low: int, high: int | None = None) -> int:
    """`value` if it is an integer in [low, high]; true and false are none.

    Raises:
        KeyPathError: names the value and the range.
    """
    bound = f"an integer >= {low}" if high is None else f"an integer in [{low}, {high}]"
    if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
        raise KeyPathError(path, f"{path}: expected {bound}, got {value!r}")
    return value


def _nested(hint: Any, value: Any) -> Any:
    """The dataclass that `value` is the section of: `hint` itself, or X of `X | None` for a value that is not null."""
    if dataclasses.is_dataclass(hint):
        return hint
    kinds = [kind for kind in typing.get_args(hint) if dataclasses.is_dataclass(kind)]
    return kinds[0] if value is not None and len(kinds) == 1 else None
