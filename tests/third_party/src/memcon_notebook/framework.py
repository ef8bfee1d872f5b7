"""Framework `dialogue`: one chat a task; what the world shows is a user turn, what the agent does an assistant turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from memcon import checks
from memcon.clock import SystemClock
from memcon.control.memory.rendering import one_line, render_memory
from memcon.errors import Boundary, boundary
from memcon.protocols import AgentRun, ChatModel, Clock, Environment, MemoryReader, Message
from memcon.registry import Plugin
from memcon.seeds import SeedTree
from memcon.types import MemoryContext, Step, StepKind, Task

__all__ = ["PLUGIN", "Dialogue", "DialogueConfig"]

INSTRUCTIONS = "You act in a world of text. Reply with one action, in the words that the world uses, and nothing else."

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class DialogueConfig:
    """How much of the chat the model sees."""

    # Steps of the attempt in the prompt, the last ones; null = all.
    last_steps: int | None = None
    # The last turn lists the admissible actions.
    list_actions: bool = True

    def __post_init__(self) -> None:
        if self.last_steps is not None:
            checks.in_range("last_steps", self.last_steps, 1)


class Dialogue:
    """An `AgentFramework` without state of a task: one object plays any number of tasks at once."""

    def __init__(self, config: DialogueConfig, *, clock: Clock) -> None:
        self._config, self._clock = config, clock

    async def run(
        self,
        task: Task,
        environment: Environment,
        model: ChatModel,
        *,
        memory: MemoryReader,
        environment_seed: int,
        agent_seed: int,
    ) -> AgentRun:
        """Play `task` once, asking memory before every model call.

        Raises:
            BoundaryError: environment, backbone, memory or policy failed.
        """
        with boundary(Boundary.ENVIRONMENT, "reset"):
            shown = await _call(environment, lambda: environment.reset(task, environment_seed))
        first = one_line(shown.text)
        steps: list[Step] = []
        seeds, done, success = SeedTree((agent_seed,)), False, False
        while not done and len(steps) < task.max_steps:
            context = await memory.context(tuple(steps))
            messages = self._messages(task, first, steps, context) + await self._choices(environment)
            asked = self._clock.monotonic()
            with boundary(Boundary.BACKBONE, "complete"):
                completion = await model.complete(messages, seed=seeds.child(len(steps)).value())
            answered = self._clock.monotonic()
            action = one_line(completion.text)
            with boundary(Boundary.ENVIRONMENT, "step"):
                result = await _call(environment, lambda action=action: environment.step(action))  # type: ignore[misc]
            done, success = result.done, result.success
            steps.append(
                Step(
                    index=len(steps),
                    kind=StepKind.ACTION,
                    action=action,
                    observation=one_line(result.observation),
                    valid=result.valid,
                    progress=result.progress,
                    prompt_tokens=completion.prompt_tokens,
                    completion_tokens=completion.completion_tokens,
                    model_s=answered - asked,
                    environment_s=self._clock.monotonic() - answered,
                )
            )
        score = steps[-1].progress if steps else 0.0
        return AgentRun(first_observation=first, steps=tuple(steps), done=done, success=success, score=score)

    def _messages(self, task: Task, first: str, steps: Sequence[Step], context: MemoryContext) -> tuple[Message, ...]:
        """The chat so far; the system turn holds the whole memory block, however long it is."""
        system = "\n".join(part for part in (INSTRUCTIONS, render_memory(context)) if part)
        turns = [
            Message(role="system", content=system),
            Message(role="user", content=f"Goal: {one_line(task.goal)}\n{first}"),
        ]
        shown = steps if self._config.last_steps is None else steps[-self._config.last_steps :]
        for step in shown:
            turns.append(Message(role="assistant", content=step.action))
            turns.append(Message(role="user", content=step.observation))
        return tuple(turns)

    async def _choices(self, environment: Environment) -> tuple[Message, ...]:
        if not self._config.list_actions:
            return ()
        with boundary(Boundary.ENVIRONMENT, "valid_actions"):
            actions = await _call(environment, environment.valid_actions)
        return (
            Message(role="user", content="\n".join(["Admissible actions:", *(f"- {action}" for action in actions)])),
        )


async def _call(environment: Environment, call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call) if environment.blocking else call()


def _build(config: DialogueConfig, *, clock: Clock | None = None) -> Dialogue:
    return Dialogue(config, clock=clock or SystemClock())


PLUGIN = Plugin(config=DialogueConfig, build=_build, summary="one chat a task: a user turn an observation")
