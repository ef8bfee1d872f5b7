"""plan.json and config.yaml of a run folder: written whole through a temporary name, refused when damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memcon import codec
from memcon.errors import (
    ConfigError,
    DamagedFileError,
    NotFoundError,
    SchemaVersionError,
    StorageError,
    nearest,
)
from memcon.files import replace_file
from memcon_platform.config.entries import POLICY_SECTIONS
from memcon_platform.config.plan import PLUGIN_AXES, Cell, RunPlan, RunSettings
from memcon_platform.config.provenance import provenance

__all__ = [
    "CONFIG_FILE",
    "PLAN_FILE",
    "PLAN_SCHEMA",
    "REPORT_FILE",
    "Launched",
    "RunRecord",
    "has_plan",
    "no_run",
    "read_plan",
    "read_record",
    "write_plan",
]

PLAN_SCHEMA = 1
PLAN_FILE = "plan.json"
CONFIG_FILE = "config.yaml"
# Written by `memcon report`, and an artefact of the run in MLflow.
REPORT_FILE = "report.html"
_PLUGINS = (*PLUGIN_AXES, "embedder")
_PLAIN = (
    *("cell_id", "place", "seed", "streams", "split", "table_scope", "max_open_episodes", "start_from", "preload"),
    *("limit", "stream_tasks", "settings"),
)
_ENDPOINTS = "endpoints"
_REMEDY = "restore it from a copy, or move the run folder away and start again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A launch of the run under another version, Python, commit or endpoint than those on record before it."""

    # ISO 8601, UTC.
    at: str
    provenance: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """All that plan.json keeps: the plan, and what the run was made with."""

    plan: RunPlan
    # ISO 8601, UTC: the first launch.
    created_at: str
    # Of the first launch (`memcon_platform.config.provenance`).
    provenance: Mapping[str, Any]
    continued_with: tuple[Launched, ...] = ()


def _runs(root: Path) -> list[str]:
    return sorted(plan.parent.name for plan in root.glob(f"*/{PLAN_FILE}"))


def has_plan(run_dir: Path) -> bool:
    """Some sweep was launched in `run_dir` before."""
    return (run_dir / PLAN_FILE).exists()


def write_plan(run_dir: Path, plan: RunPlan, *, wall_time_s: float, endpoints: Sequence[str] = ()) -> None:
    """Write plan.json and config.yaml. A run that goes on keeps its first `created_at` and provenance.

    A provenance that differs from those on record (a version, Python or commit, or one of the `endpoints` that this
    launch asks) is added under `continued_with`, so that a mixed run shows itself.

    Raises:
        StorageError: the folder cannot be written.
        DamagedFileError: there is a plan.json that cannot be trusted; it is left as it is.
    """
    plugins = [(kind, getattr(cell, kind).name) for cell in plan.cells for kind in _PLUGINS]
    at = datetime.fromtimestamp(wall_time_s, UTC).isoformat(timespec="seconds")
    asked = {_ENDPOINTS: list(endpoints)} if endpoints else {}
    made_with = {**provenance(plugins), **asked}
    now = {"at": at, "provenance": made_with}
    record = {
        "schema_version": PLAN_SCHEMA,
        "run": plan.run,
        "created_at": at,
        "provenance": made_with,
        "continued_with": [],
        "run_settings": codec.encode(plan.settings),
        "config": plan.resolved,
        "cells": [_cell_record(cell) for cell in plan.cells],
    }
    if has_plan(run_dir):
        earlier = read_record(run_dir)
        record |= {key: codec.encode(getattr(earlier, key)) for key in ("created_at", "provenance", "continued_with")}
        on_record = [earlier.provenance, *(launched.provenance for launched in earlier.continued_with)]
        if not any(_covers(past, made_with) for past in on_record):
            record["continued_with"].append(now)
    # OmegaConf takes 50 ms to import, and readers of the plan have no use for it.
    from memcon_platform.config.source import to_yaml

    replace_file(run_dir / CONFIG_FILE, to_yaml(plan.resolved))
    replace_file(run_dir / PLAN_FILE, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _covers(past: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether `past` says all of `now`: a launch asks only the endpoints of what is left."""
    is_same = {**past, _ENDPOINTS: None} == {**now, _ENDPOINTS: None}
    return is_same and set(now.get(_ENDPOINTS, ())).issubset(past.get(_ENDPOINTS, ()))


def no_run(run_dir: Path) -> NotFoundError:
    """The error that `run_dir` is no run: names the runs in it or beside it, and the nearest one."""
    root = run_dir if run_dir.is_dir() and _runs(run_dir) else run_dir.parent
    runs = _runs(root)
    guess = nearest(run_dir.name, runs)
    hint = f" (did you mean '{root / guess}'?)" if guess else ""
    beside = f"runs in {root}: {', '.join(runs)}" if runs else f"{root} holds no run"
    problem = (
        f"{run_dir} holds no {PLAN_FILE}, so it is no run of memcon" if run_dir.is_dir() else f"no run folder {run_dir}"
    )
    return NotFoundError(f"{problem}; {beside}{hint}; name a run, or start one with `memcon sweep CONFIG`")


def read_plan(run_dir: Path) -> RunPlan:
    """The plan of the run in `run_dir`, as it was last written.

    Raises:
        NotFoundError: no run there.
        DamagedFileError: plan.json is not what `write_plan` writes.
        SchemaVersionError: another schema version wrote it.
        StorageError: it cannot be read.
    """
    return read_record(run_dir).plan


def read_record(run_dir: Path) -> RunRecord:
    """All that plan.json of the run in `run_dir` keeps.

    A run is named as its folder: one that was copied or renamed goes by its folder's name, not by the recorded one, so
    that `plan.run_dir` is the folder that was read.

    Raises:
        NotFoundError, DamagedFileError, SchemaVersionError, StorageError: as in `read_plan`.
    """
    path = run_dir / PLAN_FILE
    record = _read(path)
    # "." and ".." name no folder.
    folder = run_dir.resolve() if run_dir.name in {"", ".."} else run_dir
    try:
        codec.decode(str, record["run"], "run")
        plan = RunPlan(
            run=folder.name,
            root=folder.parent,
            cells=tuple(_cell(item, f"cells[{i}]") for i, item in enumerate(record["cells"])),
            settings=codec.decode(RunSettings, record["run_settings"], "run_settings"),
            resolved=record["config"],
        )
        return RunRecord(
            plan=plan,
            created_at=codec.decode(str, record["created_at"], "created_at"),
            provenance=_provenance(record["provenance"], "provenance"),
            continued_with=tuple(
                codec.decode(Launched, item, f"continued_with[{i}]") for i, item in enumerate(record["continued_with"])
            ),
        )
    except (codec.CodecError, ConfigError) as error:
        raise DamagedFileError(path, str(error), _REMEDY) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(path, f"a key is missing or of a wrong type: {error}", _REMEDY) from error


def _cell_record(cell: Cell) -> dict[str, Any]:
    # `num_tasks` is the longest stream's. Control and reward stand in the settings, and only there.
    record = {key: codec.encode(getattr(cell, key)) for key in (*_PLAIN, *_PLUGINS)}
    return {**record, "label": cell.label, "num_tasks": max(cell.stream_tasks)}


def _cell(record: Mapping[str, Any], where: str) -> Cell:
    plain = {key: record[key] for key in (*_PLAIN, *_PLUGINS) if key in record}
    return codec.decode(Cell, {**plain, **{name: record["settings"][name] for name in POLICY_SECTIONS}}, where)


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise no_run(path.parent) from None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; check permissions") from error
    except ValueError as error:
        raise DamagedFileError(path, f"not JSON: {error}", _REMEDY) from error
    if not isinstance(record, dict):
        raise DamagedFileError(path, "not a JSON object", _REMEDY)
    if record.get("schema_version") != PLAN_SCHEMA:
        raise SchemaVersionError(path, record.get("schema_version"), PLAN_SCHEMA)
    return record


def _provenance(record: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        raise codec.CodecError(f"{where}: expected a mapping, got {record!r}")
    return dict(record)
