"""A run's progress over all cells, from plan and stream files; needs no running sweep."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from memcon import codec
from memcon_platform.config.plan import RunPlan
from memcon_platform.sweep.events import StreamName
from memcon_platform.sweep.losses import refuse_lost_streams
from memcon_platform.sweep.status import StreamStatus, stream_status
from memcon_platform.trajectory.blocks import finished_blocks
from memcon_platform.trajectory.reader import read_file

__all__ = ["FailedStream", "Overview", "overview", "statuses", "statuses_by_blocks"]


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


def statuses_by_blocks(plan: RunPlan) -> dict[StreamName, tuple[StreamStatus, int]]:
    """As `statuses`, with what a stream has in Parquet where that is more than its file says.

    A run that is driven elsewhere is seen by its blocks: its stream files come with the end of a launch.

    Raises:
        DamagedFileError, StorageError: a file is damaged, or cannot be read now.
    """
    told: dict[StreamName, Counter[str]] = defaultdict(Counter)
    for block in finished_blocks(plan.run_dir):
        rows = read_file(block.path(plan.run_dir, "episodes"), "episodes", ("outcome_class",))
        told[block.cell, block.stream].update(rows["outcome_class"].to_pylist())
    found = {}
    for cell in plan.cells:
        for stream, size in enumerate(cell.stream_tasks):
            name = (cell.cell_id, stream)
            status, classes = stream_status(plan.run_dir, *name), told[name]
            if classes.total() > status.num_ended:
                status = replace(
                    status,
                    num_ended=classes.total(),
                    num_success=classes["success"],
                    num_unevaluable=classes["unevaluable"],
                )
            found[name] = status, size
    return found


def overview(plan: RunPlan, found: Mapping[StreamName, tuple[StreamStatus, int]] | None = None) -> Overview:
    """Where the tasks of the plan stand, by `found`, which is `statuses` unless given.

    Raises:
        DamagedFileError, StorageError: as in `statuses`.
    """
    if found is None:
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
