"""Which numbers of a task are tracked, and the names that MLflow takes for them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from memcon import ids

__all__ = ["TrackedTask", "cell_summary", "finite", "flat_parameters", "metric_name", "safe_name", "task_metrics"]

# Limits of MLflow 3.17 (mlflow.utils.validation).
MAX_KEY = 250
MAX_PARAMETER = 6000
_REFUSED = re.compile(r"[^A-Za-z0-9_\-. :/]")


class TrackedTask(Protocol):
    """The fields of a finished task that are tracked; `memcon_workers.spec.TaskEnded` has them."""

    @property
    def outcome_class(self) -> str: ...  # noqa: D102
    @property
    def score(self) -> float: ...  # noqa: D102
    @property
    def reward(self) -> float | None: ...  # noqa: D102
    @property
    def num_steps(self) -> int: ...  # noqa: D102
    @property
    def agent_prompt_tokens(self) -> int: ...  # noqa: D102
    @property
    def memory_tokens(self) -> int: ...  # noqa: D102
    @property
    def memory_size(self) -> int: ...  # noqa: D102


def task_metrics(task: TrackedTask) -> dict[str, float | None]:
    """Metrics of one task, by name; `success` and `score` are absent when it could not be evaluated.

    Few on purpose: each costs a row in the tracking store, and Parquet has everything.
    """
    evaluated = task.outcome_class != "unevaluable"
    return {
        "success": float(task.outcome_class == "success") if evaluated else None,
        "score": task.score if evaluated else None,
        "reward": task.reward,
        "num_steps": float(task.num_steps),
        "agent_prompt_tokens": float(task.agent_prompt_tokens),
        "memory_tokens": float(task.memory_tokens),
        "memory_size": float(task.memory_size),
    }


def cell_summary(tasks: Iterable[TrackedTask]) -> dict[str, float | None]:
    """Final metrics of a cell over its tasks, named `final/...`; rates leave unevaluable tasks out."""
    rows = [(task.outcome_class, task_metrics(task)) for task in tasks]
    evaluated = [metrics for outcome, metrics in rows if outcome != "unevaluable"]
    count = len(evaluated)

    def mean(name: str) -> float | None:
        return sum(metrics[name] or 0.0 for metrics in evaluated) / count if count else None

    return {
        "final/num_tasks": float(count),
        "final/unevaluable": float(len(rows) - count),
        "final/success_rate": mean("success"),
        "final/score": mean("score"),
        "final/num_steps": mean("num_steps"),
        "final/agent_prompt_tokens": mean("agent_prompt_tokens"),
        "final/memory_tokens": mean("memory_tokens"),
    }


def finite(values: Mapping[str, float | None]) -> dict[str, float]:
    """Values that a metric may have: None, NaN and infinity are left out."""
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}


def metric_name(name: str, stream: int, streams: int) -> str:
    """Name of a task metric: of its own when the cell has one stream, else under the stream, which the UI groups."""
    return safe_name(name if streams == 1 else f"stream-{stream:03d}/{name}")


def safe_name(name: str) -> str:
    """`name` as MLflow takes it; a changed name ends in a hash of the given one, so that two never fall together."""
    parts = [part for part in _REFUSED.sub("_", name).split("/") if part.strip(". ")]
    clean = "/".join(parts) or "_"
    if clean == name and len(name) <= MAX_KEY:
        return name
    return f"{clean[: MAX_KEY - 9]}-{ids.stable_hash('name', name, size=4)}"


def flat_parameters(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Nested settings as "path.to.key" -> text within MLflow's limits; a long value keeps its start and a hash."""
    flat: dict[str, str] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, Mapping) and value:
            for key, item in value.items():
                walk(f"{path}.{key}" if path else str(key), item)
        else:
            flat[safe_name(path)] = _text(value)

    walk("", parameters)
    return flat


def _text(value: Any, limit: int = MAX_PARAMETER) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    if len(text) <= limit:
        return text
    return f"{text[: limit - 40]}... (blake2b {ids.stable_hash('value', text)})"
