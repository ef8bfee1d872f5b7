"""MlflowStore: the conversation with MLflow. Blocking, and raises what MLflow raises: its callers decide.

Every call names its run. The fluent API's active run is never used: threads and tasks would share it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memcon.errors import MissingExtraError
from memcon_platform.config.plan_file import CONFIG_FILE
from memcon_platform.tracking.metrics import flat_parameters, safe_name
from memcon_platform.tracking.port import CellInfo, RunInfo

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

__all__ = ["MetricRow", "MlflowStore"]

# Limits of MLflow 3.17 (mlflow.utils.validation).
MAX_METRICS = 1000
MAX_PARAMETERS = 100
MAX_TAG = 8000

_KIND, _CELL, _RUN, _CREATED = "memcon.kind", "memcon.cell_id", "memcon.run", "memcon.created_at"
# What the UI shows as the description of a run.
_DESCRIPTION = "mlflow.note.content"
_SQLITE = "sqlite:///"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One value of a metric at a step."""

    name: str
    value: float
    step: int
    # Milliseconds since the epoch.
    timestamp_ms: int


class MlflowStore:
    """The MLflow runs of one memcon run. One thread at a time.

    Raises:
        MissingExtraError: mlflow is not installed.
    """

    def __init__(self, uri: str, experiment: str, run: RunInfo) -> None:
        self.uri, self._run = uri, run
        self._identity = {_RUN: run.run, _CREATED: run.created_at}
        with _first_start(uri):
            self._client = _client(uri)
            self._experiment = self._open_experiment(experiment)
            self._parent = self._find_or_create(run.run, {_KIND: "run", **self._identity}, run.tags)
        self._cells: dict[str, Run] = {}

    def open_cell(self, cell: CellInfo) -> str:
        """Id of the cell's MLflow run: found by its tags, else created; set to running; parameters logged once.

        A parameter that is there already is never logged again, whatever its value.
        """
        if cell.cell_id in self._cells:
            return str(self._cells[cell.cell_id].info.run_id)
        identity = {_KIND: "cell", _CELL: cell.cell_id, **self._identity}
        tags = {"mlflow.parentRunId": self._parent.info.run_id, **self._run.tags}
        tags |= {f"memcon.{axis}": value for axis, value in cell.axes.items()}
        if cell.about:
            tags[_DESCRIPTION] = cell.about
        run = self._find_or_create(cell.label, identity, tags)
        self._log_parameters(run, flat_parameters(cell.parameters))
        self._cells[cell.cell_id] = run
        return str(run.info.run_id)

    def log(self, run_id: str, rows: Sequence[MetricRow]) -> None:
        """Log at most `MAX_METRICS` metric values."""
        from mlflow.entities import Metric

        metrics = [Metric(row.name, row.value, row.timestamp_ms, row.step) for row in rows]
        self._client.log_batch(run_id, metrics=metrics, synchronous=True)

    def steps_of(self, run_id: str, name: str) -> set[int]:
        """Steps at which the metric has a value."""
        if name not in self._client.get_run(run_id).data.metrics:
            return set()
        return {metric.step for metric in self._client.get_metric_history(run_id, name)}

    def metric_names(self, run_id: str) -> set[str]:
        """Metrics that the run has."""
        return set(self._client.get_run(run_id).data.metrics)

    def finish(self, run_id: str, artifacts: Sequence[Path] = ()) -> None:
        """Log files and set the run to finished."""
        for path in artifacts:
            self._client.log_artifact(run_id, str(path))
        self._client.set_terminated(run_id, status="FINISHED")

    def finish_run(self, artifacts: Sequence[Path] = ()) -> None:
        """`finish` of the parent run, with the config that it was made from."""
        config = self._run.run_dir / CONFIG_FILE
        self.finish(self._parent.info.run_id, [*([config] if config.exists() else []), *artifacts])

    # --- inside ------------------------------------------------------------------------------------------------------

    def _open_experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name, artifact_location=_artifacts(self.uri, name)))
            except MlflowException:
                # Another process was first (the lock covers SQLite on this machine only).
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _find_or_create(self, name: str, identity: Mapping[str, str], tags: Mapping[str, Any]) -> Run:
        found = self._find(identity)
        if found is None:
            texts = {safe_name(key): str(value)[:MAX_TAG] for key, value in tags.items()}
            return self._client.create_run(self._experiment, run_name=name, tags={**texts, **identity})
        if found.info.status != "RUNNING":
            self._client.update_run(found.info.run_id, status="RUNNING")
        return found

    def _find(self, identity: Mapping[str, str]) -> Run | None:
        # The run's name is free text, which the filter language cannot always quote: compare it here.
        key = _CELL if _CELL in identity else _KIND
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment],
                filter_string=f"tags.`{key}` = '{identity[key]}'",
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
            for run in page:
                if all(run.data.tags.get(name) == value for name, value in identity.items()):
                    return run
            token = page.token
            if not token:
                return None

    def _log_parameters(self, run: Run, parameters: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        missing = [Param(key, text) for key, text in parameters.items() if key not in run.data.params]
        for start in range(0, len(missing), MAX_PARAMETERS):
            self._client.log_batch(run.info.run_id, params=missing[start : start + MAX_PARAMETERS], synchronous=True)


def _client(uri: str) -> MlflowClient:
    # MLflow reads these when it is imported: no telemetry, and no minutes of retries when a server is away.
    environment = os.environ  # noqa: TID251 - this module is the shell around MLflow
    environment.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    environment.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    environment.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise MissingExtraError("mlflow", "platform") from error
    # Its import sets the level of its own logger.
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    return MlflowClient(tracking_uri=uri)


def _sqlite_file(uri: str) -> Path | None:
    return Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None


def _artifacts(uri: str, experiment: str) -> str | None:
    """Artefacts lie beside the SQLite file; a server decides for itself."""
    file = _sqlite_file(uri)
    if file is None:
        return None
    return (file.resolve().parent / "mlartifacts" / safe_name(experiment)).as_uri()


def _require_database(file: Path) -> None:
    """Refuse a file that SQLite cannot open: MLflow itself would try again for more than a minute (measured: 101 s).

    Raises:
        sqlite3.Error: it cannot be opened, is locked, or is no database.
    """
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA schema_version").fetchone()


@contextmanager
def _first_start(uri: str) -> Iterator[None]:
    """One process at a time sets the schema of a SQLite file up and looks for its runs (it races otherwise)."""
    file = _sqlite_file(uri)
    if file is None:
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_name(file.name + ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            _require_database(file)
            yield
        finally:
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)
