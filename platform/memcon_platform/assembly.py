"""The composition root: from a plan to what workers are told and given. The only module that knows all packages."""

from __future__ import annotations

from memcon import registry
from memcon.policy_types import LearningSettings
from memcon_platform.config.plan import Cell, Entry, RunPlan
from memcon_platform.sweep.status import stream_path
from memcon_platform.sweep.supervisor import StreamName
from memcon_workers.spec import PluginSpec, StreamSpec

__all__ = ["learning_settings", "stream_specs", "table_name"]


def stream_specs(plan: RunPlan) -> dict[StreamName, StreamSpec]:
    """Every stream of the plan, in the order of the plan."""
    return {
        (cell.cell_id, stream): _stream_spec(plan, cell, stream)
        for cell in plan.cells
        for stream in range(cell.streams)
    }


def learning_settings(cell: Cell) -> LearningSettings | None:
    """What the cell's table is created with; None for the policy `none`."""
    config = registry.configure("policy", cell.policy.name, cell.policy.parameters)
    settings: LearningSettings | None = config.learning_settings()
    return settings


def table_name(cell: Cell, stream: int) -> str:
    """The table that a stream learns in (architecture: sharing)."""
    return f"stream/{cell.cell_id}/{stream}" if cell.table_scope == "stream" else f"cell/{cell.cell_id}"


def _stream_spec(plan: RunPlan, cell: Cell, stream: int) -> StreamSpec:
    return StreamSpec(
        run=plan.run,
        cell=cell.cell_id,
        stream=stream,
        num_streams=cell.streams,
        split=cell.split,
        seed=cell.seed,
        limit=cell.limit,
        benchmark=_plugin(cell.benchmark),
        framework=_plugin(cell.framework),
        backbone=_plugin(cell.backbone),
        memory=_plugin(cell.memory),
        embedder=_plugin(cell.embedder),
        learning=learning_settings(cell),
        table=table_name(cell, stream),
        control=cell.control,
        reward=cell.reward,
        store_path=str(stream_path(plan.run_dir.resolve(), cell.cell_id, stream)),
        task_restarts=plan.settings.task_restarts,
        task_time_limit_s=plan.settings.task_time_limit_s,
    )


def _plugin(entry: Entry) -> PluginSpec:
    return PluginSpec(name=entry.name, parameters=dict(entry.parameters))
