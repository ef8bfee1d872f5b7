"""The versioned Arrow schemas of the tables. Column names are field names of `memcon.types`.

Nested values are flattened: the fields of Task and Outcome keep their names (none collides), TokenUsage gets the prefix
`tokens_`, StateFeatures the prefix `feature_`. The rows of one task are joined by (cell, stream, ordinal). A column
whose field metadata says `volatile` may differ between two runs of equal settings (architecture: outside
byte-equality). Tokens of decisions are credentials and have no column.

A later version may add tables (`_FIRST_VERSION`) and columns (`ADDED`); files of earlier versions are read with the
values given there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

__all__ = [
    "ADDED",
    "ALL_TABLES",
    "BLOCK_TASKS",
    "KEYS",
    "SCHEMAS",
    "SCHEMA_VERSION",
    "TABLES",
    "Added",
    "is_volatile",
    "lacking",
    "readable_versions",
    "version_of",
]

SCHEMA_VERSION = 3
# Ordinals in one block of a stream.
BLOCK_TASKS = 50

_NAME = b"memcon.table"
_VERSION = b"memcon.schema_version"
_VOLATILE = {b"volatile": b"true"}

_MAP_OF_TEXT = pa.map_(pa.string(), pa.string())
_PER_ARM = pa.map_(pa.string(), pa.map_(pa.string(), pa.float64()))


def _column(name: str, kind: Any, *, nullable: bool = False) -> Any:
    return pa.field(name, kind, nullable=nullable)


def _volatile(name: str, kind: Any) -> Any:
    return pa.field(name, kind, nullable=False, metadata=_VOLATILE)


def _schema(name: str, *columns: Any) -> Any:
    return pa.schema(columns, metadata={_NAME: name.encode(), _VERSION: str(SCHEMA_VERSION).encode()})


_PLACE = (_column("cell", pa.string()), _column("stream", pa.int32()), _column("ordinal", pa.int32()))

EPISODES = _schema(
    "episodes",
    _volatile("run", pa.string()),
    *_PLACE,
    _column("section", pa.int32()),
    _column("task_id", pa.string()),
    _column("benchmark", pa.string()),
    _column("goal", pa.string()),
    _column("goal_type", pa.string()),
    # JSON with sorted keys.
    _column("payload", pa.string()),
    _column("max_steps", pa.int32()),
    _column("provenance", pa.string()),
    _volatile("episode_id", pa.string()),
    _volatile("epoch", pa.int32()),
    _column("seed", pa.uint64()),
    _column("first_observation", pa.string()),
    _column("outcome_class", pa.string()),
    _column("success", pa.bool_()),
    _column("score", pa.float64()),
    _column("num_steps", pa.int32()),
    _column("tokens_agent_prompt", pa.int64()),
    _column("tokens_agent_completion", pa.int64()),
    _column("tokens_memory_read", pa.int64()),
    _column("tokens_memory_write", pa.int64()),
    _column("tokens_memory_maintenance", pa.int64()),
    _column("tokens_judge", pa.int64()),
    _volatile("duration_s", pa.float64()),
    _column("error_boundary", pa.string()),
    _column("error", pa.string()),
    # Eq. 5; null for `unevaluable`.
    _column("reward", pa.float64(), nullable=True),
    _column("memory_size", pa.int64()),
    _volatile("started_at", pa.float64()),
    # Scheduled maintenance: operation -> "" or the error of a hook that failed.
    _column("maintenance", _MAP_OF_TEXT),
    # Rows of this task in `trials`.
    _column("num_trials", pa.int32()),
    # What the model's provider called itself (HX-3); null for a task of a memcon that kept none.
    _column("model_ids", pa.list_(pa.string()), nullable=True),
)

STEPS = _schema(
    "steps",
    *_PLACE,
    _column("index", pa.int32()),
    _column("kind", pa.string()),
    _column("action", pa.string()),
    _column("observation", pa.string()),
    _column("valid", pa.bool_()),
    _column("progress", pa.float64()),
    _column("prompt_tokens", pa.int64()),
    _column("completion_tokens", pa.int64()),
    _volatile("model_s", pa.float64()),
    _volatile("environment_s", pa.float64()),
)

DECISIONS = _schema(
    "decisions",
    *_PLACE,
    _column("position", pa.int32()),
    _volatile("decision_id", pa.string()),
    _volatile("episode_id", pa.string()),
    _column("trigger", pa.string()),
    _column("state_key", pa.string()),
    _column("feature_goal_type", pa.string()),
    _column("feature_step", pa.int32()),
    _column("feature_is_stuck", pa.bool_()),
    _column("feature_objects_held", pa.int32()),
    _column("feature_locations_visited", pa.int32()),
    _column("feature_memory_size", pa.int64()),
    _column("feature_plan_available", pa.bool_()),
    _column("feature_task_number", pa.int32()),
    _column("action_id", pa.string()),
    _column("propensity", pa.float64(), nullable=True),
    _column("allowed", pa.list_(pa.string())),
    _column("masked", _MAP_OF_TEXT),
    _column("tie_set", pa.list_(pa.string())),
    _column("forced", pa.bool_()),
    _column("is_fallback", pa.bool_()),
    _column("context_kept", pa.bool_()),
    _column("degraded", pa.string()),
    _column("hook_error", pa.string()),
    _column("item_ids", pa.list_(pa.string())),
    # MC-42: estimated tokens put into the prompt, by source.
    _column("tokens_items", pa.int64()),
    _column("tokens_insights", pa.int64()),
    _column("tokens_plan", pa.int64()),
    _column("tokens_hint", pa.int64()),
    _column("credit", pa.float64(), nullable=True),
    _column("policy", pa.string()),
    _column("table", pa.string()),
    _volatile("table_version", pa.int64()),
    _volatile("shard", pa.int32()),
    _volatile("received", pa.int64()),
    _volatile("latency_s", pa.float64()),
    _column("per_arm", _PER_ARM, nullable=True),
    _column("feature_benchmark", pa.string()),
    _column("feature_setup", pa.string()),
)

# The outcome matrix: every arm on every task (policy `every_arm`); the rows of a task in arm order.
TRIALS = _schema(
    "trials",
    *_PLACE,
    _column("action_id", pa.string()),
    _column("outcome_class", pa.string()),
    _column("success", pa.bool_()),
    _column("score", pa.float64()),
    _column("num_steps", pa.int32()),
    # Eq. 5; null for `unevaluable`.
    _column("reward", pa.float64(), nullable=True),
    _column("tokens_injected", pa.int64()),
    _column("tokens_agent_prompt", pa.int64()),
    _column("degraded", pa.string()),
)

SCHEMAS: dict[str, Any] = {"episodes": EPISODES, "steps": STEPS, "decisions": DECISIONS, "trials": TRIALS}
ALL_TABLES = tuple(SCHEMAS)
# The tables that every block has; `trials` is written only where there are trials (`episodes.num_trials`).
TABLES = ("episodes", "steps", "decisions")
# Columns that name a row, in sorting order.
KEYS: dict[str, tuple[str, ...]] = {
    "episodes": ("cell", "stream", "ordinal"),
    "steps": ("cell", "stream", "ordinal", "index"),
    "decisions": ("cell", "stream", "ordinal", "position"),
    "trials": ("cell", "stream", "ordinal", "action_id"),
}


@dataclass(frozen=True, slots=True)
class Added:
    """A column that came later."""

    # The first version that has it.
    version: int
    # What files of earlier versions mean by not having it; None: they do not tell, and neither do the tasks of such a
    # version in files that a later one has written again.
    absent: Any


# Table -> column -> how it came.
ADDED: dict[str, dict[str, Added]] = {
    "episodes": {"maintenance": Added(2, []), "num_trials": Added(2, 0), "model_ids": Added(3, None)},
    "decisions": {"feature_benchmark": Added(2, ""), "feature_setup": Added(2, "")},
}
# The first version that has the table, where that is not version 1.
_FIRST_VERSION = {"trials": 2}


def is_volatile(table: str, column: str) -> bool:
    """`column` of `table` may differ between two runs of equal settings."""
    return (SCHEMAS[table].field(column).metadata or {}).get(b"volatile") == b"true"


def readable_versions(table: str) -> tuple[str, ...]:
    """Schema versions of `table` that this memcon reads, oldest first."""
    return tuple(str(version) for version in range(_FIRST_VERSION.get(table, 1), SCHEMA_VERSION + 1))


def lacking(table: str, version: str) -> dict[str, Any]:
    """Columns that files of `table` of schema version `version` lack, each with the value that stands for it."""
    return {name: column.absent for name, column in ADDED.get(table, {}).items() if int(version) < column.version}


def version_of(schema: Any) -> tuple[str, str]:
    """Table name and schema version that a file's schema carries; empty texts when it is not ours."""
    metadata = schema.metadata or {}
    return metadata.get(_NAME, b"").decode(), metadata.get(_VERSION, b"").decode()
