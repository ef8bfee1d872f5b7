"""From a config to the plan of its outcome matrices, and to the rules that are replayed on each. Runs nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from memcon import codec
from memcon.control.settings import ControlSettings
from memcon.errors import ConfigError
from memcon.learning import actions
from memcon.types import MemoryAction
from memcon_platform import assembly
from memcon_platform.config import Cell, Entry, RunPlan, load
from memcon_platform.study.exact_replay import Learner

__all__ = ["Arena", "Skipped", "Study", "study_of"]

_PLAYER = "every_arm"
_AXES = ("benchmark", "framework", "backbone", "memory")
# `control.unsupported_arms` under which no arm is left out.
_ALL_ARMS = "noop"
# Their values are recorded and never used to choose, or there is no table at all.
_NOT_LEARNED = ("fixed", "uniform")
# What of `control` a replay follows by itself: when to decide is fixed, masks are known, explanations change nothing.
_FOLLOWED = ("decision_points", "unsupported_arms", "explain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A policy of the config that is not replayed, and why."""

    policy: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """One outcome matrix: who plays what with which memory, and what is replayed on it."""

    # Axis -> label.
    labels: Mapping[str, str]
    # Cells of the matrix run, one a seed.
    cells: tuple[Cell, ...]
    learners: tuple[Learner, ...]
    skipped: tuple[Skipped, ...]
    # Label of the learner that the others are compared with (`study.reference`).
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What `memcon study headroom` runs and then looks at."""

    # The sweep of the matrices.
    plan: RunPlan
    arenas: tuple[Arena, ...]
    # Numbers of streams that share a table in a replay.
    groups: tuple[int, ...]


def study_of(path: Path, overrides: Sequence[str] = (), limit: int | None = None) -> Study:
    """The study of the config at `path`; the matrix run is `RUN-matrix`, its cells have `study.streams` streams each.

    One cell a seed for each distinct benchmark, framework, backbone and memory (with its preload); each plays all arms
    of the smallest action set that holds what the config's policies may choose at a task's start.

    Raises:
        ConfigError: the config is wrong, or has no memory to study.
    """
    asked = load(path, overrides, limit)
    places: dict[str, list[Cell]] = {}
    for cell in asked.cells:
        if cell.memory.name != "empty":
            places.setdefault(_place(cell), []).append(cell)
    if not places:
        raise ConfigError(
            f"{path}: every cell has the memory 'empty'; a study needs a memory whose arms it can compare"
        )
    trial_set = _trial_set(asked.cells)
    grids = [_grid(cells, trial_set, asked.settings.study.streams) for cells in places.values()]
    plan = load(path, [*overrides, *_overrides(asked, grids)], limit)
    arenas = []
    for place, cells in places.items():
        played = tuple(cell for cell in plan.cells if _place(cell) == place)
        arenas.append(_arena(played, cells, asked))
    return Study(plan=plan, arenas=tuple(arenas), groups=asked.settings.study.groups)


# --- the matrix run ---------------------------------------------------------------------------------------------------


def _place(cell: Cell) -> str:
    return codec.encode_json([_entry(cell, axis) for axis in _AXES])


def _entry(cell: Cell, axis: str) -> dict[str, Any]:
    """An axis entry as it stands in a config."""
    entry: Entry = cell.entry(axis)
    found = {"name": entry.name, **codec.encode(entry.parameters)}
    if axis == "memory" and cell.preload is not None:
        found["preload"] = codec.encode(cell.preload)
    return found


def _grid(cells: Sequence[Cell], trial_set: str, streams: int) -> dict[str, Any]:
    control = {"decision_points": "start"}
    if any(cell.control.unsupported_arms != _ALL_ARMS for cell in cells):
        # What a policy masks is left out of its replay; the matrix has the outcomes of all arms.
        control["unsupported_arms"] = _ALL_ARMS
    player = {"name": _PLAYER, "action_set": trial_set, "control": control}
    seeds = sorted({cell.seed for cell in cells})
    shape = {"streams": streams, "split": "replicate", "table_scope": "cell"}
    return {**{axis: _entry(cells[0], axis) for axis in _AXES}, "policy": player, "seed": seeds, **shape}


def _overrides(asked: RunPlan, grids: Sequence[Mapping[str, Any]]) -> list[str]:
    """What turns the config into that of its matrices; YAML takes JSON."""
    laid = {"run": f"{asked.run}-matrix", "axes": None, "exclude": None, "include": list(grids)}
    laid |= {name: None for name in ("max_open_episodes", "start_from") if name in asked.resolved}
    return [f"{key}={json.dumps(value)}" for key, value in laid.items()]


def _trial_set(cells: Sequence[Cell]) -> str:
    """The smallest action set that holds every arm that a policy may choose at a task's start, else `default`.

    Policies whose arms are not all in it are not replayed.
    """
    needed = [arm for cell in cells for arm in _at_start(cell)]
    sets = [actions.action_set(name) for name in actions.action_set_names()]
    fitting = [found for found in sets if all(arm in _free(found.actions) for arm in needed)]
    return min(fitting, key=lambda found: (len(found.actions), found.name)).name if fitting else "default"


def _at_start(cell: Cell) -> tuple[MemoryAction, ...]:
    learning = assembly.learning_settings(cell)
    return () if learning is None else _free(actions.action_set(learning.action_set).actions)


def _free(arms: Sequence[MemoryAction]) -> tuple[MemoryAction, ...]:
    """Arms that may be chosen while the agent is not stuck."""
    return tuple(arm for arm in arms if not arm.only_when_stuck)


# --- what is replayed on it -------------------------------------------------------------------------------------------


def _arena(played: tuple[Cell, ...], cells: Sequence[Cell], asked: RunPlan) -> Arena:
    learners: dict[str, Learner] = {}
    skipped: dict[str, Skipped] = {}
    arms = _free(actions.action_set(played[0].settings["policy"]["action_set"]).actions)
    for cell in cells:
        learning = assembly.learning_settings(cell)
        if learning is None or learning.rule in _NOT_LEARNED:
            continue
        label = cell.policy.label
        if reason := _unfit(cell, played[0].control, arms):
            skipped.setdefault(label, Skipped(policy=label, reason=reason))
            continue
        learner = Learner(
            label=label,
            learning=learning,
            reward=cell.reward,
            allowed=tuple(arm.action_id for arm in _at_start(cell)),
            mask_unsupported=cell.control.unsupported_arms == "mask",
        )
        learners.setdefault(codec.encode_json([learning, cell.reward, learner.mask_unsupported]), learner)
    first = cells[0]
    labels = {
        "benchmark": first.benchmark.label,
        "framework": first.framework.name,
        "backbone": first.backbone.name,
        "memory": first.memory.label,
    }
    return Arena(
        labels=labels,
        cells=played,
        learners=tuple(learners.values()),
        skipped=tuple(skipped.values()),
        reference=asked.settings.study.reference,
    )


def _unfit(cell: Cell, control: ControlSettings, arms: Sequence[MemoryAction]) -> str:
    """Why the policy of `cell` cannot be replayed on a matrix with `control` and `arms`; "" when it can."""
    missing = [arm.action_id for arm in _at_start(cell) if arm not in arms]
    if missing:
        return f"its arms {', '.join(missing)} are not in the matrix; give its action set a config of its own"
    for field in fields(ControlSettings):
        own, theirs = getattr(cell.control, field.name), getattr(control, field.name)
        if field.name not in _FOLLOWED and own != theirs:
            return f"its control.{field.name} = {own} changes what arms do; the matrix has {theirs}"
    if cell.start_from.policy is not None:
        return "it starts from the table of another run; a replay starts with an empty one"
    if cell.start_from.memory is not None:
        return "its memory starts from another run; that of the matrix does not"
    return ""
