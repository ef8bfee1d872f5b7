"""Framework `lobster`: one agent, one model call a turn, one environment step an action (FW-1, topology `single`).

Owns the loop and its bounds. The prompt is `memcon_workers.frameworks.prompt`; memory decides behind `MemoryReader`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from memcon.checks import in_range
from memcon.clock import SystemClock
from memcon.control.memory.rendering import one_line
from memcon.errors import Boundary, ConfigError, boundary
from memcon.protocols import AgentRun, ChatModel, Clock, Environment, MemoryReader, Message, StepResult
from memcon.registry import Plugin
from memcon.seeds import SeedTree
from memcon.types import Step, StepKind, Task
from memcon_workers.frameworks.few_shot import EXAMPLES
from memcon_workers.frameworks.prompt import Prompt
from memcon_workers.frameworks.replies import is_looping, notice, read_reply
from memcon_workers.frameworks.world import World

__all__ = ["PLUGIN", "Lobster", "LobsterConfig"]

# Model calls of an attempt at most, per step of the horizon: free thoughts cannot stretch an attempt further.
TURNS_PER_STEP = 2


@dataclass(slots=True, kw_only=True)
class LobsterConfig:
    """Settings of the loop; the defaults are those of the published runner (facts on the published loop).

    Raises:
        ConfigError: a value is outside its range.
    """

    # (action, observation) pairs shown in the prompt, or "all".
    history_window: int | str = 7
    # Worked examples in the prompt: 0 or 1, chosen by goal type.
    few_shot: int = 1
    # Goal type -> example, over the shipped ones; a goal type without any gets none.
    few_shot_examples: Mapping[str, str] = field(default_factory=dict)
    # Show the admissible actions (and ask the environment for them).
    list_actions: bool = False
    # End the attempt at the same action three times or A-B-A-B-A-B.
    loop_stop: bool = True
    # Thoughts in a row that use up no step (BE-10), and those that end the attempt.
    free_thoughts: int = 2
    max_thoughts: int = 5

    def __post_init__(self) -> None:
        if self.history_window != "all":
            if isinstance(self.history_window, str):
                raise ConfigError(f"history_window = '{self.history_window}': expected a number of steps or 'all'")
            in_range("history_window", self.history_window, 1)
        in_range("few_shot", self.few_shot, 0, 1)
        in_range("free_thoughts", self.free_thoughts, 0)
        in_range("max_thoughts", self.max_thoughts, self.free_thoughts + 1)

    @property
    def window(self) -> int | Literal["all"]:
        """`history_window` with its narrow type."""
        return "all" if isinstance(self.history_window, str) else self.history_window


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """What one attempt has come to so far."""

    max_steps: int
    max_thoughts: int
    free_thoughts: int
    loop_stop: bool
    steps: list[Step] = field(default_factory=list)
    # Normalised actions, thoughts left out (MC-4).
    actions: list[str] = field(default_factory=list)
    # Steps of the budget that are used: every action, and every thought beyond the free ones in a row.
    counted: int = 0
    thoughts: int = 0
    done: bool = False
    success: bool = False
    progress: float = 0.0

    @property
    def goes_on(self) -> bool:
        """Another turn is allowed."""
        bounded = self.counted < self.max_steps and len(self.steps) < TURNS_PER_STEP * self.max_steps
        stopped = self.thoughts >= self.max_thoughts or (self.loop_stop and is_looping(self.actions))
        return bounded and not self.done and not stopped

    @property
    def notice(self) -> str:
        """What the next prompt should tell about the loop."""
        return notice(self.actions, thoughts=self.thoughts, free_thoughts=self.free_thoughts)

    def took(self, step: Step, result: StepResult | None) -> None:
        """Count one finished turn; `result` is None for a thought."""
        self.steps.append(step)
        if result is None:
            self.thoughts += 1
            self.counted += self.thoughts > self.free_thoughts
            return
        self.thoughts = 0
        self.counted += 1
        self.actions.append(one_line(step.action).lower())
        self.done, self.success = result.done, result.success
        self.progress = result.progress


class Lobster:
    """The single-agent loop (`memcon.protocols.AgentFramework`); one object plays any number of tasks at once."""

    def __init__(self, config: LobsterConfig, *, clock: Clock) -> None:
        self._config = config
        self._clock = clock

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
        world = World(environment, clock=self._clock)
        first = await world.reset(task, environment_seed)
        prompt = self._prompt(task, first)
        attempt = self._attempt(task)
        seeds = SeedTree((agent_seed,))
        while attempt.goes_on:
            context = await memory.context(tuple(attempt.steps))
            actions = await world.valid_actions() if self._config.list_actions else ()
            messages = prompt.messages(context, actions=actions, notice=attempt.notice)
            seed = seeds.child(len(attempt.steps)).value()
            step, result = await self._turn(world, model, messages, seed=seed, attempt=attempt)
            attempt.took(step, result)
            prompt.add(step)
        return AgentRun(
            first_observation=first,
            steps=tuple(attempt.steps),
            done=attempt.done,
            success=attempt.success,
            score=attempt.progress,
        )

    def _prompt(self, task: Task, first_observation: str) -> Prompt:
        config = self._config
        shipped = EXAMPLES.get(task.goal_type, "")
        example = config.few_shot_examples.get(task.goal_type, shipped) if config.few_shot else ""
        return Prompt(
            goal=task.goal,
            first_observation=first_observation,
            window=config.window,
            example=example,
            list_actions=config.list_actions,
        )

    def _attempt(self, task: Task) -> _Attempt:
        config = self._config
        return _Attempt(
            max_steps=task.max_steps,
            max_thoughts=config.max_thoughts,
            free_thoughts=config.free_thoughts,
            loop_stop=config.loop_stop,
        )

    async def _turn(
        self, world: World, model: ChatModel, messages: Sequence[Message], *, seed: int, attempt: _Attempt
    ) -> tuple[Step, StepResult | None]:
        asked = self._clock.monotonic()
        with boundary(Boundary.BACKBONE, "complete"):
            completion = await model.complete(messages, seed=seed)
        model_s = self._clock.monotonic() - asked
        text, is_thought = read_reply(completion.text)
        result = None if is_thought else await world.step(text)
        step = Step(
            index=len(attempt.steps),
            kind=StepKind.THOUGHT if result is None else StepKind.ACTION,
            action=text,
            observation="" if result is None else one_line(result.observation),
            valid=result is not None and result.valid,
            progress=attempt.progress if result is None else result.progress,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            model_s=model_s,
            # Since the step before: listing the actions counts here, and the reset in step 0.
            environment_s=world.take_seconds(),
        )
        return step, result


def _build(config: LobsterConfig, *, clock: Clock | None = None) -> Lobster:
    return Lobster(config, clock=clock or SystemClock())


PLUGIN = Plugin(
    config=LobsterConfig,
    build=_build,
    summary="single agent: one model call a turn, bounded thoughts, optional loop stop",
)
