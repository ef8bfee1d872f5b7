"""What the config of every rule with a table can set, and the profiles of Table 6."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from memcon import checks
from memcon.learning import actions, state_key
from memcon.learning.exploration.rule import Rule
from memcon.learning.settings import check_settings
from memcon.policy_types import LearningSettings

__all__ = ["PROFILES", "LearnedConfig", "Profile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Step size, discount and exploration coefficient that the paper tuned for one backbone."""

    alpha: float
    gamma: float
    c: float


# Where neither a policy nor its backbone names one: the paper's first column.
_FIRST_PROFILE = "gpt-4.1-mini"

# Table 6, "policy", by backbone (MC-30).
PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "gpt-4.1-mini": Profile(alpha=0.15, gamma=0.9, c=1.4),
        "claude-sonnet-4": Profile(alpha=0.12, gamma=0.92, c=1.2),
        "deepseek-v3.2": Profile(alpha=0.18, gamma=0.88, c=1.6),
    }
)


@dataclass(slots=True, kw_only=True)
class LearnedConfig(ABC):
    """Keys that every rule with a table has. A config is right when its table settings are, and its rule builds.

    `alpha`, `gamma` and a rule's `c` are the profile's where they are null. A value that is given wins; one that says
    what the profile says becomes null, so that both ways to write a cell name the same cell. So does the name of the
    first profile: who sets up a cell gives the profile of its backbone (`memcon_platform.config`).
    """

    # Name of the policy, and of its own parameters.
    rule: ClassVar[str]
    own: ClassVar[tuple[str, ...]] = ()

    # Step size and within-episode discount of Eq. 7.
    alpha: float | None = None
    gamma: float | None = None
    # "ema" (Eq. 7), "mean" (Eq. 16), or "capped_mean": a mean that keeps following once `count_cap` returns are in.
    estimator: str = "ema"
    count_cap: int | None = None
    # Q starts at the priors of Table 6, else at 0.
    warm_start: bool = True
    action_set: str = "default"
    state_key: str = "paper"
    # Coarser keys that the statistics are pooled over, finest first (reading A-31).
    pooling: tuple[str, ...] = ()
    # Share of decisions drawn uniformly from the allowed arms: gives every arm a propensity above 0.
    exploration_floor: float = 0.0
    # Backbone of Table 6 whose values stand in for nulls. None: the cell's backbone where it is one, else the first.
    profile: str | None = None

    def __post_init__(self) -> None:
        checks.choice("profile", self.used_profile, PROFILES)
        checks.choice("action_set", self.action_set, actions.action_set_names())
        if self.profile == _FIRST_PROFILE:
            self.profile = None
        for name in ("alpha", "gamma", "c"):
            if getattr(self, name, None) == getattr(PROFILES[self.used_profile], name):
                setattr(self, name, None)
        settings = self.learning_settings()
        check_settings(settings)
        self.build(settings)

    @property
    def used_profile(self) -> str:
        """Name of the profile whose values stand in for nulls."""
        return _FIRST_PROFILE if self.profile is None else self.profile

    @staticmethod
    @abstractmethod
    def build(settings: LearningSettings) -> Rule:
        """The rule under `settings`.

        Raises:
            ConfigError: the rule refuses its parameters, or settings that it cannot learn under.
        """

    def learning_settings(self) -> LearningSettings:
        """Settings of a table under this rule."""
        chosen = actions.action_set(self.action_set)
        flat = (self._flat_prior(),) * len(chosen.actions)
        priors = actions.priors(chosen, warm_start=True) if self.warm_start else flat
        return LearningSettings(
            rule=self.rule,
            rule_parameters={name: self._used(name) for name in self.own},
            action_ids=chosen.action_ids,
            priors=priors,
            action_set=chosen.name,
            fingerprint=actions.fingerprint(chosen),
            estimator=self.estimator,
            count_cap=self.count_cap,
            alpha=float(self._used("alpha")),
            gamma=float(self._used("gamma")),
            key_schema=state_key.key_schema(self.state_key).label,
            pooling=tuple([state_key.key_schema(name).label for name in self.pooling]),
            exploration_floor=float(self.exploration_floor),
        )

    def _flat_prior(self) -> float:
        """Where Q starts without warm start (MC-28)."""
        return 0.0

    def _used(self, name: str) -> float | str:
        given: float | str | None = getattr(self, name)
        if given is None:
            given = getattr(PROFILES[self.used_profile], name)
        return given if isinstance(given, str) else float(given)
