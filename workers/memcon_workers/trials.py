"""Trials: every arm of an action set on one task and one memory: one row of an outcome matrix (policy `every_arm`).

All arms see the same memory, environment seed and agent seed, so that they differ in nothing but the arm. One of them,
drawn uniformly, makes the episode: it alone is recorded, so the memory grows as under a uniformly random policy
(docs/prototype.md, 1). No policy server takes part.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from memcon import ids
from memcon.control.controller import MemoryController, TaskMemory
from memcon.control.decisions import tokens_injected
from memcon.errors import BoundaryError
from memcon.learning import actions
from memcon.store import StreamStore
from memcon.types import MemoryAction, Operation, Task, Trial
from memcon_workers.episode import Attempt, Played, failed

__all__ = ["TrialPlayer"]

# What the memory may lack: such an arm does in its task what `noop` does.
_HOOKS = frozenset({Operation.CONSOLIDATE, Operation.FORGET})


class TrialPlayer:
    """Plays the tasks of one stream under every arm of an action set that may be chosen at task start.

    Raises:
        UnknownNameError: no such action set.
    """

    def __init__(self, action_set: str, *, store: StreamStore, cell: str, stream: int) -> None:
        self._set = actions.action_set(action_set)
        self._store, self._cell, self._stream = store, cell, stream

    async def play(
        self,
        controller: MemoryController,
        task: Task,
        *,
        ordinal: int,
        episode_id: str,
        attempt: Callable[[TaskMemory], Awaitable[Attempt]],
    ) -> Played:
        """Let `attempt` play `task` under each arm; the result is the drawn arm's, with the trials of all."""
        reasons = controller.start_arms(self._set.name)
        arms = [arm for arm in self._set.actions if arm.action_id in reasons]
        lacking = {arm.action_id for arm in arms if arm.op in _HOOKS and reasons[arm.action_id]}
        drawn = arms[ids.draw64("trial", self._cell, self._stream, ordinal) % len(arms)].action_id
        begin = functools.partial(
            controller.begin_fixed, task, ordinal=ordinal, episode_id=episode_id, action_set=self._set.name
        )
        players = _players(arms, drawn=drawn, lacking=lacking)
        seen: dict[str, Trial] = {}
        heard: dict[str, None] = {}
        # The drawn one last, since what it changes in memory waits for the commit of the task's end.
        for arm_id in (*[arm_id for arm_id in dict.fromkeys(players.values()) if arm_id != drawn], drawn):
            if seen:
                self._store.discard()
            played = await _play(begin, arm_id, attempt)
            seen[arm_id] = _trial(arm_id, played)
            heard |= dict.fromkeys(played.model_ids)
        return replace(
            played,
            model_ids=tuple(heard),
            trials=tuple([_row(arm_id, seen[player], lacking) for arm_id, player in players.items()]),
        )


async def _play(
    begin: Callable[..., TaskMemory], arm_id: str, attempt: Callable[[TaskMemory], Awaitable[Attempt]]
) -> Played:
    try:
        memory = begin(action_id=arm_id)
    except BoundaryError as error:
        return Played(attempt=failed(error), memory=None)
    made = await attempt(memory)
    return Played(attempt=made, memory=memory, model_ids=made.model_ids)


def _players(arms: Sequence[MemoryAction], *, drawn: str, lacking: AbstractSet[str]) -> dict[str, str]:
    """Arm -> the arm that is played for it: itself, but one for all those that bring nothing."""
    idle = [arm.action_id for arm in arms if arm.op is Operation.NOOP or arm.action_id in lacking]
    shared = drawn if drawn in idle else next(iter(idle), "")
    return {arm.action_id: shared if arm.action_id in idle else arm.action_id for arm in arms}


def _trial(arm_id: str, played: Played) -> Trial:
    outcome = played.attempt.outcome
    finished = played.memory.finish(outcome) if played.memory else None
    decisions = finished.decisions if finished else ()
    return Trial(
        action_id=arm_id,
        outcome_class=outcome.outcome_class,
        score=outcome.score,
        num_steps=outcome.num_steps,
        reward=finished.reward if finished else None,
        tokens_injected=sum(tokens_injected(decision) for decision in decisions),
        tokens_agent_prompt=outcome.tokens.agent_prompt,
        degraded=next((decision.degraded for decision in decisions), ""),
    )


def _row(arm_id: str, trial: Trial, lacking: AbstractSet[str]) -> Trial:
    if arm_id == trial.action_id:
        return trial
    return replace(trial, action_id=arm_id, degraded="unsupported" if arm_id in lacking else "")
