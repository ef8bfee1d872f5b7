"""From raw signals to the discrete key of a table row (paper Eq. 8, Table 6). Owns the bins, the schemas and key texts.

Which signals make a key is data: a `KeySchema` lists its fields. `paper` is the paper's; every other set of fields is
ours: `goal_plan`, or field names joined by "+", such as `benchmark+goal_type`. One set of fields is one schema, however
it is spelled. A key's text is written and parsed here only: `paper/1|goal_type=put|step_phase=early|...`, free text
percent-encoded, so that any goal type survives the round trip. A *chain* is a key with its coarser keys, finest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias
from urllib.parse import quote, unquote

from memcon.errors import ConfigError, InvariantError, UnknownNameError
from memcon.policy_types import LearningSettings
from memcon.types import StateFeatures

__all__ = [
    "KEY_SCHEMAS",
    "KeyField",
    "KeySchema",
    "StateKey",
    "chain_from",
    "chain_schemas",
    "check_chain",
    "held_bin",
    "key_chain",
    "key_schema",
    "key_text",
    "learning_phase_of",
    "locations_bin",
    "matching",
    "max_keys",
    "memory_bin",
    "parse",
    "phase_of",
    "project",
    "schema_of",
]

KeyValue: TypeAlias = str | int | bool

_EARLY_STEPS = 8
_LATE_STEPS = 18
_COLD_TASKS = 15


def phase_of(step: int) -> str:
    """Phase of `step` environment steps taken: early below 8, mid for 8 to 17, late from 18 (MC-3)."""
    _check_count("step", step)
    if step < _EARLY_STEPS:
        return "early"
    return "mid" if step < _LATE_STEPS else "late"


def held_bin(objects_held: int) -> int:
    """min(held, 2) (MC-5)."""
    _check_count("objects_held", objects_held)
    return min(objects_held, 2)


def locations_bin(locations_visited: int) -> int:
    """min(floor(visited / 3), 4) (MC-6)."""
    _check_count("locations_visited", locations_visited)
    return min(locations_visited // 3, 4)


def memory_bin(memory_size: int) -> int:
    """min(floor(size / 10), 5) (MC-7, reading A-2)."""
    _check_count("memory_size", memory_size)
    return min(memory_size // 10, 5)


def learning_phase_of(task_number: int) -> str:
    """Cold for the first 15 tasks of a stream (1-based), then warm (MC-8)."""
    if task_number < 1:
        raise InvariantError(f"state key: task_number = {task_number}; it is 1-based")
    return "cold" if task_number <= _COLD_TASKS else "warm"


def _check_count(name: str, value: int) -> None:
    if value < 0:
        raise InvariantError(f"state key: {name} = {value}; a count cannot be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyField:
    """One component of a key."""

    name: str
    value: Callable[[StateFeatures], KeyValue]
    # All values that it can take; empty = free text.
    values: tuple[KeyValue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySchema:
    """The components of a key, in order. Another version is another key: tables never mix them."""

    name: str
    version: int
    fields: tuple[KeyField, ...]

    @property
    def label(self) -> str:
        """Name and version, as in `LearningSettings.key_schema`."""
        return f"{self.name}/{self.version}"

    @property
    def field_names(self) -> frozenset[str]:
        """Names of its components: a schema is coarser than another when they are a proper subset."""
        return frozenset(field.name for field in self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateKey:
    """A parsed key."""

    schema: KeySchema
    # Component name -> value, in the schema's order.
    values: Mapping[str, KeyValue]


_FLAG = (False, True)
# All components there are, in canonical order.
_FIELDS = (
    KeyField(name="benchmark", value=lambda features: features.benchmark),
    KeyField(name="setup", value=lambda features: features.setup),
    KeyField(name="goal_type", value=lambda features: features.goal_type),
    KeyField(name="step_phase", value=lambda features: phase_of(features.step), values=("early", "mid", "late")),
    KeyField(name="is_stuck", value=lambda features: features.is_stuck, values=_FLAG),
    KeyField(name="objects_held", value=lambda features: held_bin(features.objects_held), values=(0, 1, 2)),
    KeyField(
        name="locations", value=lambda features: locations_bin(features.locations_visited), values=(0, 1, 2, 3, 4)
    ),
    KeyField(name="memory_size", value=lambda features: memory_bin(features.memory_size), values=(0, 1, 2, 3, 4, 5)),
    KeyField(name="plan_available", value=lambda features: features.plan_available, values=_FLAG),
    KeyField(
        name="learning_phase", value=lambda features: learning_phase_of(features.task_number), values=("cold", "warm")
    ),
)
_FIELD_NAMES = tuple(field.name for field in _FIELDS)
_BEYOND_PAPER = ("benchmark", "setup")


def _schema(name: str, fields: Set[str]) -> KeySchema:
    return KeySchema(name=name, version=1, fields=tuple(field for field in _FIELDS if field.name in fields))


# Name -> the schema under it; any other set of fields is named by them.
KEY_SCHEMAS: Mapping[str, KeySchema] = MappingProxyType(
    {
        schema.name: schema
        for schema in (
            _schema("paper", set(_FIELD_NAMES) - set(_BEYOND_PAPER)),
            _schema("goal_plan", {"goal_type", "plan_available"}),
        )
    }
)


@lru_cache(maxsize=1024)
def key_schema(label: str) -> KeySchema:
    """The schema that `label` names: "paper", field names joined by "+", or either with its version, "paper/1".

    Raises:
        UnknownNameError: no schema and no field of that name.
        ConfigError: a field stands twice, or the schema has another version here.
    """
    name, slash, version = label.partition("/")
    found = KEY_SCHEMAS.get(name) or _schema_of_fields(name)
    if slash and version != str(found.version):
        raise ConfigError(f"state key '{label}': this memcon has '{found.label}'; use the memcon that wrote that table")
    return found


def _schema_of_fields(name: str) -> KeySchema:
    asked = name.split("+")
    for field in asked:
        if field not in _FIELD_NAMES:
            if len(asked) == 1:
                raise UnknownNameError("state key", name, (*KEY_SCHEMAS, *_FIELD_NAMES))
            raise UnknownNameError(f"field of state key '{name}'", field, _FIELD_NAMES)
        if asked.count(field) > 1:
            raise ConfigError(f"state key '{name}': the field '{field}' stands twice; name each field once")
    fields = set(asked)
    for known in KEY_SCHEMAS.values():
        if known.field_names == fields:
            return known
    return _schema("+".join([field for field in _FIELD_NAMES if field in fields]), fields)


def chain_schemas(settings: LearningSettings) -> tuple[KeySchema, ...]:
    """The schemas of a decision's keys, finest first: the state key's own, then those that it is pooled over.

    Raises:
        UnknownNameError, ConfigError: as in `key_schema`.
    """
    return tuple([key_schema(label) for label in (settings.key_schema, *settings.pooling)])


def key_text(schema: str, features: StateFeatures) -> str:
    """The key of `features` under the schema named `schema`, as text: equal text means equal key (MC-2).

    Raises:
        UnknownNameError, ConfigError: as in `key_schema`.
        InvariantError: a count is negative.
    """
    found = key_schema(schema)
    parts = [found.label]
    parts.extend([f"{field.name}={_text(field.value(features))}" for field in found.fields])
    return "|".join(parts)


def key_chain(settings: LearningSettings, features: StateFeatures) -> tuple[str, ...]:
    """The keys of `features` in a table with `settings`, finest first; one long without pooling (reading A-31).

    Raises:
        UnknownNameError, ConfigError, InvariantError: as in `key_text`.
    """
    return tuple([key_text(label, features) for label in (settings.key_schema, *settings.pooling)])


def project(text: str, schema: KeySchema) -> str:
    """The coarser key under `schema` of the same state: the components of the key `text` that `schema` has.

    Raises:
        ConfigError: `text` lacks one of them.
    """
    parts = {part.partition("=")[0]: part for part in text.split("|")[1:]}
    try:
        return "|".join([schema.label, *[parts[field.name] for field in schema.fields]])
    except KeyError as error:
        raise ConfigError(f"state key {text!r}: it has no component {error}, which '{schema.label}' needs") from None


def chain_from(schemas: tuple[KeySchema, ...], key: str) -> tuple[str, ...]:
    """`key`, of any level of a table with `schemas`, and its coarser keys.

    Raises:
        ConfigError: `key` lacks a component that a coarser schema needs.
    """
    if len(schemas) == 1:
        # The text of a key without coarser ones is the caller's.
        return (key,)
    place = schemas.index(schema_of(key))
    return (key, *[project(key, schema) for schema in schemas[place + 1 :]])


def matching(keys: Collection[str], text: str) -> list[str]:
    """The key `text` if it is among `keys`, else all of them that hold it."""
    return [text] if text in keys else [key for key in keys if text in key]


def check_chain(schemas: tuple[KeySchema, ...], keys: tuple[str, ...]) -> None:
    """Refuse keys that are not one state's, seen through `schemas`, finest first.

    Raises:
        ConfigError: another number of keys, a text that is no key of its schema, or a coarser key of another state.
    """
    if len(keys) != len(schemas):
        raise ConfigError(f"keys = {list(keys)}: expected {len(schemas)}, {', '.join(s.label for s in schemas)}")
    if parse(keys[0]).schema != schemas[0]:
        raise ConfigError(f"state key {keys[0]!r}: expected one of '{schemas[0].label}'")
    for key, schema in zip(keys[1:], schemas[1:], strict=True):
        if key != (expected := project(keys[0], schema)):
            raise ConfigError(f"state key {key!r}: beside {keys[0]!r} stands {expected!r}; take both from one state")


def parse(text: str) -> StateKey:
    """The key that `key_text` wrote.

    Raises:
        ConfigError: the text is no key of a schema that is known here.
    """
    schema = schema_of(text)
    parts = text.split("|")[1:]
    if [part.partition("=")[0] for part in parts] != [field.name for field in schema.fields]:
        raise ConfigError(
            f"state key {text!r}: expected the components {', '.join(field.name for field in schema.fields)}"
        )
    values = {
        field.name: _parse_value(field, part.partition("=")[2], text)
        for field, part in zip(schema.fields, parts, strict=True)
    }
    return StateKey(schema=schema, values=MappingProxyType(values))


def schema_of(text: str) -> KeySchema:
    """The schema of a key's text form.

    Raises:
        UnknownNameError, ConfigError: as in `key_schema`.
    """
    return key_schema(text.partition("|")[0])


def max_keys(schema: KeySchema, num_goal_types: int, *, num_benchmarks: int = 1, num_setups: int = 1) -> int:
    """How many keys there can be at most: 2,160 a goal type under `paper` (MC-10).

    The numbers of goal types, benchmarks and set-ups count where the schema has that field.
    """
    free = {"goal_type": num_goal_types, "benchmark": num_benchmarks, "setup": num_setups}
    return math.prod(len(field.values) or free[field.name] for field in schema.fields)


def _text(value: KeyValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    # surrogatepass: a goal type may come from a file name or a model, and must not stop a stream.
    return str(value) if isinstance(value, int) else quote(value, safe=" ", errors="surrogatepass")


def _parse_value(field: KeyField, part: str, text: str) -> KeyValue:
    if not field.values:
        return _parse_free(field, part, text)
    for value in field.values:
        if _text(value) == part:
            return value
    allowed = ", ".join(_text(value) for value in field.values)
    raise ConfigError(f"state key {text!r}: {field.name} = {part!r}; allowed: {allowed}")


def _parse_free(field: KeyField, part: str, text: str) -> str:
    try:
        value = unquote(part, errors="surrogatepass")
    except UnicodeDecodeError:
        value = ""
    if _text(value) != part:
        raise ConfigError(f"state key {text!r}: {field.name} = {part!r} is not percent-encoded as a key's text is")
    return value
