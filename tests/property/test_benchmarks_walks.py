"""Random walks through the built-in worlds: what is listed is what has an effect; the same walk reads the same."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from memcon import codec
from memcon.protocols import Benchmark, StepResult
from memcon.seeds import SeedTree
from memcon.types import Task
from memcon_workers.benchmarks.audit import AuditBenchmark, AuditConfig
from memcon_workers.benchmarks.habit import HabitBenchmark, HabitConfig
from memcon_workers.benchmarks.household import HouseholdBenchmark, HouseholdConfig
from memcon_workers.benchmarks.household import world_of as room_of
from memcon_workers.benchmarks.household.goals import GOAL_TYPES, OTHER, goal_sentence, goal_type
from memcon_workers.benchmarks.household.things import ITEMS, ROOMS
from memcon_workers.benchmarks.mix import MixBenchmark, MixConfig
from memcon_workers.benchmarks.mix_parts import dealt, shares
from memcon_workers.benchmarks.pddl import PddlBenchmark, PddlConfig
from memcon_workers.benchmarks.pddl.problems import world_of as problem_of
from memcon_workers.benchmarks.planning_environment import REFUSAL, PlanningEnvironment, World
from memcon_workers.benchmarks.recur import RecurBenchmark, RecurConfig
from memcon_workers.benchmarks.trivia import TriviaBenchmark, TriviaConfig

WORLDS = {"household": room_of, "pddl": problem_of}
QUESTIONS = ("look", "inventory", "examine ")


@cache
def sources() -> dict[str, Benchmark]:
    return {
        "household": HouseholdBenchmark(HouseholdConfig(num_tasks=24)),
        "pddl": PddlBenchmark(PddlConfig(num_tasks=24)),
        "habit": HabitBenchmark(HabitConfig()),
        "audit": AuditBenchmark(AuditConfig()),
        "trivia": TriviaBenchmark(TriviaConfig()),
        "recur": RecurBenchmark(RecurConfig()),
        "mix": MixBenchmark(MixConfig(num_tasks=60)),
    }


@st.composite
def walks(draw: st.DrawFn, *, all_sources: bool = False) -> tuple[str, Task, list[int]]:
    """A task with choices among its valid actions; of the planning worlds only, unless `all_sources`."""
    name = draw(st.sampled_from(sorted(sources() if all_sources else WORLDS)))
    task = draw(st.sampled_from(sources()[name].tasks()))
    return name, task, draw(st.lists(st.integers(0, 10_000), max_size=30))


def walk(name: str, task: Task, choices: list[int]) -> list[tuple[str, StepResult]]:
    environment = sources()[name].environment()
    environment.reset(task, 0)
    taken = []
    for choice in choices:
        actions = environment.valid_actions()
        action = actions[choice % len(actions)]
        taken.append((action, environment.step(action)))
        if taken[-1][1].done:
            break
    return taken


@settings(max_examples=60, deadline=None)
@given(walks())
def test_listed_actions_are_exactly_the_accepted_ones_and_each_changes_the_state(
    case: tuple[str, Task, list[int]],
) -> None:
    name, task, choices = case
    world: World = WORLDS[name](task)
    environment = PlanningEnvironment(WORLDS[name])
    environment.reset(task, 0)
    for choice in choices:
        listed = environment.valid_actions()
        before = environment._state
        for text in world.by_text:
            if text not in listed:
                assert environment.step(text).observation == REFUSAL
                assert environment._state == before
        action = listed[choice % len(listed)]
        result = environment.step(action)
        assert result.valid
        assert (environment._state == before) == action.startswith(QUESTIONS)
        if result.done:
            break


@settings(max_examples=60, deadline=None)
@given(walks(all_sources=True))
def test_progress_never_falls_and_is_whole_exactly_at_success(case: tuple[str, Task, list[int]]) -> None:
    results = [result for _, result in walk(*case)]
    reached = [result.progress for result in results]
    assert reached == sorted(reached)
    assert all(result.success == (result.progress == 1.0) for result in results)
    # A world ends when its goal is met, a question also with a wrong answer.
    asks = case[1].payload.get("choices") is not None
    assert all(result.done == (result.success or asks) for result in results)


@settings(max_examples=40, deadline=None)
@given(walks(all_sources=True))
def test_the_same_walk_reads_the_same(case: tuple[str, Task, list[int]]) -> None:
    assert walk(*case) == walk(*case)


@settings(max_examples=40, deadline=None)
@given(walks(all_sources=True), st.text(max_size=40))
def test_any_text_is_answered_in_one_line(case: tuple[str, Task, list[int]], text: str) -> None:
    name, task, _ = case
    environment = sources()[name].environment()
    environment.reset(task, 0)
    result = environment.step(text)
    assert result.observation
    assert "\n" not in result.observation
    assert result.valid or result.observation == REFUSAL


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 4))
def test_practice_is_none_of_the_tasks_and_can_be_solved_at_any_task_seed(task_seed: int, per_type: int) -> None:
    for benchmark in (
        HouseholdBenchmark(HouseholdConfig(num_tasks=12, task_seed=task_seed, max_receptacles=3)),
        PddlBenchmark(PddlConfig(num_tasks=12, task_seed=task_seed)),
        HabitBenchmark(HabitConfig(task_seed=task_seed)),
        MixBenchmark(MixConfig(num_tasks=20, task_seed=task_seed)),
    ):
        practice = benchmark.practice_tasks(per_type)
        assert not {task.task_id for task in practice} & {task.task_id for task in benchmark.tasks()}
        assert {task.task_id for task in practice} <= {task.task_id for task in benchmark.practice_tasks(per_type + 1)}
        environment = benchmark.environment()
        for task in practice:
            environment.reset(task, 0)
            assert [environment.step(action) for action in benchmark.reference_plan(task) or ()][-1].success


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(1, 3000))
def test_shares_sum_up_and_are_off_by_less_than_one(weights: list[int], total: int) -> None:
    found = shares([weight / sum(weights) for weight in weights], total)
    assert sum(found) == total
    assert all(
        abs(count - weight * total / sum(weights)) < 1 + 1e-6 for count, weight in zip(found, weights, strict=True)
    )


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any))
def test_dealing_gives_each_place_its_count_and_nothing_out_of_turn(counts: list[int]) -> None:
    turns = dealt(counts)
    assert [turns.count(place) for place in range(len(counts))] == counts
    for place, count in enumerate(counts):
        given_so_far = 0
        for number, turn in enumerate(turns, start=1):
            given_so_far += turn == place
            assert abs(given_so_far - count * number / len(turns)) < 2


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["ladder", "full"]))
def test_any_task_seed_gives_distinct_solvable_problems(task_seed: int, goals: str) -> None:
    for benchmark in (
        PddlBenchmark(PddlConfig(num_tasks=12, task_seed=task_seed, goals=goals)),
        HouseholdBenchmark(HouseholdConfig(num_tasks=12, task_seed=task_seed)),
    ):
        tasks = benchmark.tasks()
        assert len({task.task_id for task in tasks}) == 12
        for task in tasks:
            environment = benchmark.environment()
            environment.reset(task, 0)
            results = [environment.step(action) for action in benchmark.reference_plan(task) or ()]
            assert results[-1].success
            assert len(results) <= task.max_steps


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_task_seed_gives_the_same_bytes(task_seed: int) -> None:
    def made() -> str:
        config = HouseholdConfig(num_tasks=6, task_seed=task_seed)
        return codec.encode_json([*HouseholdBenchmark(config).tasks(), *PddlBenchmark(PddlConfig(num_tasks=4)).tasks()])

    assert made() == made()


@given(
    st.sampled_from(GOAL_TYPES),
    st.sampled_from(sorted(ITEMS)),
    st.sampled_from(sorted({kind for room in ROOMS.values() for kind in room})),
    st.integers(0, 100),
)
def test_every_sentence_that_can_be_worded_reads_as_its_type(kind: str, item: str, place: str, seed: int) -> None:
    sentence = goal_sentence(kind, item, place, SeedTree(("test", seed)).generator())
    assert goal_type(sentence) == kind


@given(
    st.sampled_from(["computer", "theater", "cooler", "cleaner", "heater", "twofold", "input", "placement", "hotel"])
)
def test_parts_of_words_are_no_sign(word: str) -> None:
    assert goal_type(f"ask the {word} about it.") == OTHER
