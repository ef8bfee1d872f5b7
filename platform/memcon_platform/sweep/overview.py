"""A run's progress over all cells, from plan and stream files; needs no running sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memcon import codec
from memcon_platform.config.plan import RunPlan
from memcon_platform.sweep.events import StreamName
from memcon_platform.sweep.losses import refuse_lost_streams
from memcon_platform.sweep.status import StreamStatus, stream_status

__all__ = ["FailedStream", "Overview", "overview", "statuses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStream:
    """A stream whose last try ended with an error."""

    cell: str
    label: str
    stream: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Tasks of a run by where they stand."""

    run: str
    cells: int
    planned: int
    done: int
    success: int
    # Counted in `done`.
    unevaluable: int
    pending: int
    failed: tuple[FailedStream, ...]

    def record(self) -> dict[str, Any]:
        """JSON form; `failed` counts the tasks left in failed streams' way as streams, not as tasks."""
        fields: dict[str, Any] = codec.encode(self)
        return {**fields, "failed": len(self.failed), "failed_streams": fields["failed"]}


def statuses(plan: RunPlan) -> dict[StreamName, tuple[StreamStatus, int]]:
    """Status and number of tasks of every stream of the plan.

    Raises:
        DamagedFileError: a stream file is damaged, or is missing though it has tasks in Parquet.
        StorageError: a stream file cannot be read now.
    """
    refuse_lost_streams(plan)
    found = {}
    for cell in plan.cells:
        sizes = cell.stream_tasks
        for stream in range(cell.streams):
            found[cell.cell_id, stream] = (stream_status(plan.run_dir, cell.cell_id, stream), sizes[stream])
    return found


def overview(plan: RunPlan) -> Overview:
    """Where the tasks of the plan stand.

    Raises:
        DamagedFileError, StorageError: as in `statuses`.
    """
    found = statuses(plan)
    labels: Mapping[str, str] = {cell.cell_id: cell.label for cell in plan.cells}
    planned = sum(size for _, size in found.values())
    done = sum(min(status.num_ended, size) for status, size in found.values())
    return Overview(
        run=plan.run,
        cells=len(plan.cells),
        planned=planned,
        done=done,
        success=sum(status.num_success for status, _ in found.values()),
        unevaluable=sum(status.num_unevaluable for status, _ in found.values()),
        pending=planned - done,
        failed=tuple(
            FailedStream(cell=cell, label=labels[cell], stream=stream, message=status.error)
            for (cell, stream), (status, _) in found.items()
            if status.error
        ),
    )
