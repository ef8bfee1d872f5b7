"""Which cells make one row, what role the row has, and how it is named. Knows the plan only, no results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memcon_platform.trajectory import PlanCell
from memcon_platform.trajectory.plan_file import AXES

__all__ = ["LEARNED", "NO_MEMORY", "OWN_RETRIEVAL", "RANDOM_ARM", "STATIC_ARM", "PlannedGroup", "group", "is_exact"]

NO_MEMORY = "no memory"
OWN_RETRIEVAL = "memory's own retrieval"
STATIC_ARM = "static arm"
RANDOM_ARM = "random arm"
LEARNED = "learned"

_ROLE_OF_POLICY = {"fixed": STATIC_ARM, "uniform": RANDOM_ARM, "none": OWN_RETRIEVAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """Cells that differ in the seed only, in order of the plan."""

    cells: tuple[PlanCell, ...]
    role: str
    label: str
    # (benchmark, framework, backbone) labels: rows that may be compared.
    arena: tuple[str, str, str]

    @property
    def first(self) -> PlanCell:
        """The cell that stands for the settings of all."""
        return self.cells[0]


def group(cells: Sequence[PlanCell]) -> list[PlannedGroup]:
    """Rows of the report, in order of the plan."""
    rows: dict[str, list[PlanCell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.place):
        rows.setdefault(_identity(cell), []).append(cell)
    named: dict[tuple[Any, ...], list[list[PlanCell]]] = {}
    for members in rows.values():
        named.setdefault((_arena(members[0]), _short_label(members[0])), []).append(members)
    details = {
        members[0].cell_id: detail
        for siblings in named.values()
        for members, detail in zip(siblings, _differing([members[0] for members in siblings]), strict=True)
    }
    return [
        PlannedGroup(
            cells=tuple(members),
            role=_role(members[0]),
            label=" ".join(filter(None, (_short_label(members[0]), details[members[0].cell_id]))),
            arena=_arena(members[0]),
        )
        for members in rows.values()
    ]


def is_exact(cell: PlanCell) -> bool:
    """At most one open episode a table: bit-equal for any number of workers (architecture: "Exact")."""
    scoped = cell.table_scope == "stream" or (cell.table_scope == "cell" and cell.streams == 1)
    return scoped or cell.name("policy") == "none" or cell.settings.get("max_open_episodes") == 1


def _identity(cell: PlanCell) -> str:
    """Text of everything but the seed."""
    entries = {axis: [cell.name(axis), cell.entries[axis].get("parameters")] for axis in AXES}
    shape = [cell.streams, cell.split, cell.table_scope, cell.stream_tasks]
    return json.dumps([entries, shape, _settings(cell)], sort_keys=True, default=str)


def _settings(cell: PlanCell) -> dict[str, str]:
    """Resolved settings as flat "path -> text", without the seed."""
    flat: dict[str, str] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                walk(f"{path}.{key}" if path else str(key), item)
        else:
            flat[path] = json.dumps(value, default=str)

    walk("", cell.settings)
    flat.pop("seed", None)
    return flat


def _arena(cell: PlanCell) -> tuple[str, str, str]:
    return cell.label("benchmark"), cell.label("framework"), cell.label("backbone")


def _role(cell: PlanCell) -> str:
    if cell.name("memory") == "empty":
        return NO_MEMORY
    return _ROLE_OF_POLICY.get(cell.name("policy"), LEARNED)


def _short_label(cell: PlanCell) -> str:
    parts = [cell.label("memory")]
    if cell.name("policy") != "none":
        parts.append(cell.label("policy"))
    if cell.streams > 1:
        table = {"cell": "shared table", "stream": "own tables"}.get(cell.table_scope, f"table {cell.table_scope}")
        parts.append(f"({cell.streams} streams, {table})")
    return " ".join(parts)


def _differing(siblings: Sequence[PlanCell]) -> list[str]:
    """For rows of the same short label, the settings that tell them apart."""
    settings = [_settings(cell) for cell in siblings]
    paths = sorted({path for flat in settings for path in flat if len({other.get(path) for other in settings}) > 1})
    return [" ".join(f"{path}={flat.get(path, 'default')}" for path in paths) for flat in settings]
