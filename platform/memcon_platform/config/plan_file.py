"""plan.json and config.yaml of a run folder: written whole through a temporary name, refused when damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memcon import codec
from memcon.errors import ConfigError, DamagedFileError, NotFoundError, SchemaVersionError, StorageError
from memcon_platform.config.entries import POLICY_SECTIONS
from memcon_platform.config.plan import AXES, Cell, RunPlan, RunSettings
from memcon_platform.config.provenance import provenance
from memcon_platform.config.source import to_yaml

__all__ = ["PLAN_FILE", "PLAN_SCHEMA", "has_plan", "read_plan", "write_plan"]

PLAN_SCHEMA = 1
PLAN_FILE = "plan.json"
_CONFIG_FILE = "config.yaml"
_PLUGINS = (*AXES[:-1], "embedder")
_PLAIN = ("cell_id", "place", "seed", "streams", "split", "table_scope", "limit", "stream_tasks", "settings")
_REMEDY = "restore it from a copy, or move the run folder away and start again"


def has_plan(run_dir: Path) -> bool:
    """Some sweep was launched in `run_dir` before."""
    return (run_dir / PLAN_FILE).exists()


def write_plan(run_dir: Path, plan: RunPlan, *, wall_time_s: float) -> None:
    """Write plan.json and config.yaml. A run that goes on keeps its first `created_at` and provenance.

    A provenance that differs from those on record (another version, Python or commit) is added under `continued_with`,
    so that a mixed run shows itself.

    Raises:
        StorageError: the folder cannot be written.
        DamagedFileError: there is a plan.json that cannot be trusted; it is left as it is.
    """
    now = {"at": datetime.fromtimestamp(wall_time_s, UTC).isoformat(timespec="seconds"), "provenance": provenance()}
    record = {
        "schema_version": PLAN_SCHEMA,
        "run": plan.run,
        "created_at": now["at"],
        "provenance": now["provenance"],
        "continued_with": [],
        "run_settings": codec.encode(plan.settings),
        "config": plan.resolved,
        "cells": [_cell_record(cell) for cell in plan.cells],
    }
    if has_plan(run_dir):
        read_plan(run_dir)
        earlier = _read(run_dir / PLAN_FILE)
        record |= {key: earlier[key] for key in ("created_at", "provenance", "continued_with") if key in earlier}
        known = [record["provenance"], *(item["provenance"] for item in record["continued_with"])]
        if now["provenance"] not in known:
            record["continued_with"] = [*record["continued_with"], now]
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        _replace(run_dir / _CONFIG_FILE, to_yaml(plan.resolved))
        _replace(run_dir / PLAN_FILE, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    except OSError as error:
        hint = "check permissions and space, or set root="
        raise StorageError(f"cannot write {run_dir}: {error.strerror}; {hint}") from error


def read_plan(run_dir: Path) -> RunPlan:
    """The plan of the run in `run_dir`, as it was last written.

    Raises:
        NotFoundError: no run there.
        DamagedFileError: plan.json is not what `write_plan` writes.
        SchemaVersionError: another schema version wrote it.
        StorageError: it cannot be read.
    """
    path = run_dir / PLAN_FILE
    record = _read(path)
    try:
        return RunPlan(
            run=record["run"],
            root=run_dir.parent,
            cells=tuple(_cell(item, f"cells[{i}]") for i, item in enumerate(record["cells"])),
            settings=codec.decode(RunSettings, record["run_settings"], "run_settings"),
            resolved=record["config"],
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
    plain = {key: record[key] for key in (*_PLAIN, *_PLUGINS)}
    return codec.decode(Cell, {**plain, **{name: record["settings"][name] for name in POLICY_SECTIONS}}, where)


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"no run in {path.parent}{_runs_beside(path.parent)}") from None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; check permissions") from error
    except ValueError as error:
        raise DamagedFileError(path, f"not JSON: {error}", _REMEDY) from error
    if not isinstance(record, dict):
        raise DamagedFileError(path, "not a JSON object", _REMEDY)
    if record.get("schema_version") != PLAN_SCHEMA:
        raise SchemaVersionError(path, record.get("schema_version"), PLAN_SCHEMA)
    return record


def _runs_beside(run_dir: Path) -> str:
    root = run_dir.parent
    runs = sorted(item.parent.name for item in root.glob(f"*/{PLAN_FILE}")) if root.is_dir() else []
    return f"; runs in {root}: {', '.join(runs)}" if runs else f"; {root} holds no run"


def _replace(path: Path, text: str) -> None:
    """Write `text` so that a reader sees the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
