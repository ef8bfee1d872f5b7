"""Reward (Eq. 5) and discounted return (Eq. 7): MC-23 to MC-25, MC-29, readings A-4 and A-5."""

from __future__ import annotations

import math

import pytest

from memcon.errors import ConfigError, MemconError
from memcon.learning.credit import InvalidOutcomeError, RewardSettings, discounted, reward
from memcon.types import OutcomeClass

SUCCESS, FAILURE, TRUNCATED = OutcomeClass.SUCCESS, OutcomeClass.FAILURE, OutcomeClass.TRUNCATED


def _reward(
    outcome: OutcomeClass, steps: int, *, on: str = "all", limit: int = 30, budget: bool = True
) -> float | None:
    return reward(
        RewardSettings(efficiency_on=on),
        outcome_class=outcome,
        num_steps=steps,
        max_steps=limit,
        has_step_budget=budget,
    )


@pytest.mark.parametrize(
    ("outcome", "steps", "expected"),
    [
        (SUCCESS, 15, 1.15),
        (SUCCESS, 0, 1.3),
        (SUCCESS, 30, 1.0),
        (TRUNCATED, 30, -0.5),
        (FAILURE, 0, -0.2),
        (FAILURE, 15, -0.35),
    ],
)
def test_reward_follows_equation_5(outcome: OutcomeClass, steps: int, expected: float) -> None:
    assert _reward(outcome, steps) == pytest.approx(expected, abs=1e-15)


def test_reward_stays_within_its_bounds_for_every_length() -> None:
    values = [_reward(outcome, steps) for outcome in (SUCCESS, FAILURE, TRUNCATED) for steps in range(200)]

    assert all(value is not None and -0.5 <= value <= 1.3 for value in values)


def test_failure_gets_no_efficiency_term_when_it_is_for_successes_only() -> None:
    assert _reward(FAILURE, 3, on="success") == -0.5
    assert _reward(SUCCESS, 15, on="success") == pytest.approx(1.15)


def test_task_without_step_budget_gets_no_efficiency_term() -> None:
    assert _reward(FAILURE, 0, limit=1, budget=False) == -0.5
    assert _reward(SUCCESS, 0, limit=1, budget=False) == 1.0


def test_unevaluable_task_has_no_reward() -> None:
    assert _reward(OutcomeClass.UNEVALUABLE, 4) is None


@pytest.mark.parametrize(("steps", "limit"), [(-1, 30), (0, 0)])
def test_impossible_lengths_are_refused(steps: int, limit: int) -> None:
    with pytest.raises(InvalidOutcomeError, match="num_steps"):
        _reward(SUCCESS, steps, limit=limit)


@pytest.mark.parametrize(
    "parameters",
    [{"success_reward": math.nan}, {"failure_penalty": -0.1}, {"efficiency_weight": math.inf}, {"efficiency_on": "al"}],
)
def test_impossible_reward_settings_are_refused_by_name(parameters: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        RewardSettings(**parameters)  # type: ignore[arg-type]


def test_earlier_decisions_get_geometrically_less() -> None:
    targets = [discounted(1.15, gamma=0.9, position=j, num_decisions=3) for j in range(3)]

    assert targets == pytest.approx([0.81 * 1.15, 0.9 * 1.15, 1.15])


def test_cost_is_subtracted_after_discounting() -> None:
    assert discounted(1.0, gamma=0.5, position=0, num_decisions=2, cost=0.1) == pytest.approx(0.4)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, -1.1e6, 10**400, True, "1"])
def test_impossible_reward_or_cost_is_refused(value: float) -> None:
    for numbers in ({"reward": value, "cost": 0.0}, {"reward": 1.0, "cost": value}):
        with pytest.raises(InvalidOutcomeError) as caught:
            discounted(**numbers, gamma=0.9, position=0, num_decisions=1)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, MemconError)


@pytest.mark.parametrize(("position", "num_decisions"), [(-1, 1), (1, 1), (0, 0), (0, -1)])
def test_position_outside_the_episode_is_refused(position: int, num_decisions: int) -> None:
    with pytest.raises(InvalidOutcomeError, match="position"):
        discounted(1.0, gamma=0.9, position=position, num_decisions=num_decisions)
