"""The environment port under test: the contract body that the environment of every benchmark passes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memcon.errors import MemconError
from memcon.protocols import Environment, Observation, StepResult
from memcon.testing.contract import (
    Contract,
    accepts,
    expect,
    expect_equal,
    expect_kind,
    expect_port,
    refuses,
    to_give,
)
from memcon.testing.environment import play
from memcon.types import Task

__all__ = ["EnvironmentContract"]

# No environment understands it.
NONSENSE = "xyzzy the frobnicator 77"
_RESET, _STEP, _VALID = "Environment.reset", "Environment.step", "Environment.valid_actions"


class EnvironmentContract(Contract):
    """What every environment does. Override `environment`, `task`, and `solution` where one is known."""

    @pytest.fixture
    def environment(self) -> Environment:
        """The environment under test."""
        to_give(self, "environment", "Environment", "the environment under test, fresh: Benchmark.environment()")

    @pytest.fixture
    def task(self) -> Task:
        """A task of it."""
        to_give(self, "task", "Task", "a task that the environment plays: one of Benchmark.tasks()")

    @pytest.fixture
    def solution(self) -> Sequence[str] | None:
        """Actions that solve `task`."""
        return None

    def test_it_is_an_environment(self, environment: Environment, task: Task) -> None:
        expect_port(environment, Environment)
        expect_kind(environment.reset(task, 1), Observation, _RESET)
        for action in (NONSENSE, *environment.valid_actions()[:1]):
            expect_kind(environment.step(action), StepResult, _STEP)

    def test_reset_shows_one_line(self, environment: Environment, task: Task) -> None:
        text = environment.reset(task, 1).text
        expect(text.strip() != "" and "\n" not in text, _RESET, "shows one line of text, which is not empty", met=text)

    def test_reset_is_repeatable(self, environment: Environment, task: Task) -> None:
        first = environment.reset(task, 1).text, list(environment.valid_actions())
        play(environment, environment.valid_actions()[:1])
        expect_equal(
            (environment.reset(task, 1).text, list(environment.valid_actions())),
            first,
            _RESET,
            wants="starts the task over: the equal task and seed give the equal text and the equal valid actions",
        )

    def test_equal_actions_give_equal_results(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        actions: list[str] = []
        first = []
        for turn in range(min(task.max_steps, 10)):
            valid = list(environment.valid_actions())
            actions.append(valid[turn % len(valid)])
            first.append(environment.step(actions[-1]))
            if first[-1].done:
                break
        environment.reset(task, 1)
        expect_equal(
            play(environment, actions), first, _STEP, wants="takes all chance from the seed of reset: a replay is equal"
        )

    def test_nonsense_is_refused_and_changes_nothing(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        before = list(environment.valid_actions())
        wants = "takes an action that it does not know as valid=False, neither done nor success, and not as an error"
        with accepts(_STEP, wants=wants):
            result = environment.step(NONSENSE)
        expect(result.observation != "", _STEP, "says something to an action that it does not know", met=result)
        expect(
            (result.valid, result.done, result.success) == (False, False, False),
            _STEP,
            wants,
            met=result,
        )
        expect_equal(
            list(environment.valid_actions()), before, _STEP, wants="leaves the world alone when it refuses an action"
        )

    def test_refusals_read_alike(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        first = environment.step(NONSENSE).observation
        expect_equal(
            environment.step(f"{NONSENSE} again").observation,
            first,
            _STEP,
            wants="has one text for actions that it does not know: the policy's trigger 'stuck' compares them",
        )

    def test_valid_actions_are_unique_and_in_a_stable_order(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        actions = list(environment.valid_actions())
        expect(actions != [], _VALID, "lists at least one action until the episode is over", met=actions)
        expect_equal(len(set(actions)), len(actions), _VALID, wants="lists each action once")
        expect_equal(list(environment.valid_actions()), actions, _VALID, wants="keeps its order while nothing happens")

    def test_every_listed_action_is_accepted(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        for action in list(environment.valid_actions()):
            environment.reset(task, 1)
            result = environment.step(action)
            expect(result.valid, _VALID, f"lists only actions that step accepts; it refused '{action}'", met=result)

    def test_case_and_blanks_do_not_matter(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        action = next(iter(environment.valid_actions()))
        plain = environment.step(action)
        environment.reset(task, 1)
        odd = f"  {action.upper().replace(' ', '   ')} "
        expect_equal(environment.step(odd), plain, _STEP, wants=f"reads '{odd}' as '{action}': models vary these")

    def test_observations_are_one_line_and_progress_never_falls(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        last = 0.0
        for turn in range(task.max_steps):
            actions = list(environment.valid_actions())
            result = environment.step(actions[turn % len(actions)])
            expect("\n" not in result.observation, _STEP, "shows one line of text", met=result.observation)
            expect(
                last <= result.progress <= 1.0,
                _STEP,
                f"has a progress in 0..1 that never falls within an episode; it was {last}",
                met=result.progress,
            )
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
        expect_equal(
            [result.success for result in results],
            [False] * (len(solution) - 1) + [True],
            _STEP,
            wants="gives success at the last action of the solution, and not before",
        )
        expect(all(result.valid for result in results), _STEP, "accepts every action of the solution", met=results)
        expect(
            results[-1].done and results[-1].progress == 1.0,
            _STEP,
            "is done, with a progress of 1, when the task is solved",
            met=results[-1],
        )

    def test_after_the_end_a_step_is_an_error_until_reset(
        self, environment: Environment, task: Task, solution: Sequence[str] | None
    ) -> None:
        if solution is None:
            pytest.skip("no solution is known")
        environment.reset(task, 1)
        play(environment, solution)
        with refuses(MemconError, _STEP, wants="is an error once the episode is over"):
            environment.step(solution[-1])
        environment.reset(task, 1)
        result = environment.step(NONSENSE)
        expect(not result.done, _RESET, "starts a new episode after one that is over", met=result)

    def test_a_step_before_reset_is_an_error(self, environment: Environment) -> None:
        with refuses(MemconError, _STEP, wants="is an error before the first reset"):
            environment.step(NONSENSE)

    def test_close_may_be_called_twice(self, environment: Environment, task: Task) -> None:
        environment.reset(task, 1)
        environment.close()
        with accepts("Environment.close", wants="may be called twice"):
            environment.close()
