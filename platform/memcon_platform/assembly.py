"""The composition root: from a plan to what workers are told and given. The only module that knows all packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from memcon import ids
from memcon.policy_types import LearningSettings
from memcon_platform.config.plan import Cell, Entry, RunPlan
from memcon_platform.config.policies import policy_config
from memcon_platform.sweep.events import StreamName
from memcon_platform.sweep.status import stream_path
from memcon_workers.spec import PluginSpec, StreamSpec

__all__ = ["learning_settings", "stream_specs", "table_name"]


def stream_specs(
    plan: RunPlan,
    memory_files: Mapping[StreamName, Path] = MappingProxyType({}),
    memory_ended: Mapping[StreamName, int] = MappingProxyType({}),
) -> dict[StreamName, StreamSpec]:
    """Every stream of the plan, in the order of the plan.

    Args:
        plan: the run.
        memory_files: the stream files of earlier runs whose memory streams of this run begin with.
        memory_ended: the ended tasks that these files must show when they are copied.
    """
    learning = [(cell, learning_settings(cell)) for cell in plan.cells]
    sharing = Counter(
        table_name(cell, stream)
        for cell, settings in learning
        if settings is not None
        for stream in range(cell.streams)
    )
    specs: dict[StreamName, StreamSpec] = {}
    for cell, settings in learning:
        first, bound = _first_spec(plan, cell, settings), cell.max_open_episodes
        for stream in range(cell.streams):
            table, memory_file = table_name(cell, stream), memory_files.get((cell.cell_id, stream))
            specs[cell.cell_id, stream] = replace(
                first,
                stream=stream,
                table=table,
                store_path=str(stream_path(plan.run_dir.resolve(), cell.cell_id, stream)),
                memory_from=None if memory_file is None else str(memory_file),
                memory_from_ended=memory_ended.get((cell.cell_id, stream)),
                # A stream has one open episode at a time, so that a bound of as many streams bounds nothing.
                gated=settings is not None and bound is not None and bound < sharing[table],
            )
    return specs


def learning_settings(cell: Cell) -> LearningSettings | None:
    """What the cell's table is created with; None for a policy without a table, such as `none`."""
    settings: LearningSettings | None = policy_config(cell.policy).learning_settings()
    start = cell.start_from.policy
    if settings is None or start is None or not start.frozen:
        return settings
    return replace(settings, frozen=True)


def table_name(cell: Cell, stream: int) -> str:
    """The table that a stream learns in (architecture: sharing)."""
    match cell.table_scope:
        case "cell":
            return f"cell/{cell.cell_id}"
        case "stream":
            return f"stream/{cell.cell_id}/{stream}"
        case name:
            return f"named/{name}"


def _first_spec(plan: RunPlan, cell: Cell, learning: LearningSettings | None) -> StreamSpec:
    """The first stream of `cell`, as if it shared nothing and started from nothing."""
    return StreamSpec(
        run=plan.run,
        cell=cell.cell_id,
        stream=0,
        num_streams=cell.streams,
        split=cell.split,
        seed=cell.seed,
        limit=cell.limit,
        benchmark=_plugin(cell.benchmark),
        framework=_plugin(cell.framework),
        backbone=_plugin(cell.backbone),
        memory=_plugin(cell.memory),
        embedder=_plugin(cell.embedder),
        learning=learning,
        table=table_name(cell, 0),
        control=cell.control,
        reward=cell.reward,
        store_path=str(stream_path(plan.run_dir.resolve(), cell.cell_id, 0)),
        task_restarts=plan.settings.task_restarts,
        task_time_limit_s=plan.settings.task_time_limit_s,
        preload=cell.preload,
        memory_frozen=any(start is not None and start.frozen for start in (cell.start_from.memory, cell.preload)),
        trial_set=getattr(policy_config(cell.policy), "trial_set", None),
        setup=_setup(cell),
    )


def _setup(cell: Cell) -> str:
    """Who acts on what: equal for cells whose framework, backbone and memory are."""
    parts = [[entry.name, dict(entry.parameters)] for entry in (cell.framework, cell.backbone, cell.memory)]
    return ids.stable_hash("setup", *parts)


def _plugin(entry: Entry) -> PluginSpec:
    return PluginSpec(name=entry.name, parameters=dict(entry.parameters))
