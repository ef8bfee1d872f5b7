"""What a table may take over: capped counts, possible numbers, and the fingerprint (docs/prototype.md, 4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from memcon.errors import ConfigError
from memcon.learning import transfer
from memcon.learning.credit import RewardSettings
from memcon.learning.exploration import UniformConfig
from memcon.learning.q_table import QTable

SETTINGS = UniformConfig(
    estimator="mean", state_key="benchmark+goal_type", pooling=("benchmark",), action_set="compact"
).learning_settings()
FINE, COARSE = "benchmark+goal_type/1|benchmark=b|goal_type=put", "benchmark/1|benchmark=b"


def _cell(q: float = 0.5, taken: int = 3, credited: int = 3, squares: float = 1.5) -> dict[str, str | int]:
    return {"q": q.hex(), "taken": taken, "credited": credited, "squares": squares.hex()}


# --- the cap ---------------------------------------------------------------------------------------------------------


def test_cap_cuts_the_count_and_scales_the_squares() -> None:
    numbers = {FINE: {"noop": _cell(credited=40, taken=40, squares=10.0)}}

    assert transfer.capped(numbers, 20) == {FINE: {"noop": _cell(credited=20, taken=20, squares=5.0)}}
    assert transfer.capped(numbers, 100) == numbers
    assert transfer.capped(numbers, None) == numbers


def test_capped_numbers_go_on_as_a_mean_of_that_many_outcomes() -> None:
    # n' = min(n, cap), S' = S n'/n: the mean stays, and the next outcome weighs 1 / (n' + 1).
    numbers = {FINE: {"noop": _cell(q=0.5, credited=40, taken=40)}}
    table = QTable(SETTINGS)
    table.load(transfer.capped(numbers, 4))

    table.take((FINE,), "noop")
    table.credit((FINE,), "noop", 1.0)

    (view,) = table.views((FINE,))
    assert view.q[view.action_ids.index("noop")] == pytest.approx((4 * 0.5 + 1.0) / 5, abs=1e-15)


def test_decisions_without_an_outcome_stay_behind() -> None:
    numbers = {FINE: {"noop": _cell(taken=9, credited=3), "plan_inject": _cell(taken=1, credited=0)}, COARSE: {}}

    assert transfer.capped(numbers, None) == {FINE: {"noop": _cell(taken=3, credited=3)}}


def test_squares_of_a_capped_mean_already_weigh_its_cap_only() -> None:
    numbers = {FINE: {"noop": _cell(credited=1000, taken=1000, squares=10.0)}}

    assert transfer.capped(numbers, 200, count_cap=100)[FINE]["noop"]["squares"] == (10.0).hex()
    assert transfer.capped(numbers, 50, count_cap=100)[FINE]["noop"]["squares"] == (5.0).hex()


def test_cap_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="cap = 0"):
        transfer.capped({}, 0)


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_numbers_of_every_level_of_the_chain_are_possible() -> None:
    transfer.check_numbers(SETTINGS, {FINE: {"noop": _cell()}, COARSE: {"noop": _cell(taken=4)}})


@pytest.mark.parametrize(
    "key",
    [
        "goal_type/1|goal_type=put",
        "paper/1|goal_type=put",
        "key",
        "benchmark/1|benchmark=%ff",
        "benchmark/2|benchmark=b",
    ],
)
def test_key_of_another_schema_is_refused(key: str) -> None:
    with pytest.raises(ConfigError):
        transfer.check_numbers(SETTINGS, {key: {"noop": _cell()}})


def test_a_table_of_one_key_takes_any_text_as_its_decides_do() -> None:
    paper = UniformConfig().learning_settings()

    for key in ("key", "paper/2|of mine", FINE):
        transfer.check_numbers(paper, {key: {"noop": _cell()}})
        assert transfer.owning_keys(paper, {key: {}}) == {key: key}
    with pytest.raises(ConfigError, match="imported key ''"):
        transfer.check_numbers(paper, {"": {"noop": _cell()}})


def test_arm_that_the_table_does_not_have_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 're_retrieve'"):
        transfer.check_numbers(SETTINGS, {FINE: {"re_retrieves": _cell()}})


@pytest.mark.parametrize(
    "change",
    [
        {"taken": 2},
        {"credited": -1},
        {"taken": True},
        {"credited": "3"},
        {"q": float("nan").hex()},
        {"q": float("inf").hex()},
        {"q": "0.5"},
        {"q": "x"},
        {"q": 1},
        {"q": "0x1p+99999"},
        {"squares": (-1.0).hex()},
        # Beyond what returns add up to: under Thompson sampling such a mean has no density that a float can hold.
        {"q": (2.1e6).hex()},
        {"q": (-1e16).hex()},
        {"squares": (1.3e13).hex()},
        {"taken": 3, "credited": 0},
        # One more decision would not change such a count, and its outcome find none open.
        {"taken": 2**53 - 1},
        {"extra": 1},
    ],
)
def test_impossible_numbers_are_refused_by_key_and_arm(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'noop' at 'benchmark/1"):
        transfer.check_numbers(SETTINGS, {COARSE: {"noop": _cell() | change}})


def test_coarsest_projection_decides_who_owns_a_key() -> None:
    assert transfer.owning_keys(SETTINGS, {FINE: {}, COARSE: {}}) == {FINE: COARSE, COARSE: COARSE}


# --- the fingerprint -------------------------------------------------------------------------------------------------


def _fingerprint(**changes: Any) -> Mapping[str, Any]:
    given: dict[str, Any] = {
        "goal_types": ("put", "heat"),
        "settings": SETTINGS,
        "reward": RewardSettings(),
        "control": {"decision_points": "events"},
        "agent": {"framework": {"name": "prompt"}, "backbone": {"name": "imitator"}},
        "backend": {"name": "metagpt", "index_failures": False},
    }
    return transfer.table_fingerprint(**(given | changes))


def test_fingerprint_does_not_ask_for_the_order_of_goal_types() -> None:
    assert transfer.fingerprint_difference(_fingerprint(), _fingerprint(goal_types=["heat", "put", "put"])) == ""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"goal_types": ("put", "cool")}, "goal_types: only recorded heat, only asked cool"),
        ({"goal_types": ("put",)}, "goal_types: only recorded heat"),
        ({"reward": RewardSettings(token_cost=0.1)}, "reward.token_cost: recorded 0.0, asked 0.1"),
        (
            {"agent": {"framework": {"name": "prompt"}, "backbone": {"name": "other"}}},
            "agent.backbone.name: recorded imitator, asked other",
        ),
        ({"settings": dataclasses.replace(SETTINGS, gamma=0.2)}, "gamma: recorded 0.9, asked 0.2"),
        (
            {"control": {"decision_points": "start"}},
            "control.decision_points: recorded events, asked start",
        ),
        ({"backend": {"name": "metagpt"}}, "backend.index_failures: recorded False, asked None"),
        (
            {"settings": dataclasses.replace(SETTINGS, pooling=())},
            "keys: recorded ['benchmark+goal_type/1', 'benchmark/1'], asked ['benchmark+goal_type/1']",
        ),
    ],
)
def test_fingerprint_names_the_part_that_differs(changes: dict[str, Any], told: str) -> None:
    assert transfer.fingerprint_difference(_fingerprint(), _fingerprint(**changes)) == told


def test_other_arms_are_another_fingerprint_and_other_rules_are_not() -> None:
    arms = UniformConfig(state_key="benchmark+goal_type", pooling=("benchmark",)).learning_settings()
    rule = dataclasses.replace(SETTINGS, rule="ucb", alpha=0.3)

    assert transfer.fingerprint_difference(_fingerprint(), _fingerprint(settings=arms)).startswith("arms: recorded ")
    assert transfer.fingerprint_difference(_fingerprint(), _fingerprint(settings=rule)) == ""


def test_a_moving_average_is_no_mean_and_a_capped_mean_is_one() -> None:
    average = dataclasses.replace(SETTINGS, estimator="ema", count_cap=None)
    mean = dataclasses.replace(SETTINGS, estimator="mean", count_cap=None)
    capped = dataclasses.replace(SETTINGS, estimator="capped_mean", count_cap=100)

    difference = transfer.fingerprint_difference(_fingerprint(settings=average), _fingerprint(settings=mean))

    assert difference == "estimator: recorded average, asked mean"
    assert transfer.fingerprint_difference(_fingerprint(settings=mean), _fingerprint(settings=capped)) == ""
