"""Contract of `AgentFramework`, with the small world and the fixed memory that it is played in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from memcon.errors import Boundary, BoundaryError
from memcon.protocols import AgentFramework, AgentRun, ChatModel, MemoryReader, Observation, StepResult
from memcon.seeds import SeedTree
from memcon.testing.chat_model import Request, ScriptedModel
from memcon.types import Insight, MemoryContext, MemoryItem, Provenance, Step, StepKind, Task

__all__ = ["AgentFrameworkContract", "FixedMemory", "Switches", "play", "switch_task"]


def switch_task(*, num_switches: int = 3, max_steps: int = 10) -> Task:
    """A task of `Switches`: press switch 1 to switch n in this order."""
    return Task(
        task_id=f"switches-{num_switches}",
        benchmark="switches",
        goal="press all switches in order.",
        goal_type="press",
        payload={"num_switches": num_switches},
        max_steps=max_steps,
        provenance=Provenance.SELF_MADE,
    )


class Switches:
    """A row of switches that must be pressed in order; a wrong one is refused. Records every call."""

    def __init__(self, *, blocking: bool = False) -> None:
        self.blocking = blocking
        self.calls: list[str] = []
        self.seed: int | None = None
        self._size = 0
        self._pressed = 0

    def reset(self, task: Task, seed: int) -> Observation:
        self.calls.append("reset")
        self.seed = seed
        self._size = int(task.payload["num_switches"])
        self._pressed = 0
        return Observation(text=f"You see {self._size} switches.")

    def step(self, action: str) -> StepResult:
        self.calls.append(f"step {action}")
        if action == "break":
            raise OSError("the world broke")
        valid = action == f"press switch {self._pressed + 1}"
        self._pressed += valid
        done = self._pressed == self._size
        text = f"Switch {self._pressed} is on." if valid else "Nothing happens."
        return StepResult(
            observation=text, valid=valid, done=done, success=done, progress=self._pressed / max(1, self._size)
        )

    def valid_actions(self) -> Sequence[str]:
        self.calls.append("valid_actions")
        return [f"press switch {number}" for number in range(1, self._size + 1)]

    def close(self) -> None:
        self.calls.append("close")


@dataclass(slots=True)
class FixedMemory:
    """A `MemoryReader` that always shows one context and records what steps it was given."""

    shown: MemoryContext = field(default_factory=MemoryContext)
    seen: list[tuple[Step, ...]] = field(default_factory=list)

    async def context(self, steps: Sequence[Step]) -> MemoryContext:
        self.seen.append(tuple(steps))
        return self.shown


async def play(
    framework: AgentFramework,
    model: ChatModel,
    *,
    task: Task | None = None,
    environment: Switches | None = None,
    memory: MemoryReader | None = None,
) -> AgentRun:
    """One run of `framework` in `Switches`, with seeds 3 (environment) and 5 (agent)."""
    return await framework.run(
        task or switch_task(),
        environment or Switches(),
        model,
        memory=memory or FixedMemory(),
        environment_seed=3,
        agent_seed=5,
    )


def _next_switch(request: Request) -> str:
    """Reply of a model that reads its prompt: press the switch after those that are on."""
    return f"press switch {request.text.count('is on.') + 1}"


class AgentFrameworkContract:
    """What every framework keeps. Override `framework`; its prompt must show the history of the attempt."""

    @pytest.fixture
    def framework(self) -> AgentFramework:
        raise NotImplementedError

    async def test_success_ends_the_run_and_is_the_environments_own(self, framework: AgentFramework) -> None:
        run = await play(framework, ScriptedModel(_next_switch))
        assert (run.done, run.success, run.score) == (True, True, 1.0)
        assert [step.action for step in run.steps] == ["press switch 1", "press switch 2", "press switch 3"]
        assert run.first_observation == "You see 3 switches."

    async def test_step_budget_ends_the_run_without_done(self, framework: AgentFramework) -> None:
        replies = [f"press switch {number}" for number in (1, 3, 9, 8, 7, 6)]
        run = await play(framework, ScriptedModel(replies), task=switch_task(max_steps=4))
        assert (run.done, run.success) == (False, False)
        assert [step.kind for step in run.steps] == [StepKind.ACTION] * 4
        assert run.score == pytest.approx(1 / 3)

    async def test_steps_tell_what_happened_and_what_it_cost(self, framework: AgentFramework) -> None:
        run = await play(
            framework, ScriptedModel(["press switch 1", "press switch 3", "dance"]), task=switch_task(max_steps=3)
        )
        assert [step.index for step in run.steps] == [0, 1, 2]
        assert [step.valid for step in run.steps] == [True, False, False]
        assert [step.observation for step in run.steps] == ["Switch 1 is on.", "Nothing happens.", "Nothing happens."]
        assert all(step.prompt_tokens > 0 and step.completion_tokens > 0 for step in run.steps)
        assert all(step.model_s >= 0 and step.environment_s >= 0 for step in run.steps)

    async def test_memory_is_asked_before_every_model_call_with_all_steps_so_far(
        self, framework: AgentFramework
    ) -> None:
        memory, model = FixedMemory(), ScriptedModel(_next_switch)
        run = await play(framework, model, memory=memory)
        assert [len(steps) for steps in memory.seen] == [0, 1, 2]
        assert memory.seen[-1] == run.steps[:-1]
        assert len(model.requests) == len(memory.seen)

    async def test_all_of_the_memory_reaches_every_prompt(self, framework: AgentFramework) -> None:
        # BL-13, MC-15: whatever the decision put in, uncut.
        long = "press gently " * 500 + "to the end"
        context = MemoryContext(
            items=tuple(
                MemoryItem(item_id=str(n), source="success", score=1.0, text=f"item {n} {long}") for n in range(8)
            ),
            insights=tuple(Insight(insight_id=str(n), score=1.0, text=f"rule {n} {long}") for n in range(8)),
            plan=f"plan {long}",
            hint=f"hint {long}",
        )
        model = ScriptedModel(_next_switch)
        await play(framework, model, memory=FixedMemory(context))
        expected = [
            *(item.text for item in context.items),
            *(rule.text for rule in context.insights),
            context.plan,
            context.hint,
        ]
        assert all(text in request.text for text in expected for request in model.requests)

    async def test_request_seed_is_the_child_of_the_agent_seed_at_the_steps_index(
        self, framework: AgentFramework
    ) -> None:
        model = ScriptedModel(_next_switch)
        await play(framework, model)
        assert [request.seed for request in model.requests] == [
            SeedTree((5,)).child(index).value() for index in range(3)
        ]

    async def test_environment_seed_reaches_the_reset(self, framework: AgentFramework) -> None:
        environment = Switches()
        await play(framework, ScriptedModel(_next_switch), environment=environment)
        assert environment.seed == 3

    async def test_failed_model_is_the_backbones_boundary(self, framework: AgentFramework) -> None:
        with pytest.raises(BoundaryError, match="quota") as caught:
            await play(framework, ScriptedModel(["press switch 1", RuntimeError("quota")]))
        assert caught.value.boundary is Boundary.BACKBONE

    async def test_failed_environment_is_the_environments_boundary(self, framework: AgentFramework) -> None:
        with pytest.raises(BoundaryError, match="the world broke") as caught:
            await play(framework, ScriptedModel(["break"]))
        assert caught.value.boundary is Boundary.ENVIRONMENT

    async def test_blocking_environment_gives_the_same_run(self, framework: AgentFramework) -> None:
        direct = await play(framework, ScriptedModel(_next_switch))
        threaded = await play(framework, ScriptedModel(_next_switch), environment=Switches(blocking=True))
        assert [step.observation for step in threaded.steps] == [step.observation for step in direct.steps]

    async def test_runs_at_the_same_time_do_not_mix(self, framework: AgentFramework) -> None:
        sizes = (1, 2, 3)
        runs = await asyncio.gather(
            *(play(framework, ScriptedModel(_next_switch), task=switch_task(num_switches=size)) for size in sizes)
        )
        assert [len(run.steps) for run in runs] == [1, 2, 3]
