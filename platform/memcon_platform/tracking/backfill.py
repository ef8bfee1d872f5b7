"""rebuild: put into MLflow what Parquet has and MLflow lacks (`memcon track rebuild RUN`). A repeat adds nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memcon.errors import MemconError, UnavailableError
from memcon_platform.config import read_record
from memcon_platform.config.plan_file import REPORT_FILE
from memcon_platform.tracking.metrics import cell_summary, finite, metric_name, task_metrics
from memcon_platform.tracking.mlflow_store import MAX_METRICS, MetricRow, MlflowStore
from memcon_platform.tracking.port import CellInfo, infos_of
from memcon_platform.trajectory import read_run

__all__ = ["RebuildReport", "rebuild"]

_EPISODES = (
    "outcome_class",
    "score",
    "reward",
    "num_steps",
    "tokens_agent_prompt",
    "memory_size",
    "started_at",
    "duration_s",
)
_SOURCES = ("tokens_items", "tokens_insights", "tokens_plan", "tokens_hint")


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """What a rebuild did."""

    cells: int
    # Finished tasks in Parquet, and metric values that MLflow lacked.
    tasks: int
    added: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A finished task as Parquet has it."""

    stream: int
    ordinal: int
    outcome_class: str
    score: float
    reward: float | None
    num_steps: int
    agent_prompt_tokens: int
    memory_tokens: int
    memory_size: int
    ended_ms: int


def rebuild(run_dir: Path, *, uri: str | None = None, experiment: str = "memcon") -> RebuildReport:
    """Fill MLflow at `uri` (default: SQLite beside the run folders) in from the run's Parquet.

    Raises:
        NotFoundError, DamagedFileError, SchemaVersionError: the run cannot be read.
        UnavailableError: MLflow cannot be reached or refuses; what was added stays, and the command may be repeated.
    """
    record = read_record(run_dir)
    plan = record.plan
    tasks = _tasks(run_dir)
    run, cells = infos_of(record, run_dir)
    target = uri or f"sqlite:///{run_dir.resolve().parent / 'mlflow.db'}"
    try:
        store = MlflowStore(target, experiment, run)
        added, complete = 0, set()
        for cell, planned in zip(cells, plan.cells, strict=True):
            found = tasks[cell.cell_id]
            if len(found) >= planned.num_tasks:
                complete.add(cell.cell_id)
            if found:
                added += _fill(store, cell, found, done=cell.cell_id in complete)
        if len(complete) == len(cells):
            report = run_dir / REPORT_FILE
            store.finish_run([report] if report.exists() else [])
    except MemconError:
        raise
    # MLflow, its stores and drivers raise anything.
    except Exception as error:
        first_line = "".join(str(error).strip().splitlines()[:1])
        raise UnavailableError(
            f"cannot rebuild {plan.run} in MLflow at {target}: {type(error).__name__}: {first_line}; "
            "run the same command again"
        ) from error
    return RebuildReport(cells=len(cells), tasks=sum(len(found) for found in tasks.values()), added=added)


def _fill(store: MlflowStore, cell: CellInfo, tasks: Sequence[_Task], *, done: bool) -> int:
    """Log what the cell's MLflow run lacks; returns how many values."""
    run_id = store.open_cell(cell)
    wanted = [row for task in tasks for row in _rows(task, cell.streams)]
    known = {name: store.steps_of(run_id, name) for name in sorted({row.name for row in wanted})}
    missing = [row for row in wanted if row.step not in known[row.name]]
    if done:
        names, last = store.metric_names(run_id), max(task.ended_ms for task in tasks)
        missing += [
            MetricRow(name=name, value=value, step=0, timestamp_ms=last)
            for name, value in finite(cell_summary(tasks)).items()
            if name not in names
        ]
    for start in range(0, len(missing), MAX_METRICS):
        store.log(run_id, missing[start : start + MAX_METRICS])
    if done:
        store.finish(run_id)
    return len(missing)


def _rows(task: _Task, streams: int) -> Iterable[MetricRow]:
    for name, value in finite(task_metrics(task)).items():
        yield MetricRow(
            name=metric_name(name, task.stream, streams), value=value, step=task.ordinal, timestamp_ms=task.ended_ms
        )


def _tasks(run_dir: Path) -> dict[str, list[_Task]]:
    """Finished tasks of each cell by its id."""
    columns = {"episodes": _EPISODES, "decisions": _SOURCES}
    tables = read_run(run_dir, tables=("episodes", "decisions"), columns=columns)
    injected: dict[tuple[str, int, int], int] = defaultdict(int)
    for row in tables.decisions.to_pylist():
        injected[row["cell"], row["stream"], row["ordinal"]] += sum(row[source] for source in _SOURCES)
    tasks: dict[str, list[_Task]] = defaultdict(list)
    for row in tables.episodes.to_pylist():
        tasks[row["cell"]].append(_task(row, injected[row["cell"], row["stream"], row["ordinal"]]))
    return tasks


def _task(row: dict[str, Any], memory_tokens: int) -> _Task:
    return _Task(
        stream=row["stream"],
        ordinal=row["ordinal"],
        outcome_class=row["outcome_class"],
        score=row["score"],
        reward=row["reward"],
        num_steps=row["num_steps"],
        agent_prompt_tokens=row["tokens_agent_prompt"],
        memory_tokens=memory_tokens,
        memory_size=row["memory_size"],
        ended_ms=int((row["started_at"] + row["duration_s"]) * 1000),
    )
