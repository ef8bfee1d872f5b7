"""Tracking: a run's cells and tasks as MLflow runs. A view of what Parquet holds: it may be away, late or rebuilt."""

from memcon_platform.tracking.backfill import RebuildReport, rebuild
from memcon_platform.tracking.metrics import TrackedTask, cell_summary, task_metrics
from memcon_platform.tracking.mlflow_tracker import MlflowTracker
from memcon_platform.tracking.port import CellInfo, NullTracker, RunInfo, Tracker, TrackingEnd, infos_of

__all__ = [
    "CellInfo",
    "MlflowTracker",
    "NullTracker",
    "RebuildReport",
    "RunInfo",
    "TrackedTask",
    "Tracker",
    "TrackingEnd",
    "cell_summary",
    "infos_of",
    "rebuild",
    "task_metrics",
]
