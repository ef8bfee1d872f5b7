"""What makes a cell the cell that it is: its id, and the settings that differ from their defaults.

A cell's id is a hash of the resolved settings that differ from their defaults and of a schema version (architecture:
configs), so that an option added later orphans no old run. How a run is carried out (`RunSettings`, root, run name)
is no part of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from memcon import codec, ids

__all__ = ["CELL_SCHEMA", "cell_id", "non_defaults"]

# Raise it when the meaning of an unchanged config changes: all cells get new ids.
CELL_SCHEMA = 1


def non_defaults(config: Any) -> dict[str, Any]:
    """JSON-able fields of the dataclass value `config` that differ from their defaults, nested ones in part."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        own, default = getattr(config, field.name), _default(field)
        if default is not dataclasses.MISSING and _same(own, default):
            continue
        nested = dataclasses.is_dataclass(own) and type(own) is type(default)
        found[field.name] = non_defaults(own) if nested else codec.encode(own)
    return found


def cell_id(axes: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """16 hex digits for the axes of a cell and for those of its `options` that are not at their default.

    Args:
        axes: axis name to [plug-in name, non-default parameters], or the seed.
        options: option name to a JSON-able value; only options that differ from their defaults may be in it.
    """
    return ids.stable_hash("cell", CELL_SCHEMA, dict(axes), dict(options))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _same(one: Any, other: Any) -> bool:
    # By text: True and 1 are equal in Python, and are different settings.
    return type(one) is type(other) and codec.encode_json(one) == codec.encode_json(other)
