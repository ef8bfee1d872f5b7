"""Continues a run: more cells are added, changed ones are refused with the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from memcon import codec
from memcon.errors import ConfigError
from memcon_platform.config.plan import AXES, Cell, RunPlan

__all__ = ["reconcile"]

# Differences that an error shows in full.
_SHOWN = 3
_ABSENT = object()


def reconcile(existing: RunPlan, new: RunPlan) -> RunPlan:
    """The plan that continues `existing` under the config of `new`: its cells at their places, then the added ones.

    Raises:
        ConfigError: a cell of the run is changed or left out, a default has another value now, or the number of policy
            shards is another (the journal lies by shard); names what differs.
    """
    problems = list(_shards(existing, new))
    wanted = {cell.cell_id: cell for cell in new.cells}
    known = {cell.cell_id for cell in existing.cells}
    fresh = [cell for cell in new.cells if cell.cell_id not in known]
    by_axes: dict[str, list[Cell]] = {}
    for cell in fresh:
        by_axes.setdefault(_axes_key(cell), []).append(cell)
    changes: dict[str, list[Cell]] = {}
    for cell in existing.cells:
        now = wanted.get(cell.cell_id)
        change = _moved(cell, now) if now else _change(cell, by_axes.get(_axes_key(cell), []))
        if change:
            changes.setdefault(change, []).append(cell)
    problems += [_told(change, cells) for change, cells in changes.items()]
    if problems:
        more = f"; and {len(problems) - _SHOWN} more differences" if len(problems) > _SHOWN else ""
        raise ConfigError(
            f"run '{existing.run}' exists with other settings: {'; '.join(problems[:_SHOWN])}{more}. "
            "Take the old settings to continue it, or another name (run=NAME) for a new run"
        )
    cells = (*existing.cells, *fresh)
    return replace(new, cells=tuple(replace(cell, place=place) for place, cell in enumerate(cells)))


def _shards(existing: RunPlan, new: RunPlan) -> Iterator[str]:
    before, after = existing.settings.policy_server.shards, new.settings.policy_server.shards
    if before != after:
        yield f"policy_server.shards {before} -> {after} (the run's journal lies by shard)"


def _change(cell: Cell, candidates: list[Cell]) -> str:
    """How `cell` differs from the nearest new cell with the same axes, or that it is gone."""
    if not candidates:
        return "not in the config any more"
    return min((_difference(cell.settings, other.settings) for other in candidates), key=len)


def _moved(before: Cell, after: Cell) -> str:
    """Same id, other work: a default that the id leaves out, or the benchmark's tasks, have changed under it.

    Options that only one side has came or went with a version and stand at their default.
    """
    old, new = _flat(before.settings), _flat(after.settings)
    common = old.keys() & new.keys()
    sizes = {"tasks of each stream": list(before.stream_tasks)}, {"tasks of each stream": list(after.stream_tasks)}
    return _difference({key: old[key] for key in common} | sizes[0], {key: new[key] for key in common} | sizes[1])


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    old, new = _flat(before), _flat(after)
    return ", ".join(
        f"{key} {_text(old.get(key, _ABSENT))} -> {_text(new.get(key, _ABSENT))}"
        for key in sorted(old.keys() | new.keys())
        if _text(old.get(key, _ABSENT)) != _text(new.get(key, _ABSENT))
    )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _text(value: Any) -> str:
    return "(absent)" if value is _ABSENT else codec.encode_json(value)


def _axes_key(cell: Cell) -> str:
    names = [getattr(cell, axis).name for axis in AXES[:-1]]
    return codec.encode_json([*names, cell.seed])


def _told(change: str, cells: list[Cell]) -> str:
    where = f"cell '{cells[0].label}'" if len(cells) == 1 else f"{len(cells)} cells such as '{cells[0].label}'"
    return f"{where}: {change}"
