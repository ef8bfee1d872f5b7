"""What the sweep tells the tracker, as an `Observer` of the runner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from memcon.errors import MemconError
from memcon_platform.config import RunPlan, read_record
from memcon_platform.tracking import (
    MlflowTracker,
    NullTracker,
    Tracker,
    TrackingEnd,
    cell_summary,
    infos_of,
    rebuild,
    task_metrics,
)
from memcon_workers.spec import TaskEnded

__all__ = ["SweepTracking"]


class SweepTracking:
    """Tracks one launch of a run whose plan is written."""

    def __init__(self, plan: RunPlan, *, resumed: bool) -> None:
        self._plan = plan
        self._num_tasks: Mapping[str, int] = {cell.cell_id: cell.num_tasks for cell in plan.cells}
        self._ended: dict[str, list[TaskEnded]] = defaultdict(list)
        # A cell ended, but not all its tasks were seen: earlier launches ran some, or a worker took news to its grave.
        self._gaps = resumed
        tracking = plan.settings.tracking
        self._tracker: Tracker = (
            MlflowTracker(plan.tracking_uri, tracking.experiment) if tracking.enabled else NullTracker()
        )
        run, cells = infos_of(read_record(plan.run_dir), plan.run_dir)
        self._tracker.start(run)
        for cell in cells:
            self._tracker.cell_started(cell)

    def task_ended(self, task: TaskEnded) -> None:
        """Pass the task's metrics on."""
        self._ended[task.cell].append(task)
        self._tracker.task_ended(task.cell, task.stream, task.ordinal, task_metrics(task))

    def cell_ended(self, cell: str) -> None:
        """Finish the cell's run, if this launch has seen all of its tasks; else `close` does it from Parquet."""
        tasks = self._ended.pop(cell, [])
        if len(tasks) == self._num_tasks[cell]:
            self._tracker.cell_ended(cell, cell_summary(tasks))
        else:
            self._gaps = True

    def close(self, report: Path) -> TrackingEnd:
        """Send what waits, with the run's report; what this launch has not seen is filled in from Parquet."""
        end = self._tracker.close([report] if report.exists() else [])
        tracking = self._plan.settings.tracking
        if not self._gaps or not tracking.enabled or end.problem:
            return end
        try:
            rebuild(self._plan.run_dir, uri=self._plan.tracking_uri, experiment=tracking.experiment)
        except MemconError as error:
            return TrackingEnd(problem=str(error), remedy=f"run `memcon track rebuild {self._plan.run_dir}` later")
        return end
