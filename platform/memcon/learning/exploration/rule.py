"""The port of a learning rule, and how the rule of a table is built from its settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from memcon import checks, ids, registry
from memcon.errors import ConfigError, UnknownNameError
from memcon.learning import kernel
from memcon.learning.exploration.draws import draw_index, unit
from memcon.learning.q_table import KeyView
from memcon.policy_types import LearningSettings

__all__ = ["Choice", "Mixed", "Rule", "TieSet", "TieSetRule", "build_rule", "check_parameters", "number"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a rule chose, and the numbers that it chose by."""

    action_id: str
    # Arms between which the draw decided.
    tie_set: tuple[str, ...]
    # An unvisited arm was due (infinite bonus).
    forced: bool
    # Name -> one value an arm, in arm order: bonus, score, mean, effective_count, sample; what the rule has. A bonus
    # and its score may be infinite.
    columns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


class Rule(Protocol):
    """A learning rule. Both methods are pure: neither counts, and neither remembers."""

    def choose(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...], draw: int) -> Choice:
        """Choose among `allowed`; all chance comes from the 64 bits of `draw`.

        Args:
            views: The numbers at each key of the chain, finest first; one long without pooling.
            allowed: Some arms of the views, in arm order.
            draw: Hash of the decision's place.

        Raises:
            ConfigError: the rule cannot choose among these arms.
        """
        ...

    def probabilities(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...]) -> tuple[float, ...]:
        """How likely `choose` is to give each arm over all draws: in arm order, 0 for an arm that is not allowed.

        Apart from `choose`, since it may cost a quadrature, which a fold of the journal has no use for.

        Raises:
            ConfigError: as in `choose`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TieSet:
    """Indices of the best arms, in arm order, with what made them best."""

    best: tuple[int, ...]
    forced: bool = False
    columns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


class TieSetRule(ABC):
    """A rule that finds the best arms by calculation; chance only decides between exact equals, each 1/|ties|."""

    __slots__ = ()

    @abstractmethod
    def ties(self, views: tuple[KeyView, ...], allowed: tuple[str, ...]) -> TieSet:
        """The arms between which the draw decides; at least one."""

    def at_one_key(self) -> kernel.Selection | None:
        """What finds the same arms at a table of one key without a view of it; None = there is nothing quicker."""
        return None

    def choose(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...], draw: int) -> Choice:
        """As in `Rule`."""
        found = self.ties(views, allowed)
        arms = views[0].action_ids
        index = found.best[0] if len(found.best) == 1 else found.best[draw_index(draw, len(found.best))]
        return Choice(
            action_id=arms[index],
            tie_set=tuple([arms[i] for i in found.best]),
            forced=found.forced,
            columns=found.columns,
        )

    def probabilities(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...]) -> tuple[float, ...]:
        """As in `Rule`."""
        best = self.ties(views, allowed).best
        shares = [0.0] * len(views[0].action_ids)
        for i in best:
            shares[i] = 1.0 / len(best)
        return tuple(shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """Another rule, but a share of the decisions is drawn uniformly from the allowed arms.

    The probabilities are those of the mixture: p = (1 - share) p_rule + share / |allowed| (consistency: floor).
    """

    rule: Rule
    share: float
    # Names the draw: mixtures inside each other draw apart.
    place: str

    def choose(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...], draw: int) -> Choice:
        """As in `Rule`; a uniform draw has all allowed arms as its tie set, and is never forced."""
        # Always asked: it may refuse these arms, and its columns are what the uniform draw overruled.
        return self.mixed(self.rule.choose(views, allowed=allowed, draw=draw), allowed=allowed, draw=draw)

    def mixed(self, choice: Choice, *, allowed: tuple[str, ...], draw: int) -> Choice:
        """The other rule's `choice`, or the uniform draw that overrules it."""
        if unit(ids.draw64(self.place, draw)) >= self.share:
            return choice
        arm = allowed[draw_index(ids.draw64(f"{self.place}_arm", draw), len(allowed))]
        return Choice(action_id=arm, tie_set=allowed, forced=False, columns=choice.columns)

    def probabilities(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...]) -> tuple[float, ...]:
        """As in `Rule`."""
        even = self.share / len(allowed)
        shares = self.rule.probabilities(views, allowed=allowed)
        return tuple(
            [
                (1.0 - self.share) * share + (even if arm in allowed else 0.0)
                for arm, share in zip(views[0].action_ids, shares, strict=True)
            ]
        )


def build_rule(settings: LearningSettings) -> Rule:
    """The rule that `settings` name, from the plug-ins of kind `policy`, under their exploration floor.

    Raises:
        UnknownNameError: no such rule is installed.
        ConfigError: the rule refuses its parameters.
    """
    checks.in_range("exploration_floor", settings.exploration_floor, 0.0, 1.0)
    rule = cast("Rule", registry.plugin("policy", settings.rule).build(settings))
    floor = settings.exploration_floor
    return Mixed(rule=rule, share=float(floor), place="floor") if floor else rule


def check_parameters(settings: LearningSettings, *names: str) -> None:
    """Refuse parameters of a rule that are not exactly `names`.

    Raises:
        UnknownNameError: a parameter is none of them.
        ConfigError: one is missing.
    """
    for name in settings.rule_parameters:
        if name not in names:
            raise UnknownNameError(f"parameter of policy '{settings.rule}'", name, names)
    for name in names:
        if name not in settings.rule_parameters:
            raise ConfigError(f"policy '{settings.rule}': its parameter '{name}' is missing from the table settings")


def number(settings: LearningSettings, name: str, low: float, high: float) -> float:
    """The parameter `name` of a rule, a finite number in [low, high].

    Raises:
        ConfigError: names the parameter, its value and the range; or the settings have none of this name.
    """
    value: Any = settings.rule_parameters.get(name)
    if value is None:
        raise ConfigError(f"policy '{settings.rule}': the table settings have no parameter '{name}': list it in `own`")
    checks.in_range(name, value, low, high)
    return float(value)
