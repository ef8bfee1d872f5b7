"""What the constructed families are built to show, with the imitator: more memory helps, harms, or does nothing."""

from __future__ import annotations

from collections.abc import Sequence

from memcon.protocols import Benchmark
from memcon.types import MemoryContext, Task
from support.family_table import ARMS, Store, as_text, play_arms
from support.imitator_play import a_benchmark, attempt, of_other_types, reference_trajectory

SEEDS = range(10)


async def success(benchmark: Benchmark, tasks: Sequence[Task], store: Store, arm: str, *, seed: int) -> list[bool]:
    return [
        (await attempt(benchmark, task, store.context(task, ARMS[arm], benchmark), seed=seed)).success for task in tasks
    ]


def share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


def stored(benchmark: Benchmark, tasks: Sequence[Task]) -> Store:
    store = Store()
    for task in tasks:
        store.add(reference_trajectory(benchmark, task), benchmark)
    return store


async def test_in_habit_more_records_are_better_than_one_and_one_is_better_than_none() -> None:
    solved: dict[str, list[bool]] = {"noop": [], "shallow": [], "deep": []}
    for seed in SEEDS:
        benchmark = a_benchmark("habit", task_seed=seed)
        store = stored(benchmark, benchmark.practice_tasks(25))
        for arm in solved:
            solved[arm] += await success(benchmark, benchmark.tasks(), store, arm, seed=seed)
    shares = {arm: share(flags) for arm, flags in solved.items()}
    assert shares["noop"] < 0.25
    assert shares["shallow"] > shares["noop"] + 0.2
    assert shares["deep"] > shares["shallow"] + 0.03


async def test_in_audit_memory_does_harm_and_more_of_it_less() -> None:
    solved: dict[str, list[bool]] = {"noop": [], "shallow": [], "deep": []}
    for seed in SEEDS:
        benchmark = a_benchmark("audit", task_seed=seed)
        # What was right on earlier days, three records of each parcel.
        past, rest = benchmark.tasks()[:12], benchmark.tasks()[12:]
        store = stored(benchmark, past)
        for arm in solved:
            solved[arm] += await success(benchmark, rest, store, arm, seed=seed)
    shares = {arm: share(flags) for arm, flags in solved.items()}
    assert shares["noop"] > 0.8
    assert shares["shallow"] < 0.3
    assert shares["shallow"] + 0.2 < shares["deep"] < shares["noop"] - 0.05


async def test_in_trivia_memory_changes_no_answer_at_all() -> None:
    benchmark = a_benchmark("trivia", num_tasks=40)
    past, rest = benchmark.tasks()[:20], benchmark.tasks()[20:]
    store = stored(benchmark, past)
    found = {arm: await success(benchmark, rest, store, arm, seed=1) for arm in ARMS}
    assert all(flags == found["noop"] for flags in found.values())
    assert share(found["noop"]) > 0.7


async def test_a_job_of_recur_that_was_solved_is_solved_again() -> None:
    benchmark = a_benchmark("recur", task_seed=3)
    with_memory, without = [], []
    for task in benchmark.tasks()[:3]:
        store = stored(benchmark.part_of(task), [benchmark.part_of(task).tasks()[0]])
        for seed in range(4):
            context = store.context(task, ARMS["shallow"], benchmark.part_of(task))
            with_memory.append((await attempt(benchmark, task, context, seed=seed)).success)
            without.append((await attempt(benchmark, task, MemoryContext(), seed=seed)).success)
    assert share(with_memory) > 0.9
    assert share(without) < 0.8


async def test_records_of_other_families_change_no_answer() -> None:
    mix = a_benchmark("mix", num_tasks=60)
    records = [
        reference_trajectory(mix, next(task for task in mix.tasks() if task.benchmark == name))
        for name in ("household", "pddl", "audit", "trivia")
    ]
    habit = a_benchmark("habit")
    for task in habit.tasks()[:10]:
        store = Store()
        for record in of_other_types(records, task, 3):
            store.add(record, mix.part_of(record.task))
        for arm in ("noop", "deep"):
            context = store.context(task, ARMS[arm], habit)
            run = await attempt(habit, task, context, seed=1)
            assert run.steps[0].action == (await attempt(habit, task, MemoryContext(), seed=1)).steps[0].action


async def test_the_table_has_a_line_for_each_family_and_goal_type() -> None:
    mix = a_benchmark("mix", num_tasks=17)
    rows = [row for task in mix.tasks() for row in (await play_arms(mix, task, Store(), seed=1))[0]]
    lines = as_text(rows).splitlines()
    assert lines[0].split() == list(ARMS)
    assert [line.split()[0] for line in lines[1:8]] == [
        "mix", "household", "pddl", "habit", "audit", "recur", "trivia",
    ]  # fmt: skip
    assert lines[-1].split()[-1] == "0"
