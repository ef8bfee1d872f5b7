"""Means, shares and counts of a group's samples: tokens, curves, arms, keys, goal types. No intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memcon.learning.state_key import max_keys, schema_of
from memcon_platform.report.measures import ArmShare, CurvePoint, DecisionSummary, Success, Tokens
from memcon_platform.report.samples import PURPOSES, SOURCES, CellSample, quarter_of

__all__ = ["curve", "decisions", "mean_of", "success_by", "tokens"]


def mean_of(samples: Sequence[CellSample], column: str) -> float | None:
    """Mean of an episode column over evaluated tasks; None without any."""
    values = np.concatenate([sample.episodes[column][sample.evaluated] for sample in samples])
    return float(values.mean()) if values.size else None


def tokens(samples: Sequence[CellSample]) -> Tokens:
    """Mean tokens per evaluated task; decisions of unevaluable tasks are left out with them."""
    num_tasks = sum(int(sample.evaluated.sum()) for sample in samples)
    if not num_tasks:
        return Tokens()
    by_purpose = {
        purpose: sum(int(s.episodes[f"tokens_{purpose}"][s.evaluated].sum()) for s in samples) / num_tasks
        for purpose in PURPOSES
    }
    inside = [sample.evaluated[sample.decided] for sample in samples]
    by_source = {
        source: sum(int(s.decisions[f"tokens_{source}"][kept].sum()) for s, kept in zip(samples, inside, strict=True))
        / num_tasks
        for source in SOURCES
    }
    return Tokens(by_purpose=by_purpose, by_source=by_source)


def curve(samples: Sequence[CellSample], parts: int) -> tuple[CurvePoint, ...]:
    """Success in `parts` equal windows of the streams."""
    windows = np.concatenate([quarter_of(s, s.episodes, parts)[s.evaluated] for s in samples])
    success = np.concatenate([s.episodes["success"][s.evaluated] for s in samples]).astype(bool)
    points = []
    for part in range(parts):
        inside = success[windows == part]
        rate = float(inside.mean()) if inside.size else None
        points.append(CurvePoint(position=(part + 0.5) / parts, num_tasks=inside.size, rate=rate))
    return tuple(points)


def success_by(samples: Sequence[CellSample], column: str) -> dict[Any, Success]:
    """Success for each value of an episode column ("goal_type", "benchmark", "section"), sorted."""
    tasks: Counter[Any] = Counter()
    won: Counter[Any] = Counter()
    lost: Counter[Any] = Counter()
    for sample in samples:
        columns = (sample.episodes[column].tolist(), sample.evaluated.tolist(), sample.episodes["success"].tolist())
        for value, evaluated, success in zip(*columns, strict=True):
            tasks[value] += evaluated
            won[value] += evaluated and success
            lost[value] += not evaluated
    return {
        value: Success(num_tasks=tasks[value], successes=won[value], unevaluable=lost[value]) for value in sorted(tasks)
    }


def decisions(samples: Sequence[CellSample], shown: Mapping[str, int]) -> DecisionSummary | None:
    """What the policy did over all finished tasks; None for the policy `none`, which decides nothing.

    `shown` has how many goal types ("goal_type") and families ("benchmark") the benchmark has shown.
    """
    if all(sample.cell.policy.name == "none" for sample in samples):
        return None
    total = sum(len(sample.decisions["action_id"]) for sample in samples)
    num_tasks = sum(sample.num_found for sample in samples)
    if not total:
        return None
    keys: dict[str, set[str]] = {}
    degraded: Counter[str] = Counter()
    for sample in samples:
        for table, key in zip(sample.decisions["table"].tolist(), sample.decisions["state_key"].tolist(), strict=True):
            keys.setdefault(table, set()).add(key)
        degraded.update(reason for reason in sample.decisions["degraded"].tolist() if reason)
    return DecisionSummary(
        num_decisions=total,
        per_task=total / num_tasks,
        forced_share=_count(samples, "forced") / total,
        keys_visited=sum(len(found) for found in keys.values()) / len(keys),
        keys_possible=_keys_possible(next(iter(next(iter(keys.values())))), shown),
        num_tables=len(keys),
        fallbacks=_count(samples, "is_fallback"),
        hook_errors=_count(samples, "hook_error"),
        degraded=dict(sorted(degraded.items())),
        arms=_arms(samples, total),
    )


def _keys_possible(key: str, shown: Mapping[str, int]) -> int:
    schema = schema_of(key)
    # A goal type belongs to one family, and a cell has one set-up.
    families = 1 if "goal_type" in schema.field_names else shown["benchmark"]
    return max_keys(schema, shown["goal_type"], num_benchmarks=families)


def _arms(samples: Sequence[CellSample], total: int) -> tuple[ArmShare, ...]:
    chosen = np.concatenate([sample.decisions["action_id"] for sample in samples])
    quarters = np.concatenate([quarter_of(sample, sample.decisions) for sample in samples])
    in_quarter = [max(1, int((quarters == quarter).sum())) for quarter in range(4)]
    shares = []
    for arm in sorted(set(chosen.tolist())):
        mine = chosen == arm
        by_quarter = tuple(int((mine & (quarters == quarter)).sum()) / in_quarter[quarter] for quarter in range(4))
        count = int(mine.sum())
        shares.append(ArmShare(action_id=arm, count=count, share=count / total, by_quarter=by_quarter))
    return tuple(shares)


def _count(samples: Sequence[CellSample], column: str) -> int:
    return sum(int(np.count_nonzero(sample.decisions[column])) for sample in samples)
