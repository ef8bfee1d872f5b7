"""Episodes to rows of the three tables; nothing else."""

from __future__ import annotations

import json
from typing import Any

from memcon import codec
from memcon.types import Decision, Episode

__all__ = ["decision_rows", "episode_row", "step_rows"]


def episode_row(episode: Episode) -> dict[str, Any]:
    """The row of `episodes` for one finished task."""
    row = codec.encode(episode)
    task, outcome = row.pop("task"), row.pop("outcome")
    tokens = outcome.pop("tokens")
    del row["steps"], row["decisions"]
    payload = json.dumps(task.pop("payload"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    counted = {f"tokens_{purpose}": count for purpose, count in tokens.items()}
    return {**row, **task, **outcome, **counted, "payload": payload, "success": episode.outcome.success}


def step_rows(episode: Episode) -> list[dict[str, Any]]:
    """The rows of `steps` for one finished task, in order."""
    place = _place(episode)
    return [{**place, **codec.encode(step)} for step in episode.steps]


def decision_rows(episode: Episode) -> list[dict[str, Any]]:
    """The rows of `decisions` for one finished task, in order."""
    place = _place(episode)
    return [{**place, **_decision(decision)} for decision in episode.decisions]


def _place(episode: Episode) -> dict[str, Any]:
    return {"cell": episode.cell, "stream": episode.stream, "ordinal": episode.ordinal}


def _decision(decision: Decision) -> dict[str, Any]:
    row = codec.encode(decision)
    features = row.pop("features")
    # Pairs in sorted order: a mapping's own order must not reach the bytes.
    row["masked"] = sorted(row["masked"].items())
    if row["per_arm"] is not None:
        row["per_arm"] = [(arm, sorted(values.items())) for arm, values in sorted(row["per_arm"].items())]
    return {**row, **{f"feature_{name}": value for name, value in features.items()}}
