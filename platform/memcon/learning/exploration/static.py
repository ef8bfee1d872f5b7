"""Policies that learn nothing: `fixed`, `uniform`, and those without a table, `none` and `every_arm`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NoReturn

from memcon import checks, registry
from memcon.errors import ConfigError
from memcon.learning import actions
from memcon.learning.exploration.learned import LearnedConfig
from memcon.learning.exploration.rule import Rule, TieSet, TieSetRule, check_parameters
from memcon.learning.q_table import KeyView
from memcon.policy_types import LearningSettings

__all__ = [
    "EVERY_ARM",
    "FIXED",
    "NONE",
    "UNIFORM",
    "EveryArmConfig",
    "FixedConfig",
    "NoneConfig",
    "UniformConfig",
]


@dataclass(frozen=True, slots=True)
class _Fixed(TieSetRule):
    """Always the same arm."""

    action_id: str

    def ties(self, views: tuple[KeyView, ...], allowed: tuple[str, ...]) -> TieSet:
        if self.action_id not in allowed:
            raise ConfigError(
                f"policy 'fixed': its arm '{self.action_id}' is masked here; allowed: {', '.join(allowed)}; "
                "take one of these, or set control.unsupported_arms to 'noop'"
            )
        return TieSet(best=(views[0].action_ids.index(self.action_id),))


@dataclass(frozen=True, slots=True)
class _Uniform(TieSetRule):
    """Each allowed arm with the same probability."""

    def ties(self, views: tuple[KeyView, ...], allowed: tuple[str, ...]) -> TieSet:
        return TieSet(best=tuple([views[0].action_ids.index(arm) for arm in allowed]))


@dataclass(slots=True, kw_only=True)
class FixedConfig(LearnedConfig):
    """One arm always: a static policy whose values are still recorded."""

    rule: ClassVar[str] = "fixed"
    # Whether choices depend on what was learned: a warm table means nothing to the others.
    uses_table: ClassVar[bool] = False
    own: ClassVar[tuple[str, ...]] = ("action_id",)

    action_id: str

    def __post_init__(self) -> None:
        LearnedConfig.__post_init__(self)
        arms = actions.action_set(self.action_set).actions
        if any(arm.only_when_stuck for arm in arms if arm.action_id == self.action_id):
            always = ", ".join(arm.action_id for arm in arms if not arm.only_when_stuck)
            raise ConfigError(
                f"action_id = '{self.action_id}': in action set '{self.action_set}' it may be chosen only while the "
                f"agent is stuck; take one of: {always}"
            )

    @staticmethod
    def build(settings: LearningSettings) -> Rule:
        """As in `LearnedConfig`."""
        check_parameters(settings, *FixedConfig.own)
        action_id = str(settings.rule_parameters["action_id"])
        checks.choice("action_id", action_id, settings.action_ids)
        return _Fixed(action_id)


@dataclass(slots=True, kw_only=True)
class UniformConfig(LearnedConfig):
    """A random arm each time: the control that replay needs."""

    rule: ClassVar[str] = "uniform"
    uses_table: ClassVar[bool] = False

    @staticmethod
    def build(settings: LearningSettings) -> Rule:
        """As in `LearnedConfig`."""
        check_parameters(settings)
        return _Uniform()


@dataclass(slots=True, kw_only=True)
class NoneConfig:
    """No policy: the backend's own retrieval once at task start."""

    uses_table: ClassVar[bool] = False

    def learning_settings(self) -> None:
        """There is no table."""
        return


@dataclass(slots=True, kw_only=True)
class EveryArmConfig:
    """No policy: every arm is played on each task, which gives the outcome matrix that studies replay rules on."""

    uses_table: ClassVar[bool] = False
    action_set: str = "default"

    def __post_init__(self) -> None:
        checks.choice("action_set", self.action_set, actions.action_set_names())

    @property
    def trial_set(self) -> str:
        """Name of the action set whose arms are played; a policy without this attribute plays one arm."""
        return self.action_set

    def learning_settings(self) -> None:
        """There is no table."""
        return


def _build_without_table(settings: LearningSettings) -> NoReturn:
    raise ConfigError(
        f"policy '{settings.rule}' has no table to choose from (settings of rule '{settings.rule}'); take another rule"
    )


FIXED = registry.Plugin(config=FixedConfig, build=FixedConfig.build, summary="always one arm")
UNIFORM = registry.Plugin(
    config=UniformConfig, build=UniformConfig.build, summary="a random arm, with its probability logged"
)
NONE = registry.Plugin(
    config=NoneConfig, build=_build_without_table, summary="no policy: the backend's own default retrieval"
)
EVERY_ARM = registry.Plugin(
    config=EveryArmConfig, build=_build_without_table, summary="every arm on each task: the outcome matrix of a study"
)
