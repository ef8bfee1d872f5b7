"""Values to JSON-able dicts and back, strictly: an unknown or missing field, or a wrong type, is an error.

Knows dataclasses, enums, tuples, mappings, unions with None and JSON scalars: what `memcon.types` is made of.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from memcon.errors import MemconError

__all__ = ["CodecError", "decode", "decode_json", "encode", "encode_json"]

T = TypeVar("T")


class CodecError(MemconError):
    """A record does not have the form of its type: it was written by another version, or it is damaged."""


def encode(value: Any) -> Any:
    """A JSON-able form of `value`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: encode(getattr(value, name)) for name in _field_types(type(value))}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    return value


def encode_json(value: Any) -> str:
    """Compact JSON text of `value`; NaN and infinity are refused with `ValueError`."""
    return json.dumps(encode(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode(kind: type[T], record: Any, where: str = "") -> T:
    """The value of type `kind` that `record` stands for.

    Raises:
        CodecError: a field is missing, unknown or of a wrong type; the message names its path.
    """
    return typing.cast("T", _decode(kind, record, where or kind.__name__))


def decode_json(kind: type[T], text: str) -> T:
    """`decode` of JSON text.

    Raises:
        CodecError: the text is no JSON, or `decode` refuses it.
    """
    try:
        return decode(kind, json.loads(text))
    except json.JSONDecodeError as error:
        raise CodecError(f"{kind.__name__}: not JSON: {error}") from error


@functools.cache
def _field_types(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


@functools.cache
def _required(kind: type) -> frozenset[str]:
    missing = dataclasses.MISSING
    return frozenset(f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing)


def _decode(kind: Any, record: Any, where: str) -> Any:
    if kind is Any:
        return record
    origin = typing.get_origin(kind)
    if origin in {typing.Union, types.UnionType}:
        return _decode_union(typing.get_args(kind), record, where)
    if origin in {tuple, list, Sequence}:
        if not isinstance(record, list | tuple):
            raise CodecError(f"{where}: expected a list, got {record!r}")
        return _decode_items(typing.get_args(kind), record, where)
    if origin in {dict, Mapping}:
        if not isinstance(record, Mapping):
            raise CodecError(f"{where}: expected a mapping, got {record!r}")
        item_kind = typing.get_args(kind)[1]
        return {str(key): _decode(item_kind, item, f"{where}.{key}") for key, item in record.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(typing.cast("type", kind), record, where)
    return _decode_scalar(kind, record, where)


def _decode_items(kinds: tuple[Any, ...], record: Sequence[Any], where: str) -> tuple[Any, ...]:
    # tuple[X, ...], list[X] and Sequence[X] repeat one kind; tuple[X, Y] has one kind a place.
    if len(kinds) == 1 or kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(record)
    if len(kinds) != len(record):
        raise CodecError(f"{where}: expected {len(kinds)} values, got {record!r}")
    return tuple(_decode(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, record, strict=True)))


def _decode_union(kinds: tuple[Any, ...], record: Any, where: str) -> Any:
    if record is None and type(None) in kinds:
        return None
    errors = []
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _decode(kind, record, where)
        except CodecError as error:
            errors.append(str(error))
    names = " or ".join(_kind_name(kind) for kind in kinds if kind is not type(None))
    raise CodecError(errors[0] if len(errors) == 1 else f"{where}: expected {names}, got {record!r}")


def _kind_name(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(kind)))
    return getattr(kind, "__name__", str(kind))


def _decode_dataclass(kind: type, record: Any, where: str) -> Any:
    if not isinstance(record, Mapping):
        raise CodecError(f"{where}: expected a mapping, got {record!r}")
    known = _field_types(kind)
    if unknown := sorted(str(name) for name in record if name not in known):
        raise CodecError(f"{where}: unknown fields {unknown}")
    if missing := _required(kind) - set(record):
        raise CodecError(f"{where}: missing fields {sorted(missing)}")
    return kind(**{name: _decode(known[name], item, f"{where}.{name}") for name, item in record.items()})


def _decode_scalar(kind: Any, record: Any, where: str) -> Any:
    if typing.get_origin(kind) is typing.Literal:
        if record not in typing.get_args(kind):
            raise CodecError(f"{where}: {record!r} is none of {list(typing.get_args(kind))}")
        return record
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(record)
        except ValueError:
            raise CodecError(f"{where}: {record!r} is none of {[item.value for item in kind]}") from None
    if kind is float and isinstance(record, int) and not isinstance(record, bool):
        return float(record)
    if kind is int and isinstance(record, bool):
        raise CodecError(f"{where}: expected int, got {record!r}")
    if isinstance(kind, type) and isinstance(record, kind):
        return record
    raise CodecError(f"{where}: expected {_kind_name(kind)}, got {record!r}")
