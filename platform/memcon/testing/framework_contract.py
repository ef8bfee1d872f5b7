"""The framework port under test: the contract body that every agent loop passes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from memcon.errors import Boundary, BoundaryError
from memcon.protocols import AgentFramework, AgentRun
from memcon.seeds import SeedTree
from memcon.testing.chat_model import Request, ScriptedModel
from memcon.testing.contract import Contract, Run, expect, expect_equal, expect_kind, refuses, to_give
from memcon.testing.framework import FixedMemory, Switches, play, switch_task
from memcon.types import Insight, MemoryContext, MemoryItem, Step, StepKind

__all__ = ["AgentFrameworkContract"]

_RUN = "AgentFramework.run"


def _next_switch(request: Request) -> str:
    """Reply of a model that reads its prompt: press the switch after those that are on."""
    return f"press switch {request.text.count('is on.') + 1}"


class AgentFrameworkContract(Contract):
    """What every framework keeps. Override `framework`; its prompt must show the history of the attempt.

    It is played in a row of switches, by a scripted model whose reply is the action text. A framework whose model
    answers in another form overrides `reply`.
    """

    @pytest.fixture
    def framework(self) -> AgentFramework:
        """The framework under test."""
        to_give(self, "framework", "AgentFramework", "the agent loop under test, as its plug-in builds it")

    def reply(self, action: str) -> str:
        """What the model says when it means `action`."""
        return action

    def model(self) -> ScriptedModel:
        """A model that reads its prompt and means the next switch."""
        return ScriptedModel(lambda request: self.reply(_next_switch(request)))

    def test_success_ends_the_run_and_is_the_environments_own(self, run: Run, framework: AgentFramework) -> None:
        played = run(play(framework, self.model()))
        expect_kind(played, AgentRun, _RUN)
        expect_equal(
            [step.action for step in played.steps if step.kind is StepKind.ACTION],
            ["press switch 1", "press switch 2", "press switch 3"],
            _RUN,
            wants="shows the model what has happened, sends its actions to the environment, and keeps each as a step",
        )
        expect_equal(
            (played.done, played.success, played.score),
            (True, True, 1.0),
            _RUN,
            wants="ends when the environment is done; success and score (its progress) are the environment's own",
        )
        expect_equal(
            played.first_observation, "You see 3 switches.", _RUN, wants="keeps what the environment showed at reset"
        )

    def test_step_budget_ends_the_run_without_done(self, run: Run, framework: AgentFramework) -> None:
        replies = [self.reply(f"press switch {number}") for number in (1, 3, 9, 8, 7, 6)]
        played = run(play(framework, ScriptedModel(replies), task=switch_task(max_steps=4)))
        expect_equal((played.done, played.success), (False, False), _RUN, wants="is not done when the budget ends it")
        expect_equal(
            [step.kind for step in played.steps],
            [StepKind.ACTION] * 4,
            _RUN,
            wants="takes no more than task.max_steps environment steps, refused ones included",
        )
        expect_equal(played.score, pytest.approx(1 / 3), _RUN, wants="ends with the environment's last progress")

    def test_steps_tell_what_happened_and_what_it_cost(self, run: Run, framework: AgentFramework) -> None:
        model = ScriptedModel([self.reply(action) for action in ("press switch 1", "press switch 3", "dance")])
        steps = run(play(framework, model, task=switch_task(max_steps=3))).steps
        expect_equal([step.index for step in steps], [0, 1, 2], _RUN, wants="numbers its steps from 0")
        expect_equal(
            [(step.valid, step.observation) for step in steps],
            [(True, "Switch 1 is on."), (False, "Nothing happens."), (False, "Nothing happens.")],
            _RUN,
            wants="keeps the environment's answer to each step: whether it was valid, and what was seen",
        )
        expect(
            all(step.prompt_tokens > 0 and step.completion_tokens > 0 for step in steps),
            _RUN,
            "books the tokens of the model calls on the steps",
            met=[(step.prompt_tokens, step.completion_tokens) for step in steps],
        )
        expect(
            all(step.model_s >= 0 and step.environment_s >= 0 for step in steps),
            _RUN,
            "measures seconds on a clock that never goes back",
            met=[(step.model_s, step.environment_s) for step in steps],
        )

    def test_tokens_of_the_steps_are_all_that_the_model_used(self, run: Run, framework: AgentFramework) -> None:
        model = self.model()
        steps = run(play(framework, model)).steps
        expect_equal(
            (sum(step.prompt_tokens for step in steps), sum(step.completion_tokens for step in steps)),
            (sum(usage.prompt_tokens for usage in model.answers), sum(u.completion_tokens for u in model.answers)),
            _RUN,
            wants="books every model call's tokens on a step, each once",
        )

    def test_memory_is_asked_before_every_model_call_with_all_steps_so_far(
        self, run: Run, framework: AgentFramework
    ) -> None:
        memory, model = FixedMemory(), self.model()
        played = run(play(framework, model, memory=memory))
        expect_equal(
            len(memory.seen), len(model.requests), _RUN, wants="asks memory.context once before every model call"
        )
        expect_equal(
            memory.seen,
            [played.steps[:count] for count in range(len(memory.seen))],
            _RUN,
            wants="gives memory.context all steps so far: the policy's triggers read them",
        )

    def test_all_of_the_memory_reaches_every_prompt(self, run: Run, framework: AgentFramework) -> None:
        # BL-13, MC-15: whatever the decision put in, uncut.
        long = "press gently " * 500 + "to the end"
        items = [MemoryItem(item_id=str(n), source="success", score=1.0, text=f"item {n} {long}") for n in range(8)]
        insights = [Insight(insight_id=str(n), score=1.0, text=f"rule {n} {long}") for n in range(8)]
        context = MemoryContext(items=tuple(items), insights=tuple(insights), plan=f"plan {long}", hint=f"hint {long}")
        texts = {
            **{f"item {n + 1} of 8": item.text for n, item in enumerate(items)},
            **{f"insight {n + 1} of 8": rule.text for n, rule in enumerate(insights)},
            "the plan": context.plan,
            "the hint": context.hint,
        }
        model = self.model()
        run(play(framework, model, memory=FixedMemory(context)))
        for number, request in enumerate(model.requests):
            missing = [name for name, text in texts.items() if text not in request.text]
            expect(
                not missing,
                _RUN,
                "puts all of the memory block into every prompt, uncut: items, insights, plan and hint (what is cut "
                "here hides the policy's choices)",
                met=f"model call {number} lacks {', '.join(missing)}",
            )

    def test_the_block_of_each_call_is_the_one_that_memory_gave_for_it(
        self, run: Run, framework: AgentFramework
    ) -> None:
        memory, model = _CountingMemory(), self.model()
        run(play(framework, model, memory=memory))
        for number, request in enumerate(model.requests):
            shown = [n for n in range(len(model.requests)) if _mark(n) in request.text]
            expect_equal(
                shown, [number], _RUN, wants=f"shows in model call {number} the block that memory.context gave for it"
            )

    def test_request_seed_is_the_child_of_the_agent_seed_at_the_steps_index(
        self, run: Run, framework: AgentFramework
    ) -> None:
        model = self.model()
        run(play(framework, model))
        expect_equal(
            [request.seed for request in model.requests],
            [SeedTree((5,)).child(index).value() for index in range(3)],
            _RUN,
            wants="seeds each model call with SeedTree((agent_seed,)).child(index of the step).value()",
        )

    def test_environment_seed_reaches_the_reset(self, run: Run, framework: AgentFramework) -> None:
        environment = Switches()
        run(play(framework, self.model(), environment=environment))
        expect_equal(environment.seed, 3, _RUN, wants="resets the environment with environment_seed")

    def test_failed_model_is_the_backbones_boundary(self, run: Run, framework: AgentFramework) -> None:
        wants = "tells a failed model call as BoundaryError of Boundary.BACKBONE (`with boundary(...)`)"
        model = ScriptedModel([self.reply("press switch 1"), RuntimeError("quota")])
        with refuses(BoundaryError, _RUN, wants=wants, naming="quota") as refusal:
            run(play(framework, model))
        expect_equal(getattr(refusal.error, "boundary", None), Boundary.BACKBONE, _RUN, wants=wants)

    def test_failed_environment_is_the_environments_boundary(self, run: Run, framework: AgentFramework) -> None:
        wants = "tells a failed environment call as BoundaryError of Boundary.ENVIRONMENT (`with boundary(...)`)"
        with refuses(BoundaryError, _RUN, wants=wants, naming="the world broke") as refusal:
            run(play(framework, ScriptedModel([self.reply("break")])))
        expect_equal(getattr(refusal.error, "boundary", None), Boundary.ENVIRONMENT, _RUN, wants=wants)

    def test_blocking_environment_gives_the_same_run(self, run: Run, framework: AgentFramework) -> None:
        direct = run(play(framework, self.model()))
        threaded = run(play(framework, self.model(), environment=Switches(blocking=True)))
        expect_equal(
            [step.observation for step in threaded.steps],
            [step.observation for step in direct.steps],
            _RUN,
            wants="plays a blocking environment like any other",
        )

    def test_runs_at_the_same_time_do_not_mix(self, run: Run, framework: AgentFramework) -> None:
        sizes = (1, 2, 3)

        async def at_once() -> list[AgentRun]:
            tasks = [switch_task(num_switches=size) for size in sizes]
            return await asyncio.gather(*(play(framework, self.model(), task=task) for task in tasks))

        expect_equal(
            [len(played.steps) for played in run(at_once())],
            list(sizes),
            _RUN,
            wants="keeps the state of an attempt in the call: one framework plays many streams at once",
        )


def _mark(call: int) -> str:
    return f"block number {call} of the memory"


class _CountingMemory(FixedMemory):
    """Shows another block at each call."""

    async def context(self, steps: Sequence[Step]) -> MemoryContext:
        self.seen.append(tuple(steps))
        return MemoryContext(plan=_mark(len(self.seen) - 1))
