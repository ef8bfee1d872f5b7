"""Which cells make one row, what role the row has, and how it is named. Knows the plan only, no results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memcon import codec
from memcon_platform.config import Cell
from memcon_platform.config.plan import PLUGIN_AXES

__all__ = [
    "LEARNED",
    "NO_MEMORY",
    "OUR_POLICIES",
    "OUTCOME_MATRIX",
    "OWN_RETRIEVAL",
    "RANDOM_ARM",
    "ROLES",
    "STATIC_ARM",
    "PlannedGroup",
    "conditions",
    "group",
    "is_exact",
    "is_outcome_matrix",
    "table_of",
]

NO_MEMORY = "no memory"
OWN_RETRIEVAL = "memory's own retrieval"
STATIC_ARM = "static arm"
RANDOM_ARM = "random arm"
LEARNED = "learned"
# In the order that tells the story.
ROLES = (NO_MEMORY, OWN_RETRIEVAL, STATIC_ARM, RANDOM_ARM, LEARNED)

# Plays every arm on each task for `memcon study headroom`: its cells are an outcome matrix, not a policy.
OUTCOME_MATRIX = "every_arm"
# Policies that this project defines, which are never shown under the paper's name alone.
OUR_POLICIES = frozenset({"pooled"})
_OWN_SCOPES = ("cell", "stream")
_ROLE_OF_POLICY = {"fixed": STATIC_ARM, "uniform": RANDOM_ARM, "none": OWN_RETRIEVAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """Cells that differ in the seed only, in order of the plan."""

    cells: tuple[Cell, ...]
    role: str
    # What tells it from the other rows of its memory: policy, shape of its streams, settings that differ.
    name: str
    # (benchmark, framework, backbone) labels: rows that may be compared.
    arena: tuple[str, str, str]

    @property
    def first(self) -> Cell:
        """The cell that stands for the settings of all."""
        return self.cells[0]

    @property
    def is_no_memory(self) -> bool:
        """The row stands beside every memory."""
        return self.role == NO_MEMORY

    @property
    def label(self) -> str:
        """`name` with the memory in front of it."""
        return self.name if self.role == NO_MEMORY else f"{self.first.memory.label} {self.name}"


def group(cells: Sequence[Cell]) -> list[PlannedGroup]:
    """Rows of the report, arena by arena: no memory, then each memory with static arms, random arm, learned."""
    rows: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.place):
        rows.setdefault(_identity(cell), []).append(cell)
    named: dict[tuple[Any, ...], list[Cell]] = {}
    for members in rows.values():
        named.setdefault((_arena(members[0]), members[0].memory.label, _name(members[0])), []).append(members[0])
    details = {
        cell.cell_id: detail
        for siblings in named.values()
        for cell, detail in zip(siblings, _differing(siblings), strict=True)
    }
    groups = [
        PlannedGroup(
            cells=tuple(members),
            role=_role(members[0]),
            name=" ".join(filter(None, (_name(members[0]), details[members[0].cell_id]))),
            arena=_arena(members[0]),
        )
        for members in rows.values()
    ]
    arenas = list(dict.fromkeys(found.arena for found in groups))
    memories = list(dict.fromkeys(found.first.memory.label for found in groups))
    return sorted(
        groups,
        key=lambda found: (
            arenas.index(found.arena),
            found.role != NO_MEMORY,
            memories.index(found.first.memory.label),
            ROLES.index(found.role),
            found.first.streams > 1,
            found.first.place,
        ),
    )


def is_exact(cell: Cell) -> bool:
    """At most one open episode a table: bit-equal for any number of workers (architecture: "Exact")."""
    scoped = cell.table_scope == "stream" or (cell.table_scope == "cell" and cell.streams == 1)
    return scoped or cell.max_open_episodes == 1 or cell.policy.name in {"none", OUTCOME_MATRIX}


def is_outcome_matrix(cell: Cell) -> bool:
    """The cell is no row of a report."""
    return cell.policy.name == OUTCOME_MATRIX


def table_of(cell: Cell, stream: int) -> str:
    """What a stream shares with the streams that it is not independent of; equal texts are one learned table.

    A policy that learns nothing makes no stream depend on another one.
    """
    if _role(cell) != LEARNED or cell.table_scope == "stream":
        return f"stream/{cell.cell_id}/{stream}"
    return f"cell/{cell.cell_id}" if cell.table_scope == "cell" else f"name/{cell.table_scope}"


def conditions(cell: Cell) -> dict[str, str]:
    """What shapes a row's outcomes beside its policy, as flat "path -> text": rows with equal ones compare best."""
    flat = {path: text for path, text in _settings(cell).items() if path.startswith("control.")}
    flat["streams"] = f"{cell.streams} {cell.split}"
    if cell.preload is not None:
        flat["preload"] = json.dumps(codec.encode(cell.preload), sort_keys=True)
    if cell.start_from.memory is not None:
        flat["start_from.memory"] = json.dumps(codec.encode(cell.start_from.memory), sort_keys=True)
    return flat


def _identity(cell: Cell) -> str:
    """Text of everything but the seed."""
    entries = {axis: [cell.entry(axis).name, cell.entry(axis).parameters] for axis in PLUGIN_AXES}
    shape: list[Any] = [cell.streams, cell.split, cell.table_scope, cell.stream_tasks, cell.max_open_episodes]
    shape += [codec.encode(cell.preload), codec.encode(cell.start_from)]
    return json.dumps([entries, shape, _settings(cell)], sort_keys=True, default=str)


def _settings(cell: Cell) -> dict[str, str]:
    """Resolved settings as flat "path -> text", without the seed."""
    flat: dict[str, str] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                walk(f"{path}.{key}" if path else str(key), item)
        else:
            flat[path] = value if isinstance(value, str) else json.dumps(value, default=str)

    walk("", cell.settings)
    flat.pop("seed", None)
    return flat


def _start(cell: Cell) -> str:
    """What a cell starts from, in one word a source: "table:RUN,cap=20"."""
    words = []
    for what, start in (("table", cell.start_from.policy), ("memory", cell.start_from.memory)):
        if start is not None:
            rest = [f"{name}={value}" for name, value in codec.encode(start).items() if name != "run" and value]
            words.append(",".join([f"{what}:{start.run}", *rest]))
    return "+".join(words) or "empty"


def _arena(cell: Cell) -> tuple[str, str, str]:
    return cell.benchmark.label, cell.framework.label, cell.backbone.label


def _role(cell: Cell) -> str:
    if cell.memory.name == "empty":
        return NO_MEMORY
    return _ROLE_OF_POLICY.get(cell.policy.name, LEARNED)


def _name(cell: Cell) -> str:
    decides = cell.policy.name != "none"
    if _role(cell) == NO_MEMORY:
        parts = ["no memory", *([cell.policy.label] if decides else [])]
    else:
        ours = " (ours)" if cell.policy.name in OUR_POLICIES else ""
        parts = [cell.policy.label + ours if decides else "own retrieval"]
    if cell.streams > 1:
        parts.append(f"{cell.streams} streams")
    if _role(cell) == LEARNED:
        parts += _table_words(cell)
    return ", ".join(parts)


def _table_words(cell: Cell) -> list[str]:
    if cell.table_scope not in _OWN_SCOPES:
        return [f"table {cell.table_scope}"]
    if cell.streams == 1:
        return []
    return ["1 table" if cell.table_scope == "cell" else "a table a stream"]


def _differing(siblings: Sequence[Cell]) -> list[str]:
    """For rows of the same name, the settings that tell them apart."""
    settings = [{**_settings(cell), "start": _start(cell)} for cell in siblings]
    paths = sorted({path for flat in settings for path in flat if len({other.get(path) for other in settings}) > 1})
    ends = [path.rpartition(".")[2] for path in paths]
    names = [end if ends.count(end) == 1 else path for path, end in zip(paths, ends, strict=True)]
    return [
        " ".join(f"{name}={flat.get(path, 'default')}" for name, path in zip(names, paths, strict=True))
        for flat in settings
    ]
