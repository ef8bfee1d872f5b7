"""The environment and benchmark ports under test: the bodies that every implementation passes, and a scripted fake."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from memcon import codec
from memcon.errors import MemconError
from memcon.protocols import Benchmark, Environment, Observation, StepResult
from memcon.types import ProgressRules, Provenance, Task

__all__ = ["BenchmarkContract", "EnvironmentContract", "ScriptedBenchmark", "ScriptedEnvironment", "play"]

# No environment understands it.
NONSENSE = "xyzzy the frobnicator 77"
# Practice tasks of a goal type that a contract test asks for.
PER_TYPE = 3


def play(environment: Environment, actions: Sequence[str]) -> list[StepResult]:
    """Results of `actions`, up to the end of the episode."""
    results: list[StepResult] = []
    for action in actions:
        results.append(environment.step(action))
        if results[-1].done:
            break
    return results


class EnvironmentContract:
    """What every environment does. Override `environment`, `task`, and `solution` where one is known."""

    @pytest.fixture
    def environment(self) -> Environment:
        raise NotImplementedError

    @pytest.fixture
    def task(self) -> Task:
        raise NotImplementedError

    @pytest.fixture
    def solution(self) -> Sequence[str] | None:
        """Actions that solve `task`."""
        return None

    def test_reset_shows_one_line(self, environment: Environment, task: Task) -> None:
        text = environment.reset(task, 1).text
        assert text.strip()
        assert "\n" not in text

    def test_reset_is_repeatable(self, environment: Environment, task: Task) -> None:
        first = environment.reset(task, 1).text, list(environment.valid_actions())
        play(environment, environment.valid_actions()[:1])
        assert (environment.reset(task, 1).text, list(environment.valid_actions())) == first

    def test_nonsense_is_refused_and_changes_nothing(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        before = list(environment.valid_actions())
        result = environment.step(NONSENSE)
        assert result.observation
        assert (result.valid, result.done, result.success) == (False, False, False)
        assert list(environment.valid_actions()) == before

    def test_refusals_read_alike(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        assert environment.step(NONSENSE).observation == environment.step(f"{NONSENSE} again").observation

    def test_valid_actions_are_unique_and_in_a_stable_order(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        actions = list(environment.valid_actions())
        assert len(set(actions)) == len(actions)
        assert list(environment.valid_actions()) == actions

    def test_every_listed_action_is_accepted(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        for action in list(environment.valid_actions()):
            environment.reset(task, 1)
            assert environment.step(action).valid, action

    def test_case_and_blanks_do_not_matter(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        action = next(iter(environment.valid_actions()))
        plain = environment.step(action)
        environment.reset(task, 1)
        assert environment.step(f"  {action.upper().replace(' ', '   ')} ") == plain

    def test_observations_are_one_line_and_progress_never_falls(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        last = 0.0
        for turn in range(task.max_steps):
            actions = list(environment.valid_actions())
            result = environment.step(actions[turn % len(actions)])
            assert "\n" not in result.observation
            assert last <= result.progress <= 1.0
            last = result.progress
            if result.done:
                break

    def test_the_solution_ends_in_success(
        self, environment: Environment, task: Task, solution: Sequence[str] | None
    ) -> None:
        if solution is None:
            pytest.skip("no solution is known")
        environment.reset(task, 1)
        results = play(environment, solution)
        assert [result.success for result in results] == [False] * (len(solution) - 1) + [True]
        assert all(result.valid for result in results)
        assert results[-1].done
        assert results[-1].progress == 1.0

    def test_after_the_end_a_step_is_an_error_until_reset(
        self, environment: Environment, task: Task, solution: Sequence[str] | None
    ) -> None:
        if solution is None:
            pytest.skip("no solution is known")
        environment.reset(task, 1)
        play(environment, solution)
        with pytest.raises(MemconError):
            environment.step(solution[-1])
        environment.reset(task, 1)
        assert not environment.step(NONSENSE).done

    def test_a_step_before_reset_is_an_error(self, environment: Environment) -> None:
        with pytest.raises(MemconError):
            environment.step(NONSENSE)

    def test_close_may_be_called_twice(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        environment.close()
        environment.close()


def check_fits(task: Task, source: Benchmark) -> None:
    """`task` is as the traits of `source`, and of the part that made it, say."""
    part = source.part_of(task)
    assert (task.benchmark, task.provenance) == (part.name, part.provenance)
    assert task.goal_type in source.goal_types
    assert task.goal_type in part.goal_types
    assert part.vocabulary <= source.vocabulary
    assert task.goal.strip()
    assert task.max_steps >= 1


class BenchmarkContract:
    """What every benchmark gives. Override `source`; `samples` says how many tasks are played."""

    samples = 12

    @pytest.fixture
    def source(self) -> Benchmark:
        raise NotImplementedError

    @pytest.fixture
    def played(self, source: Benchmark) -> Sequence[Task]:
        """Tasks spread over the whole list."""
        tasks = source.tasks()
        return tasks[:: max(1, len(tasks) // self.samples)]

    def test_tasks_are_distinct_and_fit_the_traits(self, source: Benchmark) -> None:
        tasks = source.tasks()
        assert tasks
        assert len({task.task_id for task in tasks}) == len(tasks)
        for task in tasks:
            check_fits(task, source)

    def test_the_list_is_the_same_every_time(self, source: Benchmark) -> None:
        assert list(source.tasks()) == list(source.tasks())

    def test_tasks_survive_json(self, source: Benchmark, played: Sequence[Task]) -> None:
        for task in played:
            stored = codec.decode(Task, json.loads(codec.encode_json(task)))
            assert codec.encode_json(stored) == codec.encode_json(task)
            assert source.environment().reset(stored, 1) == source.environment().reset(task, 1)

    def test_rules_have_their_groups(self, source: Benchmark) -> None:
        rules = source.progress_rules
        assert "object" in re.compile(rules.take).groupindex
        assert "object" in re.compile(rules.release).groupindex
        assert "place" in re.compile(rules.visit).groupindex

    def test_goal_types_name_each_other_consistently(self, source: Benchmark) -> None:
        assert len(set(source.goal_types)) == len(source.goal_types)
        for double, single in source.single_object_types.items():
            assert {double, single} <= set(source.goal_types)

    def test_vocabulary_is_plain_words(self, source: Benchmark) -> None:
        assert source.vocabulary
        assert all(re.fullmatch(r"[a-z]+", word) for word in source.vocabulary)

    def test_reference_plans_solve_within_the_horizon(self, source: Benchmark, played: Sequence[Task]) -> None:
        environment = source.environment()
        for task in played:
            plan = source.reference_plan(task)
            if plan is None:
                continue
            environment.reset(task, 1)
            assert play(environment, plan)[-1].success, task.task_id
            assert len(plan) <= task.max_steps

    def test_practice_tasks_are_other_tasks_of_the_same_kind(self, source: Benchmark) -> None:
        practice = source.practice_tasks(PER_TYPE)
        ids = [task.task_id for task in practice]
        assert len(set(ids)) == len(ids)
        assert not {task.task_id for task in source.tasks()} & set(ids)
        for task in practice:
            check_fits(task, source)
        assert max(Counter(task.goal_type for task in practice).values(), default=0) <= PER_TYPE

    def test_practice_tasks_are_the_same_every_time(self, source: Benchmark) -> None:
        first = list(source.practice_tasks(PER_TYPE))
        assert list(source.practice_tasks(PER_TYPE)) == first
        assert list(source.practice_tasks(0)) == []
        assert {task.task_id for task in source.practice_tasks(1)} <= {task.task_id for task in first}

    def test_reference_plans_solve_practice_tasks(self, source: Benchmark) -> None:
        environment = source.environment()
        for task in source.practice_tasks(PER_TYPE):
            environment.reset(task, 1)
            assert list(environment.valid_actions())
            plan = source.reference_plan(task)
            if plan is not None:
                assert play(environment, plan)[-1].success, task.task_id
                assert len(plan) <= task.max_steps

    def test_a_part_plays_its_own_tasks(self, source: Benchmark, played: Sequence[Task]) -> None:
        for task in played:
            part = source.part_of(task)
            assert part.part_of(task).name == part.name
            assert part.environment().reset(task, 1) == source.environment().reset(task, 1)
            assert part.reference_plan(task) == source.reference_plan(task)

    def test_environments_do_not_share_an_episode(self, source: Benchmark, played: Sequence[Task]) -> None:
        one, other = source.environment(), source.environment()
        one.reset(played[0], 1)
        before = list(one.valid_actions())
        other.reset(played[0], 1)
        play(other, before[:1])
        assert list(one.valid_actions()) == before

    def test_a_foreign_payload_is_refused_with_the_task_named(self, source: Benchmark) -> None:
        task = Task(
            task_id="foreign-1",
            benchmark="another",
            goal="do something.",
            goal_type="other",
            payload={"surprise": 1},
            max_steps=1,
            provenance=Provenance.SELF_MADE,
        )
        with pytest.raises(MemconError, match="foreign-1"):
            source.environment().reset(task, 1)


class ScriptedEnvironment:
    """A fake: the task is solved by the actions of `payload["script"]` in their order; each shows a fixed line."""

    blocking = False

    def __init__(self) -> None:
        self._script: Sequence[str] | None = None
        self._position = 0

    def reset(self, task: Task, seed: int) -> Observation:
        """Start at the first action of the script."""
        del seed
        if not isinstance(task.payload.get("script"), list | tuple):
            raise MemconError(f"scripted environment: task '{task.task_id}' has no script in its payload")
        self._script, self._position = list(task.payload["script"]), 0
        return Observation(text="You are at the start.")

    def step(self, action: str) -> StepResult:
        """Go on when `action` is the next one of the script."""
        script = self._running()
        valid = " ".join(action.lower().split()) == script[self._position]
        self._position += valid
        done = self._position == len(script)
        text = f"You did part {self._position}." if valid else "Nothing happens."
        return StepResult(observation=text, valid=valid, done=done, success=done, progress=self._position / len(script))

    def valid_actions(self) -> Sequence[str]:
        """The next action of the script."""
        if self._script is not None and self._position == len(self._script):
            return []
        return [self._running()[self._position]]

    def close(self) -> None:
        """Forget the script."""
        self._script = None

    def _running(self) -> Sequence[str]:
        if self._script is None or self._position == len(self._script):
            raise MemconError("scripted environment: no episode runs; call reset first")
        return self._script


class ScriptedBenchmark:
    """A fake: one task a script, goal type "put"."""

    name = "scripted"
    provenance = Provenance.SELF_MADE
    goal_types: tuple[str, ...] = ("put", "other")
    vocabulary = frozenset({"mug", "shelf"})
    progress_rules = ProgressRules(
        take=r"take (?P<object>[a-z]+ \d+).*", release=r"move (?P<object>[a-z]+ \d+).*", visit=r"go to (?P<place>.+)"
    )
    has_step_budget = True

    def __init__(self, *scripts: Sequence[str]) -> None:
        self.single_object_types: Mapping[str, str] = {}
        self._scripts = [list(script) for script in scripts]

    def tasks(self) -> Sequence[Task]:
        """One task a script."""
        return [
            Task(
                task_id=f"{self.name}-{number}",
                benchmark=self.name,
                goal=f"do script {number}.",
                goal_type="put",
                payload={"script": script},
                max_steps=30,
                provenance=self.provenance,
            )
            for number, script in enumerate(self._scripts)
        ]

    def environment(self) -> Environment:
        """A fresh scripted environment."""
        return ScriptedEnvironment()

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        """None: there are no scripts but those of the tasks."""
        del per_type
        return ()

    def reference_plan(self, task: Task) -> Sequence[str] | None:
        """The script."""
        return list(task.payload["script"])

    def part_of(self, task: Task) -> Benchmark:
        """This benchmark."""
        del task
        return self
