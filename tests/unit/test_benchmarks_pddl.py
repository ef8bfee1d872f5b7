"""The planning benchmark: its problems, goals that read like observations, and what the four domains allow."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

import pytest

from memcon.errors import ConfigError
from memcon.protocols import Environment
from memcon.testing.environment import play
from memcon.types import Provenance, Task
from memcon_workers.benchmarks.pddl import PLUGIN, PddlBenchmark, PddlConfig
from memcon_workers.benchmarks.pddl.problems import FAMILIES

DOMAINS = ["blocksworld", "barman", "gripper", "tyreworld"]
CONFIGS = [
    *(PddlConfig(goals=goals, task_seed=seed) for goals in ("ladder", "full") for seed in range(3)),
    PddlConfig(num_tasks=100),
    PddlConfig(num_tasks=100, goals="full"),
]


def first_task(domain: str, goals: str = "full") -> tuple[PddlBenchmark, Task]:
    benchmark = PddlBenchmark(PddlConfig(goals=goals, domains=(domain,), num_tasks=1))
    return benchmark, benchmark.tasks()[0]


def a_world(
    domain: str, objects: dict[str, str], init: list[list[str]], goal: list[list[str]]
) -> tuple[Environment, Task]:
    payload = {
        "schema_version": 1,
        "domain": domain,
        "objects": objects,
        "init": init,
        "goal": goal,
        "full_goal": goal,
    }
    task = Task(
        task_id="t",
        benchmark="pddl",
        goal="a goal.",
        goal_type=domain,
        payload=payload,
        max_steps=30,
        provenance=Provenance.SELF_MADE,
    )
    return PddlBenchmark(PddlConfig()).environment(), task


# --- problems --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_problem_is_solved_by_its_reference_plan_and_not_before_its_end(config: PddlConfig) -> None:
    benchmark = PddlBenchmark(config)
    environment = benchmark.environment()
    for task in benchmark.tasks():
        plan = benchmark.reference_plan(task)
        assert plan is not None
        environment.reset(task, 0)
        results = play(environment, plan)
        assert [result.success for result in results] == [False] * (len(plan) - 1) + [True], task.task_id
        assert all(result.valid for result in results)
        assert len(plan) <= task.max_steps == 30


def test_the_ladder_has_ten_tasks_a_domain() -> None:
    tasks = PddlBenchmark(PddlConfig()).tasks()
    assert Counter(task.goal_type for task in tasks) == dict.fromkeys(DOMAINS, 10)
    assert [task.goal_type for task in tasks[:4]] == DOMAINS
    assert {task.provenance for task in tasks} == {Provenance.SELF_MADE}


def test_the_ladder_asks_one_fact_where_the_full_goal_is_far() -> None:
    for task in PddlBenchmark(PddlConfig()).tasks():
        if task.goal_type in {"barman", "tyreworld"}:
            assert len(task.payload["goal"]) == 1
            assert task.goal.count(",") == 0
        else:
            assert task.payload["goal"] == task.payload["full_goal"]


@pytest.mark.parametrize(("domain", "depths"), [("barman", {3, 10}), ("tyreworld", {6, 7, 10, 11})])
def test_a_rung_is_reached_at_its_step_of_the_reference_plan(domain: str, depths: set[int]) -> None:
    benchmark = PddlBenchmark(PddlConfig(domains=(domain,), num_tasks=12))
    plans = [benchmark.reference_plan(task) for task in benchmark.tasks()]
    assert {len(plan) for plan in plans if plan is not None} == depths


@pytest.mark.parametrize("goals", ["ladder", "full"])
def test_a_goal_is_open_at_the_start(goals: str) -> None:
    benchmark = PddlBenchmark(PddlConfig(goals=goals))
    for task in benchmark.tasks():
        assert not {tuple(fact) for fact in task.payload["goal"]} <= {tuple(fact) for fact in task.payload["init"]}


def test_a_longer_list_starts_with_the_shorter_one() -> None:
    assert list(PddlBenchmark(PddlConfig(num_tasks=12)).tasks()) == list(PddlBenchmark(PddlConfig()).tasks()[:12])


def test_domains_can_be_chosen_without_changing_their_problems() -> None:
    chosen = PddlBenchmark(PddlConfig(domains=("gripper",), num_tasks=3))
    assert (
        list(chosen.tasks())
        == [task for task in PddlBenchmark(PddlConfig()).tasks() if task.goal_type == "gripper"][:3]
    )
    assert chosen.goal_types == ("gripper",)
    assert chosen.vocabulary == {"arm", "ball", "room"}


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"num_tasks": 0}, "num_tasks"),
        ({"goals": "easy"}, "allowed: full, ladder"),
        ({"domains": ("gripper", "sokoban")}, "unknown domains 'sokoban'"),
        ({"domains": ()}, "one at least"),
        ({"domains": ("gripper", "gripper")}, "at most once"),
        ({"task_seed": float("nan")}, "finite"),
    ],
)
def test_wrong_settings_are_refused(parameters: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        PLUGIN.config(**parameters)


def test_asking_for_more_problems_than_there_are_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memcon_workers.benchmarks.pddl.MAX_REDRAWS", 2)
    with pytest.raises(ConfigError, match="lower num_tasks or add domains"):
        PddlBenchmark(PddlConfig(domains=("tyreworld",), num_tasks=1000)).tasks()


def test_practice_problems_are_other_ones_over_the_same_sizes() -> None:
    benchmark = PddlBenchmark(PddlConfig())
    practice = benchmark.practice_tasks(6)
    assert [task.goal_type for task in practice] == DOMAINS * 6
    assert not {task.task_id for task in practice} & {task.task_id for task in benchmark.tasks()}
    assert list(benchmark.practice_tasks(2)) == list(practice[:8])
    assert sorted({len(task.payload["objects"]) for task in practice if task.goal_type == "blocksworld"}) == [4, 5, 6]
    assert benchmark.part_of(practice[0]) is benchmark


def test_a_domain_that_has_no_more_problems_gives_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memcon_workers.benchmarks.pddl.MAX_REDRAWS", 1)
    practice = PddlBenchmark(PddlConfig(domains=("gripper",), num_tasks=5)).practice_tasks(40)
    assert 0 < len(practice) < 40
    assert len({task.task_id for task in practice}) == len(practice)


# --- wording ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goals", ["ladder", "full"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_a_clause_stands_in_an_observation_just_when_its_fact_is_true(domain: str, goals: str) -> None:
    benchmark = PddlBenchmark(PddlConfig(goals=goals, domains=(domain,), num_tasks=8))
    environment = benchmark.environment()
    for task in benchmark.tasks():
        clauses = task.goal.removesuffix(".").split(" so that ")[1].split(", ")
        assert len(clauses) == len(task.payload["goal"])
        best = sum(clause in environment.reset(task, 0).text for clause in clauses)
        for action in benchmark.reference_plan(task) or ():
            result = environment.step(action)
            best = max(best, sum(clause in result.observation for clause in clauses))
            assert result.progress == pytest.approx(best / len(clauses))


def test_domains_share_no_verb_and_goals_name_none() -> None:
    verbs = {
        name: {re.match(r"[a-z]+", text).group() for text in family.actions.values()}  # type: ignore[union-attr]
        for name, family in FAMILIES.items()
    }
    assert sum(len(own) for own in verbs.values()) == len(set.union(*verbs.values()))
    for family in FAMILIES.values():
        assert not set(family.purpose.lower().split()) & set.union(*verbs.values())


def test_every_goal_predicate_is_shown_always() -> None:
    for goals in ("ladder", "full"):
        for task in PddlBenchmark(PddlConfig(goals=goals)).tasks():
            shown = {fact.predicate for fact in FAMILIES[task.goal_type].facts if fact.shown == "always"}
            assert {fact[0] for fact in task.payload["goal"]} <= shown


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_named_thing_is_in_the_vocabulary(domain: str) -> None:
    benchmark, task = first_task(domain)
    environment = benchmark.environment()
    seen = environment.reset(task, 0).text + " ".join(environment.valid_actions())
    assert set(re.findall(r"([a-z]+) \d", seen)) <= benchmark.vocabulary


def test_look_around_and_check_valid_actions_are_answered_and_not_listed() -> None:
    benchmark, task = first_task("barman")
    environment = benchmark.environment()
    opening = environment.reset(task, 0).text
    actions = environment.valid_actions()
    listed = environment.step("check valid actions")
    assert (listed.valid, listed.observation) == (True, f"Valid actions: {'; '.join(actions)}.")
    assert environment.step("Look around.").observation == opening
    assert opening.startswith("Always the cocktail 1 is mixed from ")
    assert not {"look around", "check valid actions"} & set(actions)


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_rules_follow_what_is_held_along_a_plan(domain: str) -> None:
    benchmark, task = first_task(domain)
    environment = benchmark.environment()
    environment.reset(task, 0)
    rules, held = benchmark.progress_rules, set[str]()
    for action in benchmark.reference_plan(task) or ():
        observation = environment.step(action).observation
        if found := re.fullmatch(rules.take, action):
            held.add(found["object"])
        if found := re.fullmatch(rules.release, action):
            held.discard(found["object"])
        shown = re.findall(r"(?:arm holds|arm \d carries|hand \d holds|you have) the ([a-z]+ \d)", observation)
        assert held == set(shown), action


def test_gripper_shows_visited_rooms() -> None:
    found = re.fullmatch(PddlBenchmark.progress_rules.visit, "move from room 1 to room 3")
    assert found is not None
    assert found["place"] == "room 3"


# --- what the domains allow ------------------------------------------------------------------------------------------


def test_blocks_move_only_when_clear() -> None:
    environment, task = a_world(
        "blocksworld",
        {"block 1": "block", "block 2": "block"},
        [["arm-empty"], ["on", "block 1", "block 2"], ["on-table", "block 2"], ["clear", "block 1"]],
        [["on", "block 2", "block 1"]],
    )
    environment.reset(task, 0)
    assert environment.valid_actions() == ["unstack block 1 from block 2"]
    assert not environment.step("pick up block 2").valid
    environment.step("unstack block 1 from block 2")
    assert set(environment.valid_actions()) == {"put down block 1", "stack block 1 on block 2"}


def test_a_robot_grabs_as_many_balls_as_it_has_arms() -> None:
    balls = {f"ball {number}": "ball" for number in (1, 2, 3)}
    environment, task = a_world(
        "gripper",
        {"room 1": "room", "room 2": "room", **balls, "arm 1": "arm", "arm 2": "arm"},
        [["robot-at", "room 1"], ["free", "arm 1"], ["free", "arm 2"], *(["at", ball, "room 1"] for ball in balls)],
        [["at", "ball 1", "room 2"]],
    )
    environment.reset(task, 0)
    play(environment, ["grab ball 1 in room 1 with arm 1", "grab ball 2 in room 1 with arm 2"])
    assert environment.valid_actions() == [
        "drop ball 1 in room 1 with arm 1",
        "drop ball 2 in room 1 with arm 2",
        "move from room 1 to room 2",
    ]


def test_a_barman_needs_a_free_hand_to_fill_and_a_clean_shot_for_another_drink() -> None:
    benchmark, task = first_task("barman")
    environment = benchmark.environment()
    environment.reset(task, 0)
    play(environment, ["grasp shot 1 with hand 1", "grasp shot 2 with hand 2"])
    assert not environment.step("fill shot 1 with ingredient 1 by hand 1").valid
    play(environment, ["set down shot 2 from hand 2", "fill shot 1 with ingredient 1 by hand 1"])
    play(environment, ["pour ingredient 1 from shot 1 into shaker 1 by hand 1"])
    assert not environment.step("fill shot 1 with ingredient 2 by hand 1").valid
    assert environment.step("fill shot 1 with ingredient 1 by hand 1").valid


def test_a_nut_comes_off_a_raised_hub_only_after_it_was_loosened_on_the_ground() -> None:
    benchmark, task = first_task("tyreworld")
    environment = benchmark.environment()
    environment.reset(task, 0)
    plan = list(benchmark.reference_plan(task) or ())
    loosen = next(action for action in plan if action.startswith("loosen"))
    play(environment, plan[: plan.index(loosen)])
    raising, unscrew = plan[plan.index(loosen) + 1], plan[plan.index(loosen) + 2]
    assert environment.step(raising).valid
    assert not environment.step(unscrew).valid
    assert not environment.step(loosen).valid


# --- damaged payloads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"schema_version": 9}, "payload version 9"),
        ({"domain": "sokoban"}, "domain 'sokoban'"),
        ({"init": [["flies", "block 1"]]}, "predicates and arities"),
        ({"goal": []}, "at least one fact"),
        ({"objects": {}}, "is no object of type block"),
        ({"init": "all"}, "expected a list"),
    ],
)
def test_a_damaged_payload_is_refused_with_task_and_reason(changes: dict[str, object], named: str) -> None:
    benchmark, task = first_task("blocksworld")
    damaged = dataclasses.replace(task, payload={**task.payload, **changes})
    with pytest.raises(ConfigError, match=f"starting task '{task.task_id}'") as caught:
        benchmark.environment().reset(damaged, 0)
    assert named in str(caught.value)
