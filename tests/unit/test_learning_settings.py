"""Checks and text form of the settings that a table keeps for life."""

from __future__ import annotations

import dataclasses

import pytest

from memcon import codec
from memcon.errors import ConfigError
from memcon.learning.exploration import UcbConfig
from memcon.learning.settings import check_settings, difference, encode_settings
from memcon.policy_types import LearningSettings

SETTINGS = UcbConfig().learning_settings()
POOLED = dataclasses.replace(
    SETTINGS, key_schema="benchmark+setup+goal_type/1", pooling=("benchmark+goal_type/1", "benchmark/1")
)


def test_chain_of_ever_coarser_keys_is_accepted() -> None:
    check_settings(SETTINGS)
    check_settings(POOLED)
    check_settings(dataclasses.replace(SETTINGS, pooling=("goal_plan/1", "goal_type")))


@pytest.mark.parametrize(
    ("key_schema", "pooling"),
    [
        ("goal_type/1", ("benchmark/1",)),
        ("goal_type/1", ("benchmark+goal_type/1",)),
        ("goal_plan/1", ("goal_plan/1",)),
        ("goal_plan/1", ("plan_available+goal_type",)),
        ("benchmark+setup+goal_type/1", ("benchmark/1", "benchmark+goal_type/1")),
        ("benchmark+setup+goal_type/1", ("benchmark+goal_type/1", "setup/1")),
        ("paper/1", ("benchmark/1",)),
    ],
)
def test_keys_that_do_not_nest_are_refused_in_one_line(key_schema: str, pooling: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="no proper part") as caught:
        check_settings(dataclasses.replace(SETTINGS, key_schema=key_schema, pooling=pooling))

    assert "\n" not in str(caught.value)
    assert str(list(pooling)) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"key_schema": "papr/1"}, "did you mean 'paper'"),
        ({"pooling": ("gaol_type",)}, "did you mean 'goal_type'"),
        ({"estimator": "capped_mean"}, "count_cap = None"),
        ({"estimator": "capped_mean", "count_cap": 0}, "count_cap = 0"),
        ({"estimator": "capped_mean", "count_cap": 2.0}, "count_cap = 2.0"),
        ({"estimator": "mean", "count_cap": 5}, "take 'capped_mean'"),
        ({"estimator": "capped"}, "did you mean 'capped_mean'"),
        ({"exploration_floor": 1.5}, "exploration_floor"),
        ({"exploration_floor": float("nan")}, "exploration_floor"),
    ],
)
def test_settings_with_a_mistake_are_refused_by_name(change: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_settings(dataclasses.replace(SETTINGS, **change))  # type: ignore[arg-type]


def test_text_of_settings_without_an_option_is_what_it_was_before_the_option_came() -> None:
    assert list(encode_settings(SETTINGS)) == [
        "rule", "rule_parameters", "action_ids", "priors", "action_set", "fingerprint", "estimator", "alpha", "gamma",
        "key_schema", "schema_version",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        POOLED,
        dataclasses.replace(SETTINGS, frozen=True, exploration_floor=0.05),
        dataclasses.replace(SETTINGS, estimator="capped_mean", count_cap=1),
    ],
)
def test_text_of_settings_gives_them_back(settings: LearningSettings) -> None:
    assert codec.decode(LearningSettings, encode_settings(settings)) == settings


def test_difference_names_an_option_that_only_one_side_uses() -> None:
    assert difference(SETTINGS, dataclasses.replace(SETTINGS, frozen=True)) == "frozen: recorded False, asked True"
    assert difference(POOLED, POOLED) == ""
