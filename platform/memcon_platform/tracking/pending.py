"""Pending: what MLflow has not taken yet. No thread, no clock.

Everything leaves it only after MLflow has confirmed it, so that a failure in between is repeated safely.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from memcon_platform.tracking.mlflow_store import MAX_METRICS, MetricRow, MlflowStore
from memcon_platform.tracking.port import CellInfo

__all__ = ["CellEnded", "CellStarted", "Event", "Pending", "TaskEnded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStarted:
    """A cell has work to do."""

    cell: CellInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded:
    """A task is committed."""

    cell_id: str
    rows: tuple[MetricRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEnded:
    """A cell is done."""

    cell_id: str
    rows: tuple[MetricRow, ...]
    artifacts: tuple[Path, ...]


Event: TypeAlias = CellStarted | TaskEnded | CellEnded


@dataclass(slots=True)
class _Cell:
    info: CellInfo | None = None
    tasks: list[TaskEnded] = field(default_factory=list)
    ended: CellEnded | None = None


class Pending:
    """Events by cell, at most `max_tasks` tasks in all."""

    def __init__(self, max_tasks: int) -> None:
        self._max_tasks = max_tasks
        self._cells: dict[str, _Cell] = {}
        self.num_tasks = 0
        # Tasks that did not fit.
        self.dropped = 0

    def add(self, event: Event) -> None:
        """Keep `event` until it is sent; a task beyond the bound is dropped and counted."""
        if isinstance(event, CellStarted):
            self._cell(event.cell.cell_id).info = event.cell
        elif isinstance(event, CellEnded):
            self._cell(event.cell_id).ended = event
        elif self.num_tasks >= self._max_tasks:
            self.dropped += 1
        else:
            self._cell(event.cell_id).tasks.append(event)
            self.num_tasks += 1

    def send(self, store: MlflowStore) -> None:
        """Send everything; what was sent is gone from here even when a later part fails.

        Raises:
            Exception: whatever MLflow raises.
        """
        for cell in list(self._cells.values()):
            if cell.info is None:
                # Its start was refused by a full queue: nothing of it can be shown.
                self.dropped += len(cell.tasks)
                self.num_tasks -= len(cell.tasks)
                cell.tasks.clear()
                continue
            run_id = store.open_cell(cell.info)
            while cell.tasks:
                count, rows = _batch(cell.tasks)
                store.log(run_id, rows)
                del cell.tasks[:count]
                self.num_tasks -= count
            if cell.ended is not None:
                store.log(run_id, cell.ended.rows)
                store.finish(run_id, cell.ended.artifacts)
                cell.ended = None

    def _cell(self, cell_id: str) -> _Cell:
        return self._cells.setdefault(cell_id, _Cell())


def _batch(tasks: list[TaskEnded]) -> tuple[int, list[MetricRow]]:
    """As many whole tasks as one call may carry."""
    rows: list[MetricRow] = []
    for count, task in enumerate(tasks):
        if count and len(rows) + len(task.rows) > MAX_METRICS:
            return count, rows
        rows += task.rows
    return len(tasks), rows
