"""Episodes to rows of the tables; nothing else."""

from __future__ import annotations

import json
from typing import Any

from memcon import codec
from memcon.types import Decision, Episode, OutcomeClass

__all__ = ["decision_rows", "episode_row", "step_rows", "trial_rows"]


def episode_row(episode: Episode) -> dict[str, Any]:
    """The row of `episodes` for one finished task."""
    row = codec.encode(episode)
    task, outcome = row.pop("task"), row.pop("outcome")
    tokens = outcome.pop("tokens")
    del row["steps"], row["decisions"], row["trials"]
    # Pairs in sorted order, here and below: a mapping's own order must not reach the bytes.
    row["maintenance"] = sorted(row["maintenance"].items())
    payload = json.dumps(task.pop("payload"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    counted = {f"tokens_{purpose}": count for purpose, count in tokens.items()}
    derived = {"payload": payload, "success": episode.outcome.success, "num_trials": len(episode.trials)}
    return {**row, **task, **outcome, **counted, **derived}


def step_rows(episode: Episode) -> list[dict[str, Any]]:
    """The rows of `steps` for one finished task, in order."""
    place = _place(episode)
    return [{**place, **codec.encode(step)} for step in episode.steps]


def decision_rows(episode: Episode) -> list[dict[str, Any]]:
    """The rows of `decisions` for one finished task, in order."""
    place = _place(episode)
    return [{**place, **_decision(decision)} for decision in episode.decisions]


def trial_rows(episode: Episode) -> list[dict[str, Any]]:
    """The rows of `trials` for one finished task, in arm order; empty for a task without trials."""
    place = _place(episode)
    return [
        {**place, **codec.encode(trial), "success": trial.outcome_class is OutcomeClass.SUCCESS}
        for trial in episode.trials
    ]


def _place(episode: Episode) -> dict[str, Any]:
    return {"cell": episode.cell, "stream": episode.stream, "ordinal": episode.ordinal}


def _decision(decision: Decision) -> dict[str, Any]:
    row = codec.encode(decision)
    features = row.pop("features")
    row["masked"] = sorted(row["masked"].items())
    if row["per_arm"] is not None:
        row["per_arm"] = [(arm, sorted(values.items())) for arm, values in sorted(row["per_arm"].items())]
    return {**row, **{f"feature_{name}": value for name, value in features.items()}}
