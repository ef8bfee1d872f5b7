"""The environment over a grounded STRIPS world that tells its state in words. Owns the episode; knows no benchmark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from memcon.errors import InvariantError
from memcon.protocols import Observation, StepResult
from memcon.types import Task
from memcon_workers.benchmarks import strips
from memcon_workers.benchmarks.strips import Domain, Fact, GroundAction, Problem, State

__all__ = ["REFUSAL", "Narrator", "PlanningEnvironment", "World", "open_world"]

# The one sentence for an unknown or refused action; the state does not change.
REFUSAL = "Nothing happens."


class Narrator(Protocol):
    """How a world reads: action texts and observations, one line each."""

    def action(self, action: GroundAction) -> str:
        """The text that an agent sends for `action`."""
        ...

    def opening(self, state: State) -> str:
        """What is shown after reset."""
        ...

    def after(self, action: GroundAction, state: State) -> str:
        """What is shown when `action` has led to `state`."""
        ...

    def questions(self, state: State) -> Sequence[str]:
        """Action texts that change nothing and are answered now, as listed among the valid actions."""
        ...

    def answer(self, text: str, state: State, choices: Sequence[str]) -> str | None:
        """The answer to a question; None when `text` is none that is answered now.

        Args:
            text: the canonical action text.
            state: the present state.
            choices: texts of the actions that would change it.
        """
        ...

    def canonical(self, text: str) -> str:
        """`text` (lower case, single blanks) with accepted other wordings replaced by the listed one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A grounded problem with its texts; immutable, so that episodes can share it."""

    problem: Problem
    # (text, action), in the order of grounding.
    actions: tuple[tuple[str, GroundAction], ...]
    # Several ground actions may read alike; at most one of them is applicable at a time.
    by_text: Mapping[str, tuple[GroundAction, ...]]
    narrator: Narrator


def open_world(domain: Domain, problem: Problem, narrate: Callable[[Sequence[Fact]], Narrator]) -> World:
    """Check and ground `problem`; `narrate` gets all facts that can come true, in a fixed order.

    Raises:
        ConfigError: the problem does not fit the domain.
    """
    strips.check(domain, problem)
    actions = strips.ground(domain, problem)
    narrator = narrate(strips.reachable(problem, actions))
    texts = tuple((narrator.action(action), action) for action in actions)
    by_text: defaultdict[str, list[GroundAction]] = defaultdict(list)
    for text, action in texts:
        by_text[text].append(action)
    return World(
        problem=problem,
        actions=texts,
        by_text={text: tuple(found) for text, found in by_text.items()},
        narrator=narrator,
    )


class PlanningEnvironment:
    """Plays tasks whose worlds `world_of` opens. All is deterministic: the seed of `reset` has nothing to drive."""

    blocking = False

    def __init__(self, world_of: Callable[[Task], World]) -> None:
        self._world_of = world_of
        self._world: World | None = None
        self._state: State = frozenset()
        self._progress = 0.0
        self._done = False

    def reset(self, task: Task, seed: int) -> Observation:
        """Start `task`; equal tasks start equal.

        Raises:
            ConfigError: the task's payload is not one of this benchmark.
        """
        del seed
        self._world = self._world_of(task)
        self._state = self._world.problem.init
        self._progress = strips.share(self._world.problem.goal, self._state)
        self._done = False
        return Observation(text=self._world.narrator.opening(self._state))

    def step(self, action: str) -> StepResult:
        """Carry out one action text; an unknown or inapplicable one is refused and changes nothing.

        Raises:
            InvariantError: no episode runs.
        """
        world = self._running()
        text = world.narrator.canonical(" ".join(action.lower().split()))
        chosen = next((one for one in world.by_text.get(text, ()) if one.preconditions <= self._state), None)
        if chosen is None:
            answer = world.narrator.answer(text, self._state, self._choices(world))
            return self._result(REFUSAL if answer is None else answer, valid=answer is not None)
        self._state = strips.apply(chosen, self._state)
        self._progress = max(self._progress, strips.share(world.problem.goal, self._state))
        self._done = strips.holds(world.problem.goal, self._state)
        return self._result(world.narrator.after(chosen, self._state), valid=True)

    def valid_actions(self) -> Sequence[str]:
        """Texts of all applicable actions, then the questions that would be answered; none after the end.

        Raises:
            InvariantError: not reset, or closed.
        """
        if self._done:
            return []
        world = self._running()
        return [*self._choices(world), *world.narrator.questions(self._state)]

    def close(self) -> None:
        """Forget the world; may be called twice."""
        self._world = None

    def _choices(self, world: World) -> list[str]:
        state = self._state
        return list(dict.fromkeys(text for text, action in world.actions if action.preconditions <= state))

    def _result(self, observation: str, *, valid: bool) -> StepResult:
        return StepResult(
            observation=observation, valid=valid, done=self._done, success=self._done, progress=self._progress
        )

    def _running(self) -> World:
        if self._world is None or self._done:
            raise InvariantError(
                "environment: no episode runs (not reset, solved or closed); call reset with a task first"
            )
        return self._world
