"""plan.json as its readers see it: the cells that a run promised. Unknown keys are kept out of the way, not refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memcon.errors import DamagedFileError, NotFoundError, SchemaVersionError, StorageError
from memcon_platform.trajectory.blocks import require_run

__all__ = ["AXES", "PlanCell", "PlanFile", "read_plan"]

PLAN_SCHEMA_VERSION = 1
AXES = ("benchmark", "framework", "backbone", "memory", "policy")
_REMEDY = "restore it from a copy, or run the same `memcon sweep` command, which writes it"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCell:
    """One planned cell."""

    cell_id: str
    # 0-based place in the plan.
    place: int
    # Axis -> {"name", "parameters", "label"}.
    entries: Mapping[str, Mapping[str, Any]]
    seed: int
    streams: int
    split: str
    table_scope: str
    # Tasks of each stream, in stream order.
    stream_tasks: tuple[int, ...]
    settings: Mapping[str, Any]

    @property
    def num_tasks(self) -> int:
        """Tasks of the whole cell."""
        return sum(self.stream_tasks)

    def name(self, axis: str) -> str:
        """Registered name of the plug-in on `axis`."""
        return str(self.entries[axis]["name"])

    def label(self, axis: str) -> str:
        """What tables print for `axis`."""
        return str(self.entries[axis].get("label") or self.name(axis))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """What a run promised."""

    run: str
    created_at: str
    provenance: Mapping[str, Any]
    # Provenances of later launches that differ from the first, such as another version of memcon.
    continued_with: tuple[Any, ...]
    cells: tuple[PlanCell, ...]


def read_plan(run_dir: Path) -> PlanFile:
    """The plan of a run.

    Raises:
        NotFoundError: no run folder, or no plan in it.
        DamagedFileError: the file is no plan; names what is wrong.
        SchemaVersionError: another schema version wrote it.
    """
    require_run(run_dir)
    path = run_dir / "plan.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError(f"{run_dir} holds no plan.json, so it is no run of memcon; check the name") from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; mend its permissions") from error
    except ValueError as error:
        raise DamagedFileError(path, f"not JSON: {error}", _REMEDY) from error
    if isinstance(record, dict) and record.get("schema_version", PLAN_SCHEMA_VERSION) != PLAN_SCHEMA_VERSION:
        raise SchemaVersionError(path, record["schema_version"], PLAN_SCHEMA_VERSION)
    try:
        return PlanFile(
            run=str(record["run"]),
            created_at=str(record.get("created_at", "")),
            provenance=dict(record.get("provenance") or {}),
            continued_with=tuple(record.get("continued_with") or ()),
            cells=tuple(_cell(place, cell) for place, cell in enumerate(record["cells"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(path, f"{type(error).__name__}: {error}", _REMEDY) from error


def _cell(place: int, record: Mapping[str, Any]) -> PlanCell:
    streams = int(record.get("streams", 1))
    # `num_tasks` counts the tasks of a stream; `stream_tasks` says more when a partition is uneven.
    stream_tasks = tuple(int(count) for count in record.get("stream_tasks") or [record["num_tasks"]] * streams)
    return PlanCell(
        cell_id=str(record["cell_id"]),
        place=int(record.get("place", place)),
        entries={axis: _entry(axis, record[axis]) for axis in AXES},
        seed=int(record["seed"]),
        streams=streams,
        split=str(record.get("split", "replicate")),
        table_scope=str(record.get("table_scope", "cell")),
        stream_tasks=stream_tasks,
        settings=dict(record.get("settings") or {}),
    )


def _entry(axis: str, record: Any) -> Mapping[str, Any]:
    if not isinstance(record, Mapping) or "name" not in record:
        raise ValueError(f"{axis} = {record!r}: expected a mapping with 'name'")
    return dict(record)
