"""Bins, schemas and text form of the state key (MC-1 to MC-10), and chains of keys (reading A-31)."""

from __future__ import annotations

import dataclasses

import pytest

from memcon.errors import ConfigError, InvariantError, UnknownNameError
from memcon.learning import state_key
from memcon.learning.exploration import UniformConfig
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
    benchmark="mix part",
    setup="a1",
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
    assert state_key.max_keys(state_key.key_schema("goal_plan"), 6) == 12


def test_number_of_possible_keys_counts_only_what_the_schema_has() -> None:
    joined, coarse = state_key.key_schema("benchmark+setup+goal_type"), state_key.key_schema("benchmark")

    assert state_key.max_keys(joined, 6, num_benchmarks=5, num_setups=2) == 60
    assert state_key.max_keys(coarse, 6, num_benchmarks=5, num_setups=2) == 5
    assert state_key.max_keys(coarse, 6) == 1


# --- schemas as data -------------------------------------------------------------------------------------------------


def test_any_set_of_fields_is_a_schema_named_by_them() -> None:
    assert state_key.key_text("benchmark+goal_type", FEATURES) == (
        "benchmark+goal_type/1|benchmark=mix part|goal_type=puttwo"
    )
    assert state_key.key_text("goal_plan", FEATURES) == "goal_plan/1|goal_type=puttwo|plan_available=no"
    assert state_key.key_text("setup", FEATURES) == "setup/1|setup=a1"


def test_one_set_of_fields_is_one_schema_however_it_is_spelled() -> None:
    paper = state_key.key_schema("paper")

    assert state_key.key_schema("goal_type+benchmark/1").label == "benchmark+goal_type/1"
    assert state_key.key_schema("goal_type+benchmark/1") == state_key.key_schema("benchmark+goal_type")
    assert state_key.key_schema("plan_available+goal_type") == state_key.key_schema("goal_plan")
    assert state_key.key_schema("+".join(sorted(paper.field_names))) == paper
    assert "benchmark" not in paper.field_names


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("goal_typ", "unknown state key 'goal_typ'.*did you mean 'goal_type'"),
        ("benchmark+gaol_type", "field of state key 'benchmark[+]gaol_type' 'gaol_type'.*did you mean 'goal_type'"),
        ("benchmark+goal_type+benchmark", "'benchmark' stands twice"),
        ("benchmark+", "''"),
        ("", "''"),
        ("benchmark/2", "this memcon has 'benchmark/1'"),
    ],
)
def test_set_of_fields_with_a_mistake_is_refused_in_one_line(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        state_key.key_schema(name)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["%ff", "%41", "a%2", "a/b", "a|x"])
def test_free_text_that_no_key_was_written_with_is_refused(part: str) -> None:
    with pytest.raises(ConfigError):
        state_key.parse(f"goal_type/1|goal_type={part}")


# --- chains ----------------------------------------------------------------------------------------------------------


def test_chain_holds_the_key_and_its_coarser_keys_finest_first() -> None:
    settings = UniformConfig(
        state_key="setup+benchmark+goal_type", pooling=("benchmark+goal_type", "benchmark")
    ).learning_settings()

    assert state_key.key_chain(settings, FEATURES) == (
        "benchmark+setup+goal_type/1|benchmark=mix part|setup=a1|goal_type=puttwo",
        "benchmark+goal_type/1|benchmark=mix part|goal_type=puttwo",
        "benchmark/1|benchmark=mix part",
    )
    assert state_key.key_chain(UniformConfig().learning_settings(), FEATURES) == (
        state_key.key_text("paper", FEATURES),
    )


def test_coarser_key_is_a_projection_of_the_finer_one() -> None:
    paper = state_key.key_text("paper", FEATURES)

    assert state_key.project(paper, state_key.key_schema("goal_plan")) == state_key.key_text("goal_plan", FEATURES)
    with pytest.raises(ConfigError, match="no component 'benchmark'"):
        state_key.project(paper, state_key.key_schema("benchmark"))


@pytest.mark.parametrize(
    "keys",
    [
        ("goal_plan/1|goal_type=put|plan_available=no",),
        ("goal_type/1|goal_type=put", "goal_plan/1|goal_type=put|plan_available=no"),
        ("goal_plan/1|goal_type=put|plan_available=no", "goal_type/1|goal_type=heat"),
        ("goal_plan/1|goal_type=put|plan_available=no", "goal_plan/1|goal_type=put|plan_available=no"),
        ("goal_plan/1|goal_type=put|plan_available=maybe", "goal_type/1|goal_type=put"),
        ("fine", "coarse"),
    ],
)
def test_keys_that_are_not_of_one_state_are_no_chain(keys: tuple[str, ...]) -> None:
    schemas = (state_key.key_schema("goal_plan"), state_key.key_schema("goal_type"))
    state_key.check_chain(schemas, ("goal_plan/1|goal_type=put|plan_available=no", "goal_type/1|goal_type=put"))

    with pytest.raises(ConfigError):
        state_key.check_chain(schemas, keys)
