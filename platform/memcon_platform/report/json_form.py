"""The `--json` form of a report (architecture: "Commands"); NaN never occurs, absent values are null."""

from __future__ import annotations

from typing import Any

from memcon import codec
from memcon_platform.report import wording
from memcon_platform.report.conventions import LEARNED_FROM
from memcon_platform.report.data import CellResult, GroupResult, ReportData
from memcon_platform.report.measures import ContextLevel, Headroom, Success, Tokens
from memcon_platform.report.statistics import TASKS_ONLY, TWO_WAY

__all__ = ["to_json"]


def to_json(data: ReportData) -> dict[str, Any]:
    """A JSON-able form of the report; `cells` in order of the plan, `groups` in that of the tables."""
    return {
        "schema_version": 1,
        "run": data.run,
        "created_at": data.created_at,
        "provenance": codec.encode(data.provenance),
        "interval": {"level": data.level, "method": TWO_WAY, "resamples": data.resamples},
        "difference_intervals": {
            "interval_these_seeds": {"generalises_to": wording.THESE_SEEDS, "method": TASKS_ONLY},
            "interval": {"generalises_to": wording.OTHER_SEEDS, "method": TWO_WAY},
        },
        "backbones": codec.encode(data.backbones),
        "disclosures": list(data.disclosures),
        "notes": list(data.notes),
        "headrooms": [_headroom(found) for found in data.headrooms],
        "cells": [_cell(cell) for cell in data.cells],
        "groups": [_group(group) for group in data.groups],
    }


def _cell(cell: CellResult) -> dict[str, Any]:
    return {
        "cell_id": cell.cell_id,
        **cell.labels,
        "seed": cell.seed,
        "streams": cell.streams,
        "status": cell.status,
        "planned": cell.planned,
        "done": cell.found,
        **_success(cell.success),
        "score": cell.mean_score,
        "tokens": _tokens(cell.tokens),
        "provenance": cell.provenance,
        "exact": cell.exact,
        "model_ids": list(cell.model_ids),
        "unevaluable_reasons": dict(cell.reasons),
        "group": cell.group,
    }


def _group(group: GroupResult) -> dict[str, Any]:
    return {
        **group.labels,
        "name": group.name,
        "label": group.label,
        "role": group.role,
        "mark": group.mark,
        "seeds": list(group.seeds),
        "streams": group.num_streams,
        "exact": group.exact,
        "planned": group.planned,
        "done": group.found,
        **_success(group.success),
        "score": group.mean_score,
        "num_steps": group.mean_steps,
        "last_quarter": _success(group.last_quarter),
        "quarters": codec.encode(group.quarters),
        "curve": codec.encode(group.curve),
        "difference_to_no_memory": codec.encode(group.difference),
        "yardsticks": codec.encode(group.yardsticks),
        "tokens": _tokens(group.tokens),
        "decisions": codec.encode(group.decisions),
        "by_goal_type": {name: _success(found) for name, found in group.by_goal_type.items()},
        "provenance": group.provenance,
        "cell_ids": list(group.cell_ids),
        "tables": group.num_tables,
        "tags": list(group.tags),
        "origins": list(group.origins),
        "by_family": {name: _success(found) for name, found in group.by_family.items()},
        "by_section": {str(section): _success(found) for section, found in group.by_section.items()},
        "missing_yardsticks": list(group.missing_yardsticks),
        "gains": codec.encode(group.gains),
        "contexts": [_level(level) for level in group.contexts],
        "heat_map": codec.encode(group.heat_map),
    }


def _headroom(found: Headroom) -> dict[str, Any]:
    benchmark, framework, backbone = found.arena
    return {
        "benchmark": benchmark,
        "framework": framework,
        "backbone": backbone,
        "memory": found.memory,
        "streams": found.streams,
        "by": found.by,
        "arms": list(found.arms),
        "missing": found.missing,
        "is_enough": found.is_enough,
        "verdict": wording.headroom(found),
        "oracle": _success(found.oracle) if found.oracle else None,
        "static": _success(found.static) if found.static else None,
        "oracle_injected": found.oracle_injected,
        "static_injected": found.static_injected,
        "difference": codec.encode(found.difference),
        "choices": {family: dict(arms) for family, arms in found.choices.items()},
        "static_arm": found.static_arm,
    }


def _level(level: ContextLevel) -> dict[str, Any]:
    contexts = [
        {**codec.encode(context), "n": context.per_table, "learned": context.learned} for context in level.contexts
    ]
    return {
        "schema": level.schema,
        "fields": list(level.fields),
        "tables": level.num_tables,
        "learned_from": LEARNED_FROM,
        "learned_share": level.learned_share,
        "contexts": contexts,
    }


def _success(found: Success) -> dict[str, Any]:
    interval = found.interval
    return {
        "n": found.num_tasks,
        "successes": found.successes,
        "unevaluable": found.unevaluable,
        "rate": found.rate,
        "interval": [interval.low, interval.high] if interval else None,
        "interval_method": interval.method if interval else None,
    }


def _tokens(tokens: Tokens) -> dict[str, Any]:
    return {**tokens.by_purpose, "injected": dict(tokens.by_source)}
