"""What the sweep tells the tracker, as an `Observer` of the runner."""

from __future__ import annotations

from memcon_platform.config.plan import RunPlan
from memcon_workers.spec import TaskEnded

__all__ = ["SweepTracking"]


class SweepTracking:
    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan

    def task_ended(self, task: TaskEnded) -> None:
        return

    def cell_ended(self, cell: str) -> None:
        return

    def close(self) -> None:
        return
