"""Learning rules: how a table chooses an arm. Owns the rule port, `ucb` (Eq. 6), `fixed`, `uniform` and `none`.

A rule is a plug-in of kind `policy`. Its config dataclass gives `learning_settings()`, which the table journals; its
`build(settings)` gives the `Rule` back from them, so that a fold needs no config file. A rule holds no state and no
generator: the same view, arms and draw give the same choice on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, cast

from memcon import checks, ids, registry
from memcon.errors import ConfigError, UnknownNameError
from memcon.learning import actions, state_key
from memcon.learning.q_table import KeyView
from memcon.learning.settings import ESTIMATORS
from memcon.policy_types import LearningSettings

__all__ = [
    "FIXED",
    "NONE",
    "UCB",
    "UNIFORM",
    "Choice",
    "FixedConfig",
    "NoneConfig",
    "Rule",
    "UcbConfig",
    "UniformConfig",
    "build_rule",
    "draw_index",
    "ucb_bonus",
]

_DRAWS = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a rule chose, with the logging policy's probabilities."""

    action_id: str
    propensity: float
    # Arms between which the draw decided.
    tie_set: tuple[str, ...]
    # An unvisited arm was due (infinite bonus).
    forced: bool
    # Probability, bonus and score of every arm in arm order; no bonuses and scores when the rule has none.
    probabilities: tuple[float, ...]
    bonuses: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()


class Rule(Protocol):
    """A learning rule."""

    def choose(self, view: KeyView, *, allowed: tuple[str, ...], draw: int) -> Choice:
        """Choose among `allowed` (some arms of `view`, in arm order); all chance comes from the 64 bits of `draw`.

        Raises:
            ConfigError: the rule cannot choose among these arms.
        """
        ...


def ucb_bonus(c: float, log_total: float, taken: int) -> float:
    """Exploration bonus of Eq. 6, c * sqrt(ln N / N_a); infinite for an unvisited arm (MC-26).

    `log_total` is ln N of the key's own count, 0 when nothing was taken there.
    """
    return c * math.sqrt(log_total / taken) if taken else math.inf


def draw_index(draw: int, size: int) -> int:
    """An index in [0, size), each exactly as likely, from 64 random bits.

    The last incomplete run of values would favour low indices: those draws are hashed again.
    """
    limit = _DRAWS - _DRAWS % size
    while draw >= limit:
        draw = ids.draw64("redraw", draw)
    return draw % size


@dataclass(frozen=True, slots=True)
class _Ucb:
    """Eq. 6 with per-key counts; unvisited arms first, by prior, then by arm order (MC-26, MC-27)."""

    c: float

    def choose(self, view: KeyView, *, allowed: tuple[str, ...], draw: int) -> Choice:
        total = sum(view.taken)
        log_total = math.log(total) if total else 0.0
        bonuses = tuple([ucb_bonus(self.c, log_total, taken) for taken in view.taken])
        scores = tuple([q + bonus for q, bonus in zip(view.q, bonuses, strict=True)])
        options = range(len(scores)) if len(allowed) == len(scores) else [view.action_ids.index(arm) for arm in allowed]
        best = max([scores[i] for i in options])
        forced = best == math.inf
        if forced:
            unvisited = [i for i in options if not view.taken[i]]
            # max keeps the first of equals: arm order.
            tied = [max(unvisited, key=view.priors.__getitem__)]
        else:
            tied = [i for i in options if scores[i] == best]
        return _choice(view, tied, draw, forced=forced, bonuses=bonuses, scores=scores)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Always the same arm."""

    action_id: str

    def choose(self, view: KeyView, *, allowed: tuple[str, ...], draw: int) -> Choice:
        if self.action_id not in allowed:
            raise ConfigError(
                f"policy 'fixed': its arm '{self.action_id}' is masked here; allowed: {', '.join(allowed)}; "
                "take one of these, or set control.unsupported_arms to 'noop'"
            )
        return _choice(view, [view.action_ids.index(self.action_id)], draw)


@dataclass(frozen=True, slots=True)
class _Uniform:
    """Each allowed arm with the same probability."""

    def choose(self, view: KeyView, *, allowed: tuple[str, ...], draw: int) -> Choice:
        return _choice(view, [view.action_ids.index(arm) for arm in allowed], draw)


def _choice(
    view: KeyView,
    tied: list[int],
    draw: int,
    *,
    forced: bool = False,
    bonuses: tuple[float, ...] = (),
    scores: tuple[float, ...] = (),
) -> Choice:
    chosen = tied[0] if len(tied) == 1 else tied[draw_index(draw, len(tied))]
    propensity = 1.0 / len(tied)
    probabilities = [0.0] * len(view.action_ids)
    for i in tied:
        probabilities[i] = propensity
    return Choice(
        action_id=view.action_ids[chosen],
        propensity=propensity,
        tie_set=tuple([view.action_ids[i] for i in tied]),
        forced=forced,
        probabilities=tuple(probabilities),
        bonuses=bonuses,
        scores=scores,
    )


@dataclass(slots=True, kw_only=True)
class _LearnedConfig:
    """What every rule with a table can set."""

    # Step size and within-episode discount of Eq. 7 (Table 6 gives them per backbone, MC-30).
    alpha: float = 0.15
    gamma: float = 0.9
    # "ema" (Eq. 7) or "mean" (Eq. 16).
    estimator: str = "ema"
    # Q starts at the priors of Table 6, else at 0.
    warm_start: bool = True
    action_set: str = "default"
    state_key: str = "paper"

    def __post_init__(self) -> None:
        checks.in_range("alpha", self.alpha, 0.0, 1.0)
        checks.in_range("gamma", self.gamma, 0.0, 1.0)
        checks.choice("estimator", self.estimator, ESTIMATORS)
        checks.choice("action_set", self.action_set, actions.action_set_names())
        state_key.key_schema(self.state_key)

    def _settings(self, rule: str, **parameters: float | str) -> LearningSettings:
        chosen = actions.action_set(self.action_set)
        return LearningSettings(
            rule=rule,
            rule_parameters=parameters,
            action_ids=chosen.action_ids,
            priors=actions.priors(chosen, warm_start=self.warm_start),
            action_set=chosen.name,
            fingerprint=actions.fingerprint(chosen),
            estimator=self.estimator,
            alpha=float(self.alpha),
            gamma=float(self.gamma),
            key_schema=state_key.key_schema(self.state_key).label,
        )


@dataclass(slots=True, kw_only=True)
class UcbConfig(_LearnedConfig):
    """The paper's policy."""

    # Exploration coefficient of Eq. 6.
    c: float = 1.4

    def __post_init__(self) -> None:
        _LearnedConfig.__post_init__(self)
        checks.in_range("c", self.c, 0.0, 1000.0)

    def learning_settings(self) -> LearningSettings:
        """Settings of a table under this rule."""
        return self._settings("ucb", c=float(self.c))


@dataclass(slots=True, kw_only=True)
class FixedConfig(_LearnedConfig):
    """One arm always: a static policy whose values are still recorded."""

    action_id: str

    def __post_init__(self) -> None:
        _LearnedConfig.__post_init__(self)
        checks.choice("action_id", self.action_id, actions.action_set(self.action_set).action_ids)

    def learning_settings(self) -> LearningSettings:
        """Settings of a table under this rule."""
        return self._settings("fixed", action_id=self.action_id)


@dataclass(slots=True, kw_only=True)
class UniformConfig(_LearnedConfig):
    """A random arm each time: the control that replay needs."""

    def learning_settings(self) -> LearningSettings:
        """Settings of a table under this rule."""
        return self._settings("uniform")


@dataclass(slots=True, kw_only=True)
class NoneConfig:
    """No policy: the backend's own retrieval once at task start."""

    def learning_settings(self) -> None:
        """There is no table."""
        return


def build_rule(settings: LearningSettings) -> Rule:
    """The rule that `settings` name, from the plug-ins of kind `policy`.

    Raises:
        UnknownNameError: no such rule is installed.
        ConfigError: the rule refuses its parameters.
    """
    return cast("Rule", registry.plugin("policy", settings.rule).build(settings))


def _build_ucb(settings: LearningSettings) -> Rule:
    c = _only_parameter(settings, "c")
    checks.in_range("c", c, 0.0, 1000.0)
    return _Ucb(float(c))


def _build_fixed(settings: LearningSettings) -> Rule:
    action_id = _only_parameter(settings, "action_id")
    checks.choice("action_id", action_id, settings.action_ids)
    return _Fixed(action_id)


def _build_uniform(settings: LearningSettings) -> Rule:
    _check_parameters(settings)
    return _Uniform()


def _build_none(settings: LearningSettings) -> NoReturn:
    raise ConfigError(
        f"policy 'none' has no table to choose from (settings of rule '{settings.rule}'); take another rule"
    )


def _only_parameter(settings: LearningSettings, name: str) -> Any:
    _check_parameters(settings, name)
    return settings.rule_parameters[name]


def _check_parameters(settings: LearningSettings, *names: str) -> None:
    for name in settings.rule_parameters:
        if name not in names:
            raise UnknownNameError(f"parameter of policy '{settings.rule}'", name, names)
    for name in names:
        if name not in settings.rule_parameters:
            raise ConfigError(f"policy '{settings.rule}': its parameter '{name}' is missing from the table settings")


UCB = registry.Plugin(config=UcbConfig, build=_build_ucb, summary="UCB with per-key counts (paper Eq. 6)")
FIXED = registry.Plugin(config=FixedConfig, build=_build_fixed, summary="always one arm")
UNIFORM = registry.Plugin(
    config=UniformConfig, build=_build_uniform, summary="a random arm, with its probability logged"
)
NONE = registry.Plugin(config=NoneConfig, build=_build_none, summary="no policy: the backend's own default retrieval")
