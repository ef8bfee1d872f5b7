"""A mix: shares by weight, the order of the list, goal types, practice, dispatch, and what is refused."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from memcon import registry
from memcon.errors import ConfigError, InvariantError
from memcon.protocols import Benchmark, Environment, Observation, StepResult
from memcon.testing.environment import ScriptedBenchmark, ScriptedEnvironment, play
from memcon.types import Provenance, Task
from memcon_workers.benchmarks.dispatching import DispatchingEnvironment, Route
from memcon_workers.benchmarks.mix import MixBenchmark, MixConfig
from memcon_workers.benchmarks.mix_parts import Part, dealt, shares

HALVES = ({"name": "habit", "weight": 0.5}, {"name": "audit", "weight": 0.5})


def mix(num_tasks: int, *parts: dict[str, Any], **parameters: Any) -> MixBenchmark:
    config = registry.configure("benchmark", "mix", {"num_tasks": num_tasks, "parts": list(parts), **parameters})
    return MixBenchmark(config)


def counts(tasks: Sequence[Task]) -> Counter[str]:
    return Counter(task.benchmark for task in tasks)


@pytest.fixture(scope="module")
def main_mix() -> MixBenchmark:
    return MixBenchmark(MixConfig())


# --- shares and order ------------------------------------------------------------------------------------------------


def test_the_default_is_the_main_mix_of_134_tasks(main_mix: MixBenchmark) -> None:
    assert counts(main_mix.tasks()) == {
        "household": 36,
        "pddl": 24,
        "habit": 24,
        "audit": 24,
        "recur": 18,
        "trivia": 8,
    }


@pytest.mark.parametrize(
    ("weights", "total", "expected"),
    [
        ([0.5, 0.5], 3, [2, 1]),
        ([0.29, 0.71], 100, [29, 71]),
        ([0.333333, 0.333333, 0.333334], 10, [3, 3, 4]),
        ([0.6, 0.3, 0.1], 7, [4, 2, 1]),
        ([1], 5, [5]),
    ],
)
def test_tasks_are_shared_out_by_the_largest_remainder(weights: list[float], total: int, expected: list[int]) -> None:
    assert shares(weights, total) == expected


def test_no_part_is_ever_a_task_ahead_of_its_share() -> None:
    sizes = [36, 24, 24, 24, 18, 8]
    turns = dealt(sizes)
    assert [turns.count(place) for place in range(6)] == sizes
    for number in range(1, len(turns) + 1):
        given = Counter(turns[:number])
        assert all(abs(given[place] - size * number / 134) < 1.5 for place, size in enumerate(sizes))


def test_the_order_of_the_list_is_fixed_and_keeps_the_order_of_each_part(main_mix: MixBenchmark) -> None:
    assert list(MixBenchmark(MixConfig()).tasks()) == list(main_mix.tasks())
    asked = [task.task_id for task in main_mix.tasks() if task.benchmark == "trivia"]
    assert [task_id.split("-")[1] for task_id in asked] == [str(number) for number in range(8)]


def test_a_task_stays_as_its_benchmark_made_it() -> None:
    made = mix(4, *HALVES).tasks()
    assert counts(made) == {"habit": 2, "audit": 2}
    alone = registry.plugin("benchmark", "audit").build(registry.configure("benchmark", "audit", {"num_tasks": 2}))
    assert [task for task in made if task.benchmark == "audit"] == list(alone.tasks())


def test_settings_reach_the_parts() -> None:
    parts = ({"name": "audit", "weight": 0.5, "num_parcels": 1}, {"name": "habit", "weight": 0.5, "task_seed": 3})
    tasks = mix(12, *parts, task_seed=7).tasks()
    assert len({task.goal for task in tasks if task.benchmark == "audit"}) == 1
    ids = {task.task_id for task in tasks}
    moved = {task.task_id for task in mix(12, *parts, task_seed=8).tasks()}
    # The part that names its seed keeps it; the other one follows the mix.
    assert counts([task for task in tasks if task.task_id in moved]) == {"habit": 6}
    assert len(ids) == 12


# --- traits ----------------------------------------------------------------------------------------------------------


def test_each_part_is_asked_for_its_own_facts(main_mix: MixBenchmark) -> None:
    parts = {task.benchmark: main_mix.part_of(task) for task in main_mix.tasks()}
    assert {name: part.name for name, part in parts.items()} == {name: name for name in parts}
    assert [name for name, part in parts.items() if part.has_step_budget] == ["household", "pddl", "recur"]
    assert parts["household"].single_object_types == {"puttwo": "put"}
    assert "depot" in parts["habit"].vocabulary
    assert "depot" not in parts["household"].vocabulary
    assert main_mix.provenance is Provenance.SELF_MADE


def test_the_built_in_families_share_no_goal_type(main_mix: MixBenchmark) -> None:
    assert not [kind for kind in main_mix.goal_types if ":" in kind]
    assert set(main_mix.goal_types) == {task.goal_type for task in main_mix.tasks()}


class Other(ScriptedBenchmark):
    """A second benchmark with the goal types of the first."""

    name = "other"


def a_part(source: Benchmark, *prefixed: str) -> Part:
    return Part(source, num_tasks=1, practice_per_type=None, prefixed=frozenset(prefixed))


def test_goal_types_of_two_benchmarks_bear_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {"habit": ScriptedBenchmark(["look"]), "audit": Other(["go to shelf 1"])}
    monkeypatch.setattr("memcon_workers.benchmarks.mix._built", lambda part: sources[part.name])
    both = mix(2, *HALVES)
    assert [task.goal_type for task in both.tasks()] == ["scripted:put", "other:put"]
    assert both.goal_types == ("scripted:put", "scripted:other", "other:put", "other:other")
    for task in both.tasks():
        part = both.part_of(task)
        assert task.goal_type in part.goal_types
        environment = both.environment()
        environment.reset(task, 0)
        assert play(environment, both.reference_plan(task) or ())[-1].success


def test_a_shared_type_is_prefixed_wherever_the_part_names_it() -> None:
    household = registry.plugin("benchmark", "household").build(registry.configure("benchmark", "household", {}))
    part = a_part(household, "put", "clean")
    assert part.goal_types[:3] == ("household:put", "examine", "household:clean")
    assert part.single_object_types == {"puttwo": "household:put"}
    recur = registry.plugin("benchmark", "recur").build(registry.configure("benchmark", "recur", {}))
    jobs = a_part(recur, "job_blocks")
    task = jobs.tasks()[0]
    inner = jobs.part_of(task)
    assert (task.goal_type, inner.name, inner.goal_types) == ("recur:job_blocks", "recur", ("recur:job_blocks",))
    assert inner.reference_plan(task) == jobs.reference_plan(task) == recur.reference_plan(recur.tasks()[0])


# --- practice --------------------------------------------------------------------------------------------------------


def test_practice_is_bounded_by_the_part_and_by_the_asker(main_mix: MixBenchmark) -> None:
    assert counts(main_mix.practice_tasks(25)) == {"household": 18, "pddl": 12, "habit": 25}
    assert counts(main_mix.practice_tasks(2)) == {"household": 12, "pddl": 8, "habit": 2}
    none = mix(10, {"name": "habit", "weight": 0.5, "practice_per_type": 0}, {"name": "audit", "weight": 0.5})
    assert list(none.practice_tasks(25)) == []


def test_two_parts_of_one_benchmark_share_the_bound_of_a_goal_type() -> None:
    twice = mix(20, {"name": "household", "weight": 0.5}, {"name": "household", "weight": 0.5, "max_receptacles": 12})
    assert set(Counter(task.goal_type for task in twice.practice_tasks(2)).values()) == {2}


# --- dispatch --------------------------------------------------------------------------------------------------------


class Slow(ScriptedEnvironment):
    """Says that it blocks, and counts how often it was closed."""

    blocking = True
    closed = 0

    def close(self) -> None:
        super().close()
        type(self).closed += 1


class SlowBenchmark(ScriptedBenchmark):
    name = "slow"
    opened = 0

    def environment(self) -> Environment:
        type(self).opened += 1
        return Slow()


def dispatching(*benchmarks: Benchmark) -> DispatchingEnvironment:
    by_name = {benchmark.name: benchmark for benchmark in benchmarks}

    def route(task: Task) -> Route:
        return Route(key=task.benchmark, benchmark=by_name[task.benchmark], task=task)

    return DispatchingEnvironment(route, num_keys=len(benchmarks))


def test_an_environment_is_opened_when_its_first_task_comes_and_once() -> None:
    slow, quick = SlowBenchmark(["look"]), ScriptedBenchmark(["look"])
    before = SlowBenchmark.opened
    environment = dispatching(quick, slow)
    environment.reset(quick.tasks()[0], 0)
    assert SlowBenchmark.opened == before
    for _ in range(2):
        environment.reset(slow.tasks()[0], 0)
    assert SlowBenchmark.opened == before + 1
    closed = Slow.closed
    environment.close()
    environment.close()
    assert Slow.closed == closed + 1


def test_calls_go_to_a_thread_until_no_environment_can_block() -> None:
    slow, quick, other = SlowBenchmark(["look"]), ScriptedBenchmark(["look"]), Other(["look"])
    for benchmarks, last in (((quick, other), False), ((quick, slow), True)):
        environment = dispatching(*benchmarks)
        told = [environment.blocking]
        for benchmark in benchmarks:
            environment.reset(benchmark.tasks()[0], 0)
            told.append(environment.blocking)
        assert told == [True, True, last]


def test_after_a_refused_task_no_episode_runs() -> None:
    quick = ScriptedBenchmark(["look"])
    environment = dispatching(quick)
    environment.reset(quick.tasks()[0], 0)
    with pytest.raises(Exception, match="no script"):
        environment.reset(dataclasses.replace(quick.tasks()[0], payload={}), 0)
    with pytest.raises(InvariantError, match="no episode runs"):
        environment.step("look")


class Shouting(ScriptedEnvironment):
    """Tells the goal type that it is given."""

    def reset(self, task: Task, seed: int) -> Observation:
        super().reset(task, seed)
        return Observation(text=task.goal_type)

    def step(self, action: str) -> StepResult:
        return super().step(action)


class ShoutingBenchmark(ScriptedBenchmark):
    def environment(self) -> Environment:
        return Shouting()


def test_an_environment_gets_its_own_goal_type_back() -> None:
    part = a_part(ShoutingBenchmark(["look"]), "put")
    (task,) = part.tasks()
    assert task.goal_type == "scripted:put"
    assert part.environment().reset(task, 0).text == "put"


# --- refusals: one line each -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([], "expected at least one part"),
        ([{"weight": 1}], "expected name and weight"),
        ([{"name": "habit"}], "expected name and weight"),
        ([{"name": "habit", "weight": "all"}], "parts[0] 'habit': weight = 'all': expected a number"),
        ([{"name": "habit", "weight": 0.5}, {"name": "audit", "weight": 0.4}], "sum to 0.9 (habit 0.5, audit 0.4)"),
        ([{"name": "habbit", "weight": 1}], "unknown benchmark 'habbit'"),
        ([{"name": "mix", "weight": 1}], "parts[0] 'mix': a part of a mix cannot be a mix"),
        ([{"name": "habit", "weight": 1, "num_tasks": 3}], "num_tasks follows from the weight (50)"),
        ([{"name": "habit", "weight": 1, "clients": 3}], "parts[0] 'habit': unknown key 'clients'"),
        ([{"name": "habit", "weight": 1, "usual_share": 2}], "parts[0] 'habit': usual_share = 2"),
        ([{"name": "habit", "weight": 1, "practice_per_type": -1}], "practice_per_type = -1"),
        ([{"name": "habit", "weight": 0.999}, {"name": "audit", "weight": 0.001}], "gives it none"),
        (
            [{"name": "habit", "weight": 0.5}, {"name": "habit", "weight": 0.5}],
            "parts[0] and parts[1] are both 'habit' with equal settings",
        ),
        (
            [{"name": "habit", "weight": 0.3}, {"name": "habit", "weight": 0.7, "num_clients": 5}],
            "parts[0] and parts[1] are both 'habit' with equal settings",
        ),
    ],
)
def test_a_wrong_mix_is_refused_in_one_line(parts: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        mix(50, *parts)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_part_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'household'"):
        mix(5, {"name": "houshold", "weight": 1})


def test_two_parts_with_the_same_task_are_refused() -> None:
    parts = ({"name": "pddl", "weight": 0.5}, {"name": "pddl", "weight": 0.5, "domains": ["gripper"]})
    with pytest.raises(ConfigError, match=r"parts\[0\] and parts\[1\] \('pddl'\) both have task .*another task_seed"):
        mix(12, *parts).tasks()


def test_a_part_with_too_few_tasks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memcon_workers.benchmarks.mix._built", lambda part: ScriptedBenchmark(["look"]))
    with pytest.raises(ConfigError, match=r"part 'scripted' has 1 tasks, its weight asks for 3"):
        mix(3, {"name": "habit", "weight": 1}).tasks()


def test_a_task_of_no_part_is_refused() -> None:
    foreign = registry.plugin("benchmark", "trivia").build(registry.configure("benchmark", "trivia", {})).tasks()[0]
    with pytest.raises(ConfigError, match=f"'{foreign.task_id}' is of benchmark 'trivia', which is no part"):
        mix(4, *HALVES).part_of(foreign)
