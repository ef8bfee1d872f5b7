"""Checks and comparison of `LearningSettings`, the settings that a table keeps for life."""

from __future__ import annotations

from memcon import checks, codec
from memcon.errors import ConfigError
from memcon.policy_types import LearningSettings

__all__ = ["ESTIMATORS", "SCHEMA_VERSION", "check_settings", "difference"]

# "ema": Eq. 7; "mean": Eq. 16 (MC-32).
ESTIMATORS = ("ema", "mean")
SCHEMA_VERSION = 1


def check_settings(settings: LearningSettings) -> None:
    """Refuse settings under which no table can learn.

    Raises:
        ConfigError: names the field, its value and what is allowed.
    """
    if settings.schema_version != SCHEMA_VERSION:
        raise ConfigError(
            f"schema_version = {settings.schema_version}: this memcon reads table settings of version {SCHEMA_VERSION}"
        )
    checks.choice("estimator", settings.estimator, ESTIMATORS)
    checks.in_range("alpha", settings.alpha, 0.0, 1.0)
    checks.in_range("gamma", settings.gamma, 0.0, 1.0)
    arms = settings.action_ids
    if not arms or len(set(arms)) != len(arms) or not all(arms):
        raise ConfigError(f"action_ids = {list(arms)}: expected at least one arm, each named once")
    if len(settings.priors) != len(arms):
        raise ConfigError(f"priors: {len(settings.priors)} values for {len(arms)} arms; expected one an arm")
    for arm, prior in zip(arms, settings.priors, strict=True):
        checks.in_range(f"prior of '{arm}'", prior, -1e6, 1e6)


def difference(recorded: LearningSettings, asked: LearningSettings) -> str:
    """The fields that differ with both values, as "alpha: recorded 0.15, asked 0.2"; "" when equal."""
    old, new = codec.encode(recorded), codec.encode(asked)
    return "; ".join(f"{name}: recorded {old[name]}, asked {new[name]}" for name in old if old[name] != new[name])
