"""Bins and text form of the state key (MC-1 to MC-10)."""

from __future__ import annotations

import dataclasses

import pytest

from memcon.errors import ConfigError, InvariantError, UnknownNameError
from memcon.learning import state_key
from memcon.types import StateFeatures

FEATURES = StateFeatures(
    goal_type="puttwo",
    step=9,
    is_stuck=True,
    objects_held=1,
    locations_visited=7,
    memory_size=23,
    plan_available=False,
    task_number=16,
)


def test_key_of_a_fixed_state_has_the_eight_parts_of_equation_8_in_order() -> None:
    text = state_key.key_text("paper/1", FEATURES)

    assert text == (
        "paper/1|goal_type=puttwo|step_phase=mid|is_stuck=yes|objects_held=1|locations=2|memory_size=2"
        "|plan_available=no|learning_phase=warm"
    )
    assert tuple(state_key.parse(text).values.values()) == ("puttwo", "mid", True, 1, 2, 2, False, "warm")


@pytest.mark.parametrize(
    ("step", "phase"), [(0, "early"), (7, "early"), (8, "mid"), (17, "mid"), (18, "late"), (999, "late")]
)
def test_step_phase_changes_at_8_and_18(step: int, phase: str) -> None:
    assert state_key.phase_of(step) == phase


@pytest.mark.parametrize(("held", "expected"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_held_objects_are_capped_at_two(held: int, expected: int) -> None:
    assert state_key.held_bin(held) == expected


@pytest.mark.parametrize(("visited", "expected"), [(0, 0), (2, 0), (3, 1), (11, 3), (12, 4), (99, 4)])
def test_locations_are_binned_by_three(visited: int, expected: int) -> None:
    assert state_key.locations_bin(visited) == expected


@pytest.mark.parametrize(("size", "expected"), [(0, 0), (9, 0), (10, 1), (49, 4), (50, 5), (500, 5)])
def test_memory_is_binned_by_ten(size: int, expected: int) -> None:
    assert state_key.memory_bin(size) == expected


@pytest.mark.parametrize(("number", "phase"), [(1, "cold"), (15, "cold"), (16, "warm")])
def test_first_fifteen_tasks_are_cold(number: int, phase: str) -> None:
    assert state_key.learning_phase_of(number) == phase


@pytest.mark.parametrize(
    "impossible",
    [
        dataclasses.replace(FEATURES, step=-1),
        dataclasses.replace(FEATURES, objects_held=-1),
        dataclasses.replace(FEATURES, locations_visited=-1),
        dataclasses.replace(FEATURES, memory_size=-1),
        dataclasses.replace(FEATURES, task_number=0),
    ],
)
def test_impossible_counts_are_refused(impossible: StateFeatures) -> None:
    with pytest.raises(InvariantError, match="state key"):
        state_key.key_text("paper", impossible)


def test_schema_is_known_by_its_name_with_or_without_version() -> None:
    assert state_key.key_schema("paper").label == "paper/1"
    assert state_key.key_text("paper", FEATURES) == state_key.key_text("paper/1", FEATURES)


def test_unknown_schema_and_other_version_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'paper'"):
        state_key.key_schema("papr")
    with pytest.raises(ConfigError, match="paper/1"):
        state_key.key_schema("paper/2")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "paper/1",
        "paper/1|goal_type=put",
        "paper/1|goal_type=put|step_phase=soon|is_stuck=no|objects_held=0|locations=0|memory_size=0|plan_available=no|learning_phase=cold",
        "paper/1|step_phase=mid|goal_type=put|is_stuck=no|objects_held=0|locations=0|memory_size=0|plan_available=no|learning_phase=cold",
    ],
)
def test_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        state_key.parse(text)


def test_number_of_possible_keys_is_2160_a_goal_type() -> None:
    assert state_key.max_keys(state_key.key_schema("paper"), 1) == 2160
    assert state_key.max_keys(state_key.key_schema("paper"), 3) == 3 * 2160
