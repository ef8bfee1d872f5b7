"""What a policy entry of an axis stands for: its config, and what its table is created with."""

from __future__ import annotations

from typing import Any

from memcon import registry
from memcon.policy_types import LearningSettings
from memcon_platform.config.plan import Entry

__all__ = ["policy_config", "policy_learning"]


def policy_config(policy: Entry) -> Any:
    """The config of the plug-in that `policy` names."""
    return registry.configure("policy", policy.name, policy.parameters)


def policy_learning(policy: Entry) -> LearningSettings | None:
    """What a table of `policy` is created with; None for a policy without one."""
    settings: LearningSettings | None = policy_config(policy).learning_settings()
    return settings
