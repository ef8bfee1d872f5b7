"""The family `recur`: three jobs of other benchmarks, each again and again."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict

import pytest

from memcon.control.progress import ProgressMatcher
from memcon.errors import ConfigError
from memcon.protocols import Benchmark
from memcon.testing.environment import play
from memcon.types import Task
from memcon_workers.benchmarks.household import HouseholdBenchmark, HouseholdConfig
from memcon_workers.benchmarks.pddl import PddlBenchmark, PddlConfig
from memcon_workers.benchmarks.recur import PLUGIN, RecurBenchmark, RecurConfig

JOBS = ("job_blocks", "job_gripper", "job_examine")


@pytest.fixture(scope="module")
def recur() -> RecurBenchmark:
    return RecurBenchmark(RecurConfig())


def first_of(recur: RecurBenchmark, kind: str) -> Task:
    return next(task for task in recur.tasks() if task.goal_type == kind)


def test_each_job_comes_six_times_under_a_goal_type_of_its_own(recur: RecurBenchmark) -> None:
    assert Counter(task.goal_type for task in recur.tasks()) == dict.fromkeys(JOBS, 6)
    assert [task.goal_type for task in recur.tasks()[:4]] == [*JOBS, JOBS[0]]
    assert recur.goal_types == JOBS


def test_a_job_never_changes(recur: RecurBenchmark) -> None:
    seen: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for task in recur.tasks():
        environment = recur.environment()
        shown = environment.reset(task, 0).text
        plan = tuple(recur.reference_plan(task) or ())
        seen[task.goal_type].add((task.goal, shown, tuple(environment.valid_actions()), plan))
    assert {kind: len(variants) for kind, variants in seen.items()} == dict.fromkeys(JOBS, 1)


def test_another_task_seed_gives_other_jobs(recur: RecurBenchmark) -> None:
    other = RecurBenchmark(RecurConfig(task_seed=1))
    assert not {task.task_id for task in recur.tasks()} & {task.task_id for task in other.tasks()}


def test_jobs_are_no_tasks_of_the_benchmarks_that_make_them(recur: RecurBenchmark) -> None:
    lists: list[Benchmark] = [HouseholdBenchmark(HouseholdConfig()), PddlBenchmark(PddlConfig())]
    known = [task.payload for benchmark in lists for task in benchmark.tasks()]
    assert all(first_of(recur, kind).payload["task"] not in known for kind in JOBS)


def test_a_longer_list_starts_with_the_shorter_one(recur: RecurBenchmark) -> None:
    assert list(RecurBenchmark(RecurConfig(num_tasks=7)).tasks()) == list(recur.tasks()[:7])


def test_one_environment_plays_all_jobs_in_any_order(recur: RecurBenchmark) -> None:
    environment = recur.environment()
    for kind in ("job_examine", "job_blocks", "job_examine", "job_gripper"):
        task = first_of(recur, kind)
        environment.reset(task, 0)
        assert play(environment, recur.reference_plan(task) or ())[-1].success


def test_a_job_knows_what_its_own_actions_mean(recur: RecurBenchmark) -> None:
    rules = {kind: ProgressMatcher(recur.part_of(first_of(recur, kind)).progress_rules) for kind in JOBS}
    assert rules["job_examine"].taken("take book 1 from desk 1") == "book 1"
    assert rules["job_examine"].released("move book 1 to desk 1") == "book 1"
    assert rules["job_gripper"].taken("grab ball 1 in room 1 with arm 1") == "ball 1"
    assert rules["job_gripper"].visited("move from room 1 to room 2") == "room 2"
    assert rules["job_gripper"].visited("go to desk 1") is None
    for kind in JOBS:
        part = recur.part_of(first_of(recur, kind))
        assert (part.name, part.goal_types) == ("recur", (kind,))
        assert [task.task_id for task in part.tasks()] == [first_of(recur, kind).task_id]


def test_there_is_nothing_to_practise_on(recur: RecurBenchmark) -> None:
    assert list(recur.practice_tasks(25)) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"schema_version": 2}, "payload version 2"), ({"job": "fly"}, "job 'fly'"), ({"task": 3}, "expected a mapping")],
)
def test_a_damaged_payload_is_refused_with_task_and_reason(
    recur: RecurBenchmark, changes: dict[str, object], named: str
) -> None:
    task = recur.tasks()[0]
    damaged = dataclasses.replace(task, payload={**task.payload, **changes})
    with pytest.raises(ConfigError, match=f"starting task '{task.task_id}'") as caught:
        recur.environment().reset(damaged, 0)
    assert named in str(caught.value)


def test_a_job_that_its_maker_refuses_names_the_task(recur: RecurBenchmark) -> None:
    task = recur.tasks()[0]
    damaged = dataclasses.replace(task, payload={**task.payload, "task": {"surprise": 1}})
    with pytest.raises(ConfigError, match=f"starting task '{task.task_id}'"):
        recur.environment().reset(damaged, 0)


@pytest.mark.parametrize("parameters", [{"num_tasks": 0}, {"task_seed": -1}])
def test_settings_out_of_range_are_refused(parameters: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        PLUGIN.config(**parameters)
