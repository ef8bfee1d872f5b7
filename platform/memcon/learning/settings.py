"""Checks, text form and comparison of `LearningSettings`, the settings that a table keeps for life."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcon import checks, codec
from memcon.errors import ConfigError
from memcon.learning import state_key
from memcon.policy_types import LearningSettings

__all__ = ["ESTIMATORS", "SCHEMA_VERSION", "check_settings", "difference", "encode_settings"]

# "ema": Eq. 7; "mean": Eq. 16 (MC-32); "capped_mean": ours, the mean whose count stops at `count_cap`.
ESTIMATORS = ("ema", "mean", "capped_mean")
SCHEMA_VERSION = 1
# Fields that came after journals and exports had been written: they stand in a text only where they say something, so
# that the text of settings without them stays what it was.
_ADDED: Mapping[str, Any] = {
    "count_cap": None,
    "pooling": [],
    "exploration_floor": 0.0,
    "frozen": False,
    "closed_kept": None,
}


def check_settings(settings: LearningSettings) -> None:
    """Refuse settings under which no table can learn.

    Raises:
        ConfigError: names the field, its value and what is allowed.
    """
    if settings.schema_version != SCHEMA_VERSION:
        raise ConfigError(
            f"schema_version = {settings.schema_version}: this memcon reads table settings of version {SCHEMA_VERSION}"
        )
    _check_estimator(settings)
    checks.in_range("alpha", settings.alpha, 0.0, 1.0)
    checks.in_range("gamma", settings.gamma, 0.0, 1.0)
    checks.in_range("exploration_floor", settings.exploration_floor, 0.0, 1.0)
    kept = settings.closed_kept
    if kept is not None and (type(kept) is not int or kept < 1):
        raise ConfigError(f"closed_kept = {kept!r}: expected a whole number >= 1, or null to remember all")
    _check_arms(settings)
    _check_keys(settings)


def _check_estimator(settings: LearningSettings) -> None:
    checks.choice("estimator", settings.estimator, ESTIMATORS)
    cap = settings.count_cap
    if settings.estimator == "capped_mean":
        if type(cap) is not int or cap < 1:
            raise ConfigError(f"count_cap = {cap!r}: estimator 'capped_mean' needs a whole number >= 1")
    elif cap is not None:
        raise ConfigError(f"count_cap = {cap!r}: estimator '{settings.estimator}' has none; take 'capped_mean'")


def _check_arms(settings: LearningSettings) -> None:
    arms = settings.action_ids
    if not arms or len(set(arms)) != len(arms) or not all(arms):
        raise ConfigError(f"action_ids = {list(arms)}: expected at least one arm, each named once")
    if len(settings.priors) != len(arms):
        raise ConfigError(f"priors: {len(settings.priors)} values for {len(arms)} arms; expected one an arm")
    for arm, prior in zip(arms, settings.priors, strict=True):
        checks.in_range(f"prior of '{arm}'", prior, -1e6, 1e6)


def _check_keys(settings: LearningSettings) -> None:
    finer, *coarser = state_key.chain_schemas(settings)
    for schema in coarser:
        # A proper subset: the keys of one state nest, and no level repeats another.
        if not schema.field_names < finer.field_names:
            raise ConfigError(
                f"pooling = {list(settings.pooling)}: the fields of '{schema.label}' are no proper part of those of "
                f"'{finer.label}' before it; list coarser keys only, finest first"
            )
        finer = schema


def encode_settings(settings: LearningSettings) -> dict[str, Any]:
    """`settings` as JSON-able values, in the form that journals and tables keep; `memcon.codec.decode` reads it."""
    encoded: dict[str, Any] = codec.encode(settings)
    for name, default in _ADDED.items():
        if encoded[name] == default:
            del encoded[name]
    return encoded


def difference(recorded: LearningSettings, asked: LearningSettings) -> str:
    """The fields that differ with both values, as "alpha: recorded 0.15, asked 0.2"; "" when equal."""
    old, new = codec.encode(recorded), codec.encode(asked)
    return "; ".join(f"{name}: recorded {old[name]}, asked {new[name]}" for name in old if old[name] != new[name])
