"""How an attempt ended: the environment's own word (MC-24, D42), and failures that are data (architecture)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memcon.clock import SystemClock
from memcon.errors import InvariantError, UnavailableError
from memcon.protocols import AgentRun, Observation, StepResult
from memcon.testing.chat_model import ScriptedModel
from memcon.testing.framework import FixedMemory, Switches, switch_task
from memcon.types import Outcome, OutcomeClass, Task
from memcon_workers.episode import Player
from memcon_workers.frameworks.lobster import Lobster, LobsterConfig


class Ending(Switches):
    """Ends at the first step with the given word on success, whatever the score."""

    def __init__(self, *, done: bool, success: bool) -> None:
        super().__init__()
        self._done, self._success = done, success

    def step(self, action: str) -> StepResult:
        return StepResult(observation="", valid=True, done=self._done, success=self._success, progress=0.9)


class Crashing:
    """A framework with a bug."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def run(self, *args: object, **keywords: object) -> AgentRun:
        raise self._error


class Sleeping:
    """A framework that never comes back."""

    async def run(self, *args: object, **keywords: object) -> AgentRun:
        await asyncio.Event().wait()
        raise AssertionError


async def outcome_of(
    framework: Any = None, environment: Switches | None = None, *, time_limit_s: float | None = None
) -> Outcome:
    player = Player(
        framework=framework or Lobster(LobsterConfig(), clock=SystemClock()),
        environment=environment or Switches(),
        model=ScriptedModel(["press switch 1", "dance"]),
        clock=SystemClock(),
        time_limit_s=time_limit_s,
    )
    task = switch_task(max_steps=2)
    return (await player.play(task, FixedMemory(), environment_seed=1, agent_seed=2)).outcome


@pytest.mark.parametrize(
    ("done", "success", "expected"),
    [
        (True, True, OutcomeClass.SUCCESS),
        # Over, and a high score: no success.
        (True, False, OutcomeClass.FAILURE),
        (False, False, OutcomeClass.TRUNCATED),
    ],
)
async def test_success_is_the_environments_word(done: bool, success: bool, expected: OutcomeClass) -> None:
    outcome = await outcome_of(environment=Ending(done=done, success=success))
    assert (outcome.outcome_class, outcome.score, outcome.success) == (expected, 0.9, success)


@pytest.mark.parametrize("error", [KeyError("goal"), TimeoutError("a socket of its own")])
async def test_a_crash_of_the_framework_is_data(error: Exception) -> None:
    outcome = await outcome_of(Crashing(error))
    assert (outcome.outcome_class, outcome.error_boundary) == (OutcomeClass.UNEVALUABLE, "framework")
    assert type(error).__name__ in outcome.error


class Away(Switches):
    """A world whose own server does not answer at one of its calls."""

    def __init__(self, *, at: str) -> None:
        super().__init__()
        self._at = at

    def reset(self, task: Task, seed: int) -> Observation:
        self._ask("reset")
        return super().reset(task, seed)

    def step(self, action: str) -> StepResult:
        self._ask("step")
        return super().step(action)

    def _ask(self, call: str) -> None:
        if call == self._at:
            raise UnavailableError("the game server is away")


@pytest.mark.parametrize("call", ["reset", "step"])
async def test_a_world_whose_service_is_away_is_a_failure_of_the_environment(call: str) -> None:
    outcome = await outcome_of(environment=Away(at=call))
    assert (outcome.outcome_class, outcome.error_boundary) == (OutcomeClass.UNEVALUABLE, "environment")
    assert outcome.error == f"environment failed during {call}: UnavailableError: the game server is away"


async def test_a_framework_whose_service_is_away_is_a_failure_of_the_framework() -> None:
    outcome = await outcome_of(Crashing(UnavailableError("the planner is away")))
    assert (outcome.outcome_class, outcome.error_boundary) == (OutcomeClass.UNEVALUABLE, "framework")


async def test_a_broken_invariant_is_no_data() -> None:
    with pytest.raises(InvariantError):
        await outcome_of(Crashing(InvariantError("two tasks at once")))


async def test_the_time_limit_is_its_own_boundary() -> None:
    outcome = await outcome_of(Sleeping(), time_limit_s=0.01)
    assert (outcome.outcome_class, outcome.error_boundary) == (OutcomeClass.UNEVALUABLE, "wall_time")
