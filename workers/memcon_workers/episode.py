"""One attempt at one task, from the first observation to its outcome. The only place that classifies failures.

A failed task is data: whatever goes wrong outside our own code becomes `unevaluable` with the boundary that failed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from memcon.control.controller import TaskMemory
from memcon.errors import Boundary, BoundaryError, boundary
from memcon.protocols import AgentFramework, AgentRun, ChatModel, Clock, Environment, MemoryReader
from memcon.types import Outcome, OutcomeClass, StepKind, Task, TokenUsage, Trial
from memcon_workers.recording import RecordingModel

__all__ = ["Attempt", "Played", "Player", "failed", "unevaluable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A finished attempt. `run` is None when the task is `unevaluable`."""

    run: AgentRun | None
    outcome: Outcome
    # Distinct ids that the provider reported, in order of first use (HX-3).
    model_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What a task came to, before its end is committed."""

    attempt: Attempt
    # None when the backend failed before the task could begin.
    memory: TaskMemory | None
    # As in `Attempt`, of all attempts at the task.
    model_ids: tuple[str, ...] = ()
    # Every arm on this task, in arm order (policy `every_arm`); `attempt` is that of the drawn one.
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """Plays tasks of one stream."""

    framework: AgentFramework
    environment: Environment
    model: ChatModel
    clock: Clock
    # Seconds; None = no limit.
    time_limit_s: float | None

    async def play(self, task: Task, memory: MemoryReader, *, environment_seed: int, agent_seed: int) -> Attempt:
        """Play `task` once and classify how it ended.

        Raises:
            ProviderError: the model's provider refuses us; the task is not used up.
        """
        model = RecordingModel(self.model)
        run = functools.partial(
            self.framework.run,
            task,
            self.environment,
            model,
            memory=memory,
            environment_seed=environment_seed,
            agent_seed=agent_seed,
        )
        attempt = await self._classified(run)
        if model.refusal is not None:
            # The framework caught it, or wrapped it in an error of its own.
            raise model.refusal
        return replace(attempt, model_ids=model.reported_ids)

    async def _classified(self, play: Callable[[], Awaitable[AgentRun]]) -> Attempt:
        start = self.clock.monotonic()
        try:
            async with asyncio.timeout(self.time_limit_s):
                with boundary(Boundary.FRAMEWORK, "run"):
                    run = await play()
        except asyncio.CancelledError:
            ours = asyncio.current_task()
            if ours is None or ours.cancelling():
                raise
            return self._failed(start, Boundary.FRAMEWORK, "a cancel that memcon did not ask for leaked out")
        except TimeoutError:
            return self._failed(start, Boundary.WALL_TIME, f"the task took longer than {self.time_limit_s} s")
        except BoundaryError as error:
            return self._failed(start, error.boundary, str(error))
        return Attempt(run=run, outcome=self._outcome(run, self.clock.monotonic() - start))

    def _outcome(self, run: AgentRun, duration_s: float) -> Outcome:
        return Outcome(
            outcome_class=_classify(run),
            score=run.score,
            num_steps=sum(step.kind is StepKind.ACTION for step in run.steps),
            tokens=TokenUsage(
                agent_prompt=sum(step.prompt_tokens for step in run.steps),
                agent_completion=sum(step.completion_tokens for step in run.steps),
            ),
            duration_s=duration_s,
        )

    def _failed(self, start: float, where: Boundary, message: str) -> Attempt:
        return Attempt(run=None, outcome=unevaluable(where, message, duration_s=self.clock.monotonic() - start))


def unevaluable(where: Boundary, message: str, *, duration_s: float = 0.0) -> Outcome:
    """The outcome of a task that teaches nothing."""
    return Outcome(
        outcome_class=OutcomeClass.UNEVALUABLE,
        score=0.0,
        num_steps=0,
        duration_s=duration_s,
        error_boundary=where.value,
        error=message,
    )


def failed(error: BoundaryError) -> Attempt:
    """The attempt that `error` ended outside of a `Player`."""
    return Attempt(run=None, outcome=unevaluable(error.boundary, str(error)))


def _classify(run: AgentRun) -> OutcomeClass:
    if run.success:
        return OutcomeClass.SUCCESS
    return OutcomeClass.FAILURE if run.done else OutcomeClass.TRUNCATED
