"""Reward of a task (Eq. 5) and the discounted return of its decisions (Eq. 7). Pure arithmetic, float64."""

from __future__ import annotations

from dataclasses import dataclass

from memcon import checks
from memcon.errors import ConfigError
from memcon.types import OutcomeClass

__all__ = ["MAX_ABS_REWARD", "InvalidOutcomeError", "RewardSettings", "check_outcome", "discounted", "reward"]

# Far beyond any reward scale; keeps returns, differences and squares finite in float64.
MAX_ABS_REWARD = 1e6
_MAX_WEIGHT = 1000.0


class InvalidOutcomeError(ConfigError, ValueError):
    """An outcome has impossible numbers: mend the caller; nothing was credited."""


@dataclass(slots=True, kw_only=True)
class RewardSettings:
    """Shape of Eq. 5 (Table 6); with the defaults a reward lies in [-0.5, 1.3] (MC-23)."""

    success_reward: float = 1.0
    failure_penalty: float = 0.5
    # lambda of Eq. 5.
    efficiency_weight: float = 0.3
    # "all": Eq. 5 to the letter; "success": failures get no efficiency term (reading A-4).
    efficiency_on: str = "all"
    # Taken off the return of each decision for every 1,000 tokens that it put into the prompt; ours, not the paper's.
    token_cost: float = 0.0

    def __post_init__(self) -> None:
        checks.in_range("success_reward", self.success_reward, 0.0, _MAX_WEIGHT)
        checks.in_range("failure_penalty", self.failure_penalty, 0.0, _MAX_WEIGHT)
        checks.in_range("efficiency_weight", self.efficiency_weight, 0.0, _MAX_WEIGHT)
        checks.choice("efficiency_on", self.efficiency_on, ("all", "success"))
        checks.in_range("token_cost", self.token_cost, 0.0, _MAX_WEIGHT)


def reward(
    settings: RewardSettings, *, outcome_class: OutcomeClass, num_steps: int, max_steps: int, has_step_budget: bool
) -> float | None:
    """Reward of one task by Eq. 5; None for `unevaluable`, which teaches nothing (MC-23 to MC-25).

    `num_steps` and `max_steps` are T and T_max in environment steps; without a step budget (one-shot questions) the
    efficiency term is 0 (reading A-4). `truncated` counts as a failure.

    Raises:
        InvalidOutcomeError: negative `num_steps`, or `max_steps` below 1.
    """
    if num_steps < 0 or max_steps < 1:
        raise InvalidOutcomeError(
            f"reward of a task: num_steps = {num_steps}, max_steps = {max_steps}; "
            "expected num_steps >= 0 and max_steps >= 1; mend the benchmark"
        )
    if outcome_class is OutcomeClass.UNEVALUABLE:
        return None
    success = outcome_class is OutcomeClass.SUCCESS
    value = settings.success_reward if success else -settings.failure_penalty
    if has_step_budget and (success or settings.efficiency_on == "all"):
        value += settings.efficiency_weight * max(0.0, 1.0 - num_steps / max_steps)
    return value


def discounted(reward: float, *, gamma: float, position: int, num_decisions: int, cost: float = 0.0) -> float:
    """The return gamma^(num_decisions - position - 1) * reward - cost: the target of Eq. 7 (MC-29).

    Raises:
        InvalidOutcomeError: as in `check_outcome`.
    """
    check_outcome(reward, position=position, num_decisions=num_decisions, cost=cost)
    return float(gamma ** (num_decisions - position - 1) * reward - cost)


def check_outcome(reward: float, *, position: int, num_decisions: int, cost: float) -> None:
    """Refuse numbers that no finished episode can have.

    Raises:
        InvalidOutcomeError: reward or cost is NaN, infinite or beyond `MAX_ABS_REWARD`; or `position` is outside
            [0, num_decisions).
    """
    if (
        type(reward) is type(cost) is float
        and -MAX_ABS_REWARD <= reward <= MAX_ABS_REWARD
        and -MAX_ABS_REWARD <= cost <= MAX_ABS_REWARD
        and type(position) is type(num_decisions) is int
        and 0 <= position < num_decisions
    ):
        # Asked several times an outcome; what follows finds what is wrong.
        return
    for name, value in (("reward", reward), ("cost", cost)):
        # bool is an int: a success flag is no reward. NaN fails every comparison.
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_ABS_REWARD:
            raise InvalidOutcomeError(
                f"crediting a decision: {name} = {value!r}; "
                f"expected a finite number in [-{MAX_ABS_REWARD:g}, {MAX_ABS_REWARD:g}]; mend the caller"
            )
    if type(position) is not int or type(num_decisions) is not int or not 0 <= position < num_decisions:
        raise InvalidOutcomeError(
            f"crediting a decision: position = {position!r}, num_decisions = {num_decisions!r}; "
            "expected 0 <= position < num_decisions; count the decisions of the whole episode"
        )
