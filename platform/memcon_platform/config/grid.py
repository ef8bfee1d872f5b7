"""Axes, `include` and `exclude` to a list of drafts, one a cell. One mechanism: every group of cells is a grid.

`axes` is the first grid. Each `include` is a further grid of its own: it gives axes as single entries or lists, and an
axis that it leaves out is taken from `axes`, if `axes` has exactly one entry there. `exclude` removes what matches,
wherever it came from.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from memcon import registry
from memcon.errors import nearest
from memcon_platform.config.entries import Choice, beside, parse_entry, parse_matcher
from memcon_platform.config.plan import AXES, StartFrom
from memcon_platform.config.sections import KeyPathError, as_mapping, check_keys, section, whole_number

__all__ = ["SHAPE", "Draft", "Shape", "expand", "parse_shape"]

# Keys that say how many streams a cell has, what they share and what they start from.
SHAPE = ("streams", "split", "table_scope", "max_open_episodes", "start_from")
_SPLITS = ("replicate", "partition")
_SCOPES = ("cell", "stream")
# The name of a shared table is a part of the table's own name.
_TABLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# Seeds are int64 in the Parquet tables.
_LAST_SEED = 2**63 - 1
_MOST_STREAMS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many streams a cell has, what they share and what they start from."""

    streams: int = 1
    split: str = "replicate"
    table_scope: str = "cell"
    max_open_episodes: int | None = None
    start_from: StartFrom = field(default_factory=StartFrom)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A cell before its id is known."""

    # Key path of the grid that made it.
    origin: str
    # By axis, "seed" left out.
    choices: Mapping[str, Choice]
    seed: int
    shape: Shape


def expand(document: Mapping[str, Any], shape: Shape) -> list[Draft]:
    """All cells of `document`, in the order of the plan.

    Raises:
        KeyPathError: a wrong key, entry or value, an empty axis, or no cell at all.
    """
    axes = as_mapping(document.get("axes", {}), "axes")
    includes = _list(document.get("include"), "include")
    check_keys(axes, AXES, "axes")
    if not axes and not includes:
        raise KeyPathError("axes", f"axes: missing; give at least one entry for each of: {', '.join(AXES)}")
    drafts: list[Draft] = []
    if axes:
        _complete(axes, "axes", "")
        drafts += _grid("axes", {axis: _entries(axis, axes[axis], f"axes.{axis}") for axis in AXES}, shape)
    for i, item in enumerate(includes):
        drafts += _include(as_mapping(item, f"include[{i}]"), f"include[{i}]", axes, shape)
    for i, item in enumerate(_list(document.get("exclude"), "exclude")):
        rule = _exclusion(as_mapping(item, f"exclude[{i}]"), f"exclude[{i}]")
        drafts = [draft for draft in drafts if not _matches(draft, rule)]
    if not drafts:
        raise KeyPathError("exclude", "exclude: removes every cell; nothing is left to run")
    return drafts


def parse_shape(values: Mapping[str, Any], path: str, default: Shape) -> Shape:
    """The `SHAPE` keys of `values` over `default`.

    Raises:
        KeyPathError: a value out of range or not allowed.
    """
    prefix = f"{path}." if path else ""
    streams = whole_number(values.get("streams", default.streams), f"{prefix}streams", low=1, high=_MOST_STREAMS)
    split = _choice(values.get("split", default.split), f"{prefix}split", _SPLITS)
    bound = values.get("max_open_episodes", default.max_open_episodes)
    if bound is not None:
        bound = whole_number(bound, f"{prefix}max_open_episodes", low=1)
    start = default.start_from
    if values.get("start_from") is not None:
        start = section(StartFrom, values["start_from"], f"{prefix}start_from")
    return Shape(
        streams=streams,
        split=split,
        table_scope=_scope(values.get("table_scope", default.table_scope), f"{prefix}table_scope"),
        max_open_episodes=bound,
        start_from=start,
    )


def _include(item: Mapping[str, Any], path: str, axes: Mapping[str, Any], shape: Shape) -> Iterator[Draft]:
    check_keys(item, (*AXES, *SHAPE), path)
    given = dict(item)
    for axis in AXES:
        if axis in given or axis not in axes:
            continue
        shared = axes[axis]
        if isinstance(shared, list) and len(shared) != 1:
            message = f"{path}: no '{axis}', and axes.{axis} has {len(shared)} entries; give {path}.{axis}"
            raise KeyPathError(path, message)
        given[axis] = shared
    _complete(given, path, ", and axes has none either")
    entries = {axis: _entries(axis, given[axis], f"{path if axis in item else 'axes'}.{axis}") for axis in AXES}
    return _grid(path, entries, parse_shape(item, path, shape))


def _complete(given: Mapping[str, Any], path: str, note: str) -> None:
    for axis in AXES:
        if axis not in given:
            allowed = "integers" if axis == "seed" else ", ".join(registry.names(axis))
            raise KeyPathError(path, f"{path}: no '{axis}'{note}; give at least one of: {allowed}")


def _grid(path: str, entries: Mapping[str, list[Any]], shape: Shape) -> Iterator[Draft]:
    backbones = {choice.profile: choice for choice in entries["backbone"]}
    # Here a policy's profile is settled, once for all: whatever comes after sees the cell's own policy.
    settled = {
        (policy.path, profile): beside(policy, backbone)
        for policy in entries["policy"]
        for profile, backbone in backbones.items()
    }
    for *choices, seed in itertools.product(*(entries[axis] for axis in AXES)):
        named = dict(zip(AXES, choices, strict=False))
        named["policy"] = settled[named["policy"].path, named["backbone"].profile]
        yield Draft(origin=path, choices=named, seed=seed, shape=shape)


def _entries(axis: str, value: Any, path: str) -> list[Any]:
    """Choices of an axis, or integers for "seed"; a single value is a list of one."""
    items = [(item, f"{path}[{i}]") for i, item in enumerate(value)] if isinstance(value, list) else [(value, path)]
    if not items or value is None:
        allowed = "integers" if axis == "seed" else ", ".join(registry.names(axis))
        raise KeyPathError(path, f"{path}: empty; give at least one of: {allowed}")
    if axis == "seed":
        return [whole_number(item, at, low=0, high=_LAST_SEED) for item, at in items]
    return [parse_entry(axis, item, at) for item, at in items]


def _exclusion(item: Mapping[str, Any], path: str) -> dict[str, list[Any]]:
    check_keys(item, AXES, path)
    if not item:
        raise KeyPathError(path, f"{path}: names no axis; give at least one of: {', '.join(AXES)}")
    rule: dict[str, list[Any]] = {}
    for axis, value in item.items():
        at = f"{path}.{axis}"
        if axis == "seed":
            rule[axis] = _entries(axis, value, at)
            continue
        listed = [(v, f"{at}[{i}]") for i, v in enumerate(value)] if isinstance(value, list) else [(value, at)]
        rule[axis] = [parse_matcher(axis, v, where) for v, where in listed]
    return rule


def _matches(draft: Draft, rule: Mapping[str, list[Any]]) -> bool:
    return all(
        draft.seed in wanted if axis == "seed" else any(_is(draft, axis, one) for one in wanted)
        for axis, wanted in rule.items()
    )


def _is(draft: Draft, axis: str, wanted: str | Choice) -> bool:
    choice = draft.choices[axis]
    if isinstance(wanted, str):
        return choice.entry.name == wanted
    return choice.same_as(beside(wanted, draft.choices["backbone"]) if axis == "policy" else wanted)


def _scope(value: Any, path: str) -> str:
    if not isinstance(value, str) or not _TABLE_NAME.fullmatch(value):
        allowed = f"one of {', '.join(_SCOPES)}, or the name of a table that cells share"
        form = "letters, digits, '.', '_' and '-', first a letter or digit, at most 100"
        raise KeyPathError(path, f"{path}: expected {allowed} ({form}), got {value!r}")
    if value not in _SCOPES and (guess := nearest(value, _SCOPES)):
        # A slip would make a table of its own that nobody shares.
        raise KeyPathError(path, f"{path}: did you mean '{guess}'? {value!r} is too like it to be the name of a table")
    return value


def _choice(value: Any, path: str, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise KeyPathError(path, f"{path}: expected one of {', '.join(allowed)}, got {value!r}")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise KeyPathError(path, f"{path}: expected a list of mappings (- key: value), got {value!r}")
    return value
