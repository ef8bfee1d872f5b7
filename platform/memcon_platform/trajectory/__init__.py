"""Trajectories: the Parquet tables `episodes`, `steps`, `decisions` and `trials` of a run; written by workers.

Owns the schemas, the blocks, their reading, comparison and integrity. Knows nothing of reports or of MLflow.
"""

from memcon_platform.trajectory.comparison import Difference, compare
from memcon_platform.trajectory.integrity import CheckReport, check
from memcon_platform.trajectory.reader import RunTables, read_run
from memcon_platform.trajectory.schemas import BLOCK_TASKS, SCHEMA_VERSION, TABLES
from memcon_platform.trajectory.sink import ParquetSink, SinkFactory

__all__ = [
    "BLOCK_TASKS",
    "SCHEMA_VERSION",
    "TABLES",
    "CheckReport",
    "Difference",
    "ParquetSink",
    "RunTables",
    "SinkFactory",
    "check",
    "compare",
    "read_run",
]
