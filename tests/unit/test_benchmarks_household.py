"""The household: its 134 tasks, their types, what an agent sees and what it may do."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

import pytest

from memcon.errors import ConfigError
from memcon.protocols import Environment
from memcon.seeds import SeedTree
from memcon.testing.environment import play
from memcon.types import Provenance, Task
from memcon_workers.benchmarks.household import PLUGIN, HouseholdBenchmark, HouseholdConfig, _draw_task
from memcon_workers.benchmarks.household.goals import GOAL_TYPES, goal_type
from memcon_workers.benchmarks.household.things import ITEMS, LAMP, LAMP_STANDS, kind_of

QUOTAS = {"put": 24, "examine": 18, "clean": 31, "heat": 23, "cool": 21, "puttwo": 17}


@pytest.fixture(scope="module")
def household() -> HouseholdBenchmark:
    return HouseholdBenchmark(HouseholdConfig())


def a_task(goal: str, contents: dict[str, list[str]], *, kind: str, item: str, place: str) -> Task:
    payload = {
        "schema_version": 1,
        "goal_type": kind,
        "room": "kitchen",
        "goal_item": item,
        "goal_place": place,
        "contents": contents,
    }
    return Task(
        task_id="t",
        benchmark="household",
        goal=goal,
        goal_type=kind,
        payload=payload,
        max_steps=30,
        provenance=Provenance.SELF_MADE,
    )


KITCHEN = {
    "countertop 1": ["apple 1", "mug 1"],
    "fridge 1": ["mug 2"],
    "microwave 1": [],
    "shelf 1": [],
    "sinkbasin 1": [],
}
HEAT = a_task("put a hot mug in shelf.", KITCHEN, kind="heat", item="mug", place="shelf")
TWO = a_task("put two mug in shelf.", KITCHEN, kind="puttwo", item="mug", place="shelf")
STUDY = {"bed 1": ["book 1"], "desk 1": ["desklamp 1"], "drawer 1": []}
EXAMINE = a_task("look at book under the desklamp.", STUDY, kind="examine", item="book", place="desklamp")


@pytest.fixture
def environment(household: HouseholdBenchmark) -> Environment:
    return household.environment()


def see(environment: Environment, *actions: str) -> str:
    """The last observation; every action must be accepted."""
    results = play(environment, actions)
    assert all(result.valid for result in results), actions
    return results[-1].observation


# --- tasks -----------------------------------------------------------------------------------------------------------


def test_134_tasks_in_the_shares_of_the_six_types(household: HouseholdBenchmark) -> None:
    assert Counter(task.goal_type for task in household.tasks()) == QUOTAS
    assert {task.provenance for task in household.tasks()} == {Provenance.SELF_MADE}


@pytest.mark.parametrize(
    "config",
    [
        HouseholdConfig(),
        HouseholdConfig(task_seed=1),
        HouseholdConfig(task_seed=2, num_tasks=60),
        HouseholdConfig(max_receptacles=3, num_tasks=60),
        HouseholdConfig(max_receptacles=24, num_tasks=40),
    ],
    ids=str,
)
def test_every_task_is_solved_by_its_reference_plan_and_not_before_its_end(config: HouseholdConfig) -> None:
    benchmark = HouseholdBenchmark(config)
    environment = benchmark.environment()
    for task in benchmark.tasks():
        plan = benchmark.reference_plan(task)
        assert plan is not None
        environment.reset(task, 0)
        results = play(environment, plan)
        assert [result.success for result in results] == [False] * (len(plan) - 1) + [True], task.task_id
        assert all(result.valid for result in results)
        assert 3 <= len(plan) <= 20


def test_every_goal_sentence_maps_to_the_type_that_its_payload_was_drawn_for() -> None:
    for seed in range(5):
        for task in HouseholdBenchmark(HouseholdConfig(task_seed=seed)).tasks():
            assert goal_type(task.goal) == task.goal_type == task.payload["goal_type"]


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("put two mug in shelf.", "puttwo"),
        ("Find TWO clean mug and put them in shelf.", "puttwo"),
        ("cool some tomato and put it in microwave.", "cool"),
        ("put a hot cup in fridge.", "heat"),
        ("examine the statue with the desklamp.", "examine"),
        ("put some cooler in shelf.", "put"),
        ("switch on the computer in the theater.", "other"),
        ("input the heater's network password.", "other"),
    ],
)
def test_types_are_read_by_whole_words(sentence: str, kind: str) -> None:
    assert goal_type(sentence) == kind


def test_both_wordings_of_every_type_occur(household: HouseholdBenchmark) -> None:
    skeletons = {
        task.goal.replace(task.payload["goal_item"], "ITEM").replace(task.payload["goal_place"], "PLACE")
        for task in household.tasks()
    }
    assert len(skeletons) == 2 * len(GOAL_TYPES)


def test_rooms_keep_the_cap_and_hold_nothing_that_does_not_fit(household: HouseholdBenchmark) -> None:
    for task in household.tasks():
        contents = task.payload["contents"]
        assert len(contents) <= 6
        for place, things in contents.items():
            for thing in things:
                allowed = LAMP_STANDS if kind_of(thing) == LAMP else ITEMS[kind_of(thing)].fits
                assert kind_of(place) in allowed


def test_a_longer_list_starts_with_the_shorter_one(household: HouseholdBenchmark) -> None:
    shorter = HouseholdBenchmark(HouseholdConfig(num_tasks=40)).tasks()
    assert list(shorter) == list(household.tasks()[:40])
    assert {task.goal_type for task in shorter} == set(GOAL_TYPES)


def test_another_task_seed_gives_other_rooms(household: HouseholdBenchmark) -> None:
    other = HouseholdBenchmark(HouseholdConfig(task_seed=1)).tasks()
    assert not {task.task_id for task in other} & {task.task_id for task in household.tasks()}


def test_practice_rooms_are_other_rooms_of_every_type(household: HouseholdBenchmark) -> None:
    practice = household.practice_tasks(4)
    assert Counter(task.goal_type for task in practice) == dict.fromkeys(GOAL_TYPES, 4)
    assert [task.goal_type for task in practice[:7]] == [*GOAL_TYPES, GOAL_TYPES[0]]
    assert not {task.task_id for task in practice} & {task.task_id for task in household.tasks()}
    assert list(household.practice_tasks(2)) == list(practice[:12])
    assert household.part_of(practice[0]) is household


def test_a_practice_room_that_is_known_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # The drawing of the rooms of the list: without another draw, practice would be the list again.
    places: list[tuple[str | int, ...]] = []
    draw = _draw_task

    def noted(kind: str, place: SeedTree, config: HouseholdConfig) -> Task:
        places.append(place.path)
        again = "practice" in place.path and place.path[-1] == 0
        return draw(kind, SeedTree(("same", kind)) if again else place, config)

    monkeypatch.setattr("memcon_workers.benchmarks.household._draw_task", noted)
    small = HouseholdBenchmark(HouseholdConfig(num_tasks=6))
    assert len({task.task_id for task in small.practice_tasks(3)}) == 18
    assert Counter(path[-1] for path in places if "practice" in path) == {0: 18, 1: 12}
    monkeypatch.setattr("memcon_workers.benchmarks.household.MAX_REDRAWS", 1)
    assert len(small.practice_tasks(3)) == 6


@pytest.mark.parametrize("parameters", [{"num_tasks": 0}, {"max_receptacles": 2}, {"task_seed": -1}])
def test_settings_out_of_range_are_refused(parameters: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        PLUGIN.config(**parameters)


# --- what an agent sees ----------------------------------------------------------------------------------------------


def test_the_room_shows_furniture_and_no_contents(environment: Environment) -> None:
    assert environment.reset(HEAT, 0).text == (
        "You are in the middle of a room. Looking quickly around you, you see a countertop 1, a fridge 1, "
        "a microwave 1, a shelf 1, and a sinkbasin 1."
    )
    assert environment.valid_actions()[0] == "go to countertop 1"
    assert see(environment, "look").startswith("You are in the middle of a room.")


def test_contents_are_seen_on_arrival_or_after_opening(environment: Environment) -> None:
    environment.reset(HEAT, 0)
    assert see(environment, "go to countertop 1") == (
        "You arrive at countertop 1. On the countertop 1, you see an apple 1, and a mug 1."
    )
    assert see(environment, "go to fridge 1") == "You arrive at fridge 1. The fridge 1 is closed."
    assert not environment.step("take mug 2 from fridge 1").valid
    assert see(environment, "open fridge 1") == "You open the fridge 1. The fridge 1 is open. In it, you see a mug 2."
    assert see(environment, "examine fridge 1") == "The fridge 1 is open. In it, you see a mug 2."
    assert see(environment, "close fridge 1") == "You close the fridge 1."
    assert see(environment, "examine fridge 1") == "The fridge 1 is closed."
    assert see(environment, "go to shelf 1") == "You arrive at shelf 1. On the shelf 1, you see nothing."
    assert see(environment, "look") == "You are facing the shelf 1. On the shelf 1, you see nothing."


def test_nothing_hidden_is_named_by_valid_actions_or_answers(environment: Environment) -> None:
    environment.reset(HEAT, 0)
    see(environment, "go to fridge 1")
    assert not any("mug" in action for action in environment.valid_actions())
    assert environment.step("examine mug 2").observation == "Nothing happens."


def test_a_mug_is_taken_changed_described_and_put_down(environment: Environment) -> None:
    environment.reset(HEAT, 0)
    see(environment, "go to countertop 1")
    assert see(environment, "take mug 1 from countertop 1") == "You pick up the mug 1 from the countertop 1."
    assert see(environment, "inventory") == "You are carrying: a mug 1."
    assert see(environment, "examine mug 1") == "There's nothing special about mug 1."
    assert see(environment, "go to sinkbasin 1", "clean mug 1 with sinkbasin 1") == (
        "You clean the mug 1 using the sinkbasin 1."
    )
    assert see(environment, "go to microwave 1", "heat mug 1 with microwave 1") == (
        "You heat the mug 1 using the microwave 1."
    )
    assert see(environment, "examine mug 1") == "This is a clean and hot mug 1."
    assert see(environment, "go to fridge 1", "cool mug 1 with fridge 1") == "You cool the mug 1 using the fridge 1."
    assert see(environment, "examine mug 1") == "This is a clean and cool mug 1."
    result = play(environment, ["go to shelf 1", "move mug 1 to shelf 1"])[-1]
    assert result.observation == "You move the mug 1 to the shelf 1."
    # cooled again, so the goal of a hot mug is half met
    assert (result.success, result.progress) == (False, 0.5)
    assert see(environment, "inventory") == "You are not carrying anything."


def test_the_older_wording_of_put_is_understood_and_not_listed(environment: Environment) -> None:
    environment.reset(TWO, 0)
    see(environment, "go to countertop 1", "take mug 1 from countertop 1", "go to shelf 1")
    assert not any(action.startswith("put ") for action in environment.valid_actions())
    assert environment.step("put mug 1 in/on shelf 1").observation == "You move the mug 1 to the shelf 1."


@pytest.mark.parametrize(
    "action",
    [
        "take apple 1 from countertop 1",
        "go to shelf 1",
        "heat mug 1 with microwave 1",
        "use mug 1",
        "move mug 1 to bed 1",
        "",
    ],
)
def test_a_refused_action_says_so_and_changes_nothing(environment: Environment, action: str) -> None:
    environment.reset(TWO, 0)
    see(environment, "go to countertop 1", "take mug 1 from countertop 1", "go to shelf 1")
    before = environment.valid_actions()
    result = environment.step(action)
    assert (result.observation, result.valid, result.progress) == ("Nothing happens.", False, 0.0)
    assert environment.valid_actions() == before


def test_two_things_must_lie_in_the_same_place(environment: Environment) -> None:
    environment.reset(TWO, 0)
    first = play(
        environment, ["go to countertop 1", "take mug 1 from countertop 1", "go to shelf 1", "move mug 1 to shelf 1"]
    )
    assert (first[-1].success, first[-1].progress) == (False, 0.5)
    then = play(
        environment,
        ["go to fridge 1", "open fridge 1", "take mug 2 from fridge 1", "go to shelf 1", "move mug 2 to shelf 1"],
    )
    assert then[-1].success


def test_examining_needs_the_thing_in_hand_at_the_lit_lamp(environment: Environment) -> None:
    environment.reset(EXAMINE, 0)
    assert see(environment, "go to desk 1", "use desklamp 1") == "You turn on the desklamp 1."
    assert see(environment, "use desklamp 1") == "You turn off the desklamp 1."
    see(environment, "use desklamp 1", "go to bed 1")
    taken = environment.step("take book 1 from bed 1")
    assert not taken.success
    assert environment.step("go to desk 1").success


def test_progress_keeps_its_best_value(environment: Environment) -> None:
    environment.reset(TWO, 0)
    see(environment, "go to countertop 1", "take mug 1 from countertop 1", "go to shelf 1", "move mug 1 to shelf 1")
    assert environment.step("take mug 1 from shelf 1").progress == 0.5


# --- traits ----------------------------------------------------------------------------------------------------------


def held_after(household: HouseholdBenchmark, actions: list[str]) -> list[int]:
    rules = household.progress_rules
    held: set[str] = set()
    counts = []
    for action in actions:
        if found := re.fullmatch(rules.take, action, re.IGNORECASE):
            held.add(found["object"])
        if found := re.fullmatch(rules.release, action, re.IGNORECASE):
            held.discard(found["object"])
        counts.append(len(held))
    return counts


def test_rules_follow_what_is_held(household: HouseholdBenchmark) -> None:
    actions = [
        "take mug 1 from fridge 1",
        "Take pan 2 from shelf 1.",
        "put mug 1 in/on shelf 1",
        "move pan 2 to shelf 1",
    ]
    assert held_after(household, actions) == [1, 2, 1, 0]


def test_rules_see_places_and_no_other_action(household: HouseholdBenchmark) -> None:
    visit = household.progress_rules.visit
    found = re.fullmatch(visit, "go to countertop 2")
    assert found is not None
    assert found["place"] == "countertop 2"
    assert not re.fullmatch(visit, "open drawer 1")


def test_every_numbered_name_is_in_the_vocabulary(household: HouseholdBenchmark) -> None:
    for task in household.tasks():
        names = [*task.payload["contents"], *(name for names in task.payload["contents"].values() for name in names)]
        assert {kind_of(name) for name in names} <= household.vocabulary


# --- damaged payloads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"schema_version": 2}, "payload version 2"),
        ({"goal_type": "fly"}, "goal type 'fly'"),
        ({"contents": {"shelf 1": ["dragon 1"]}}, "unknown item 'dragon 1'"),
        ({"contents": {"shelf 1": ["mug 1"], "fridge 1": ["mug 1"]}}, "'mug 1' in two places"),
        ({"goal_item": "fork"}, "meets the payload's goal"),
        ({"contents": "nothing"}, "expected a mapping"),
        ({"extra": 1}, "unknown fields"),
    ],
)
def test_a_damaged_payload_is_refused_with_task_and_reason(
    environment: Environment, changes: dict[str, object], named: str
) -> None:
    task = dataclasses.replace(HEAT, payload={**HEAT.payload, **changes})
    with pytest.raises(ConfigError, match="starting task 't'") as caught:
        environment.reset(task, 0)
    assert named in str(caught.value)
