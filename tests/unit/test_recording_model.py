"""The model as an attempt calls it: ids for the record (HX-3), and failures that are the backbone's own (HX-5)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from memcon.clock import SystemClock
from memcon.errors import Boundary, BoundaryError, ProviderError, UnavailableError
from memcon.protocols import AgentRun, Completion, Message
from memcon.testing.framework import Switches, switch_task
from memcon.types import MemoryContext, OutcomeClass, Step
from memcon_workers.episode import Attempt, Player
from memcon_workers.frameworks.lobster import Lobster, LobsterConfig
from memcon_workers.recording import RecordingModel

ASKED = (Message(role="user", content="Your move?"),)


class Answering:
    """Reports the next id, or raises the next error, call by call; the last one again and again."""

    model_id = "asked-for"
    token_source = "provider"

    def __init__(self, *script: str | Exception) -> None:
        self._script = list(script)
        self.closed = False

    async def complete(self, messages: Sequence[Message], *, seed: int) -> Completion:
        answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(answer, Exception):
            raise answer
        return Completion(text="press switch 0", prompt_tokens=3, completion_tokens=2, model_id=answer)

    async def close(self) -> None:
        self.closed = True


class Memory:
    """A reader that brings nothing, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def context(self, steps: Sequence[Step]) -> MemoryContext:
        if self._error:
            raise self._error
        return MemoryContext()


class Swallowing:
    """A framework that takes whatever its model raises for an answer."""

    async def run(self, task: Any, environment: Any, model: Any, **keywords: Any) -> AgentRun:
        with contextlib.suppress(Exception):
            await model.complete(ASKED, seed=1)
        return AgentRun(first_observation="", steps=(), done=True, success=False, score=0.0)


class Grouping:
    """A framework whose calls run in a task group, which wraps what they raise."""

    async def run(self, task: Any, environment: Any, model: Any, **keywords: Any) -> AgentRun:
        async with asyncio.TaskGroup() as group:
            group.create_task(model.complete(ASKED, seed=1))
        raise AssertionError("the call has failed")


async def attempt_of(model: Answering, *, framework: Any = None, memory: Memory | None = None) -> Attempt:
    player = Player(
        framework=framework or Lobster(LobsterConfig(loop_stop=False), clock=SystemClock()),
        environment=Switches(),
        model=model,
        clock=SystemClock(),
        time_limit_s=None,
    )
    return await player.play(switch_task(max_steps=4), memory or Memory(), environment_seed=1, agent_seed=2)


async def test_ids_are_kept_in_order_of_first_use() -> None:
    model = Answering("b-2025", "a-2025", "b-2025", "", "c-2025")
    recording = RecordingModel(model)

    for _ in range(5):
        await recording.complete(ASKED, seed=0)
    await recording.close()

    assert recording.reported_ids == ("b-2025", "a-2025", "c-2025")
    assert (recording.model_id, recording.token_source) == ("asked-for", "provider")
    # It is the process's: other attempts go on with it.
    assert not model.closed


async def test_every_attempt_has_a_record_of_its_own() -> None:
    model = Answering("a-2025", "a-2025", "b-2025")

    first, second = await attempt_of(model, framework=Swallowing()), await attempt_of(model)

    assert (first.model_ids, second.model_ids) == (("a-2025",), ("a-2025", "b-2025"))


async def test_what_answered_before_a_failure_is_kept() -> None:
    attempt = await attempt_of(Answering("a-2025", UnavailableError("no reply after 3 tries")))

    assert attempt.run is None
    assert attempt.model_ids == ("a-2025",)


async def test_a_model_that_is_away_is_a_failure_of_the_backbone() -> None:
    attempt = await attempt_of(Answering(UnavailableError("no reply after 3 tries")))

    outcome = attempt.outcome
    assert (outcome.outcome_class, outcome.error_boundary) == (OutcomeClass.UNEVALUABLE, "backbone")
    assert "no reply after 3 tries" in outcome.error


async def test_a_policy_that_is_away_stays_one_of_the_policy() -> None:
    # As the controller of memory tells it.
    away = BoundaryError(Boundary.POLICY, "decide", UnavailableError("the policy server is away"))

    attempt = await attempt_of(Answering("a-2025"), memory=Memory(away))

    assert (attempt.outcome.error_boundary, attempt.model_ids) == ("policy", ())


@pytest.mark.parametrize("framework", [None, Swallowing(), Grouping()])
async def test_a_provider_that_refuses_us_is_no_end_of_a_task(framework: Any) -> None:
    with pytest.raises(ProviderError, match="the key is refused"):
        await attempt_of(Answering(ProviderError("the key is refused")), framework=framework)


@pytest.mark.parametrize("error", [ValueError("a bug of its own"), UnavailableError("away")])
async def test_whatever_a_model_raises_is_told_as_the_backbones(error: Exception) -> None:
    # To frameworks too that know no boundaries.
    failing = RecordingModel(Answering(error))

    with pytest.raises(BoundaryError, match=f"^backbone failed during complete: {type(error).__name__}: {error}$"):
        await failing.complete(ASKED, seed=0)
    assert failing.refusal is None
