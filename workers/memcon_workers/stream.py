"""StreamLoop: the tasks of one stream in order, so that any death loses and doubles nothing.

The task protocol (docs/architecture.md): claim, begin, decide, end in one commit, then outcomes until acknowledged. No
clock, no chance and no Ray of its own: collaborators are ports, seeds come from the tree, blocking commits go to the
process's one writer thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

from memcon import ids
from memcon.control.controller import Finished, MemoryController, TaskMemory
from memcon.errors import Boundary, BoundaryError
from memcon.protocols import Clock, EpisodeSink, PolicyClient
from memcon.seeds import SeedTree
from memcon.store import StreamStore
from memcon.types import Episode, OutcomeClass, Task, Trajectory
from memcon_workers.episode import Attempt, Player, unevaluable
from memcon_workers.spec import StreamResult, StreamSpec, TaskEnded

__all__ = ["BLOCK_ORDINALS", "StreamLoop", "StreamParts", "root_seeds", "stream_tasks", "summary"]

# Ordinals of one Parquet block (architecture: a stream survives anything).
BLOCK_ORDINALS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamParts:
    """The ports that a stream works through."""

    tasks: Sequence[Task]
    store: StreamStore
    player: Player
    # Builds the backend and its controller from the store's file.
    make_controller: Callable[[], MemoryController]
    # None for the policy `none`.
    policy: PolicyClient | None
    sink: EpisodeSink
    clock: Clock
    # The process's writer thread.
    writer: Executor


class StreamLoop:
    """Runs one claimed stream to its end, or until `stop` is set at a task boundary."""

    def __init__(
        self, spec: StreamSpec, parts: StreamParts, *, stop: asyncio.Event, on_task: Callable[[TaskEnded], None]
    ) -> None:
        self._spec, self._parts, self._stop, self._on_task = spec, parts, stop, on_task
        self._seeds = root_seeds(spec).child("stream", spec.stream)
        self._epoch = 0
        self._worker_deaths = 0
        self._model_s = self._environment_s = 0.0
        self._num_steps = 0
        self._controller = parts.make_controller()

    async def run(self, *, worker_died: bool) -> StreamResult:
        """Claim the stream and run what is left of it.

        `worker_died` says that the stream comes from a worker that died, which counts against the open task.

        Raises:
            StorageError, DamagedFileError, UnavailableError, ConflictError: the stream cannot go on; nothing is lost.
        """
        start = self._parts.clock.monotonic()
        await self._claim(worker_died=worker_died)
        store = self._parts.store
        while store.num_ended < len(self._parts.tasks) and not self._stop.is_set():
            await self._task(store.num_ended)
        if store.num_ended % BLOCK_ORDINALS:
            await self._export_block(store.num_ended // BLOCK_ORDINALS)
        return StreamResult(
            cell=self._spec.cell,
            stream=self._spec.stream,
            num_ended=store.num_ended,
            num_tasks=len(self._parts.tasks),
            elapsed_s=self._parts.clock.monotonic() - start,
            model_s=self._model_s,
            environment_s=self._environment_s,
            num_steps=self._num_steps,
        )

    # --- claim -------------------------------------------------------------------------------------------------------

    async def _claim(self, *, worker_died: bool) -> None:
        store, policy = self._parts.store, self._parts.policy
        self._epoch = await self._write(store.raise_epoch)
        if policy is not None and self._spec.learning is not None:
            await policy.open_table(self._spec.table, self._spec.learning)
        await self._deliver()
        unfinished = store.open_task()
        if unfinished is not None:
            self._worker_deaths = unfinished.worker_deaths + int(worker_died)
            await self._cancel(self._episode_id(unfinished.ordinal, unfinished.epoch))
        for last in store.episodes(max(0, store.num_ended - 1)):
            # Its cancel may have died with the process: repeating it has no effect.
            if last.outcome.outcome_class is OutcomeClass.UNEVALUABLE:
                await self._cancel(last.episode_id)
        # Blocks are a view of the store: one that is missing or older is written again.
        for block in range(-(-store.num_ended // BLOCK_ORDINALS)):
            await self._export_block(block)

    async def _deliver(self) -> None:
        waiting = self._parts.store.outbox()
        if waiting and self._parts.policy is not None:
            await self._parts.policy.outcomes(waiting)
            await self._write(self._parts.store.delivered)

    async def _cancel(self, episode_id: str) -> None:
        if self._parts.policy is not None:
            await self._parts.policy.cancel_episode(self._spec.table, episode_id)

    # --- one task ----------------------------------------------------------------------------------------------------

    async def _task(self, ordinal: int) -> None:
        parts = self._parts
        task = parts.tasks[ordinal]
        started_at = parts.clock.wall()
        await self._write(lambda: parts.store.begin(ordinal, self._epoch, worker_deaths=self._worker_deaths))
        try:
            memory = self._controller.begin(task, ordinal=ordinal, episode_id=self._episode_id(ordinal, self._epoch))
        except BoundaryError as error:
            episode = await self._end(ordinal, None, _failed(error), started_at)
        else:
            episode = await self._play(ordinal, memory, started_at)
        self._worker_deaths = 0
        await self._settle(episode)
        self._count(episode)

    async def _play(self, ordinal: int, memory: TaskMemory, started_at: float) -> Episode:
        attempt = await self._attempt(self._parts.tasks[ordinal], ordinal, memory)
        try:
            return await self._end(ordinal, memory, attempt, started_at)
        except BoundaryError as error:
            # The memory backend failed while it recorded: the transaction is rolled back, and the backend's view in
            # this process may be ahead of the file, so it is built again from the file.
            self._controller = self._parts.make_controller()
            return await self._end(ordinal, memory, _failed(error), started_at)

    async def _end(self, ordinal: int, memory: TaskMemory | None, attempt: Attempt, started_at: float) -> Episode:
        """Commit the task: memory, plan templates, episode and outcomes, all or nothing.

        `memory` is None when the backend failed before the task could begin.
        """
        spec = self._spec
        finished = memory.finish(attempt.outcome) if memory else Finished(reward=None, decisions=(), outcomes=())
        task, run = self._parts.tasks[ordinal], attempt.run

        def make() -> Episode:
            read = written = upkeep = 0
            if memory is not None:
                read, upkeep = memory.read_tokens, memory.maintenance_tokens
            if memory is not None and run is not None:
                trajectory = Trajectory(
                    task=task, first_observation=run.first_observation, steps=run.steps, success=run.success
                )
                written = memory.record(trajectory, attempt.outcome)
            tokens = replace(attempt.outcome.tokens, memory_read=read, memory_write=written, memory_maintenance=upkeep)
            return Episode(
                run=spec.run,
                cell=spec.cell,
                stream=spec.stream,
                ordinal=ordinal,
                section=0,
                task=task,
                episode_id=self._episode_id(ordinal, self._epoch),
                epoch=self._epoch,
                seed=spec.seed,
                first_observation=run.first_observation if run else "",
                steps=run.steps if run else (),
                decisions=finished.decisions,
                outcome=replace(attempt.outcome, tokens=tokens),
                reward=finished.reward,
                memory_size=self._controller.memory_size() if memory else 0,
                started_at=started_at,
            )

        episode: Episode = await self._write(lambda: self._parts.store.end(make, finished.outcomes))
        return episode

    async def _settle(self, episode: Episode) -> None:
        """Tell the owner how the task ended, until it is acknowledged; then export a block that is full."""
        if episode.outcome.outcome_class is OutcomeClass.UNEVALUABLE:
            await self._cancel(episode.episode_id)
        else:
            await self._deliver()
        if (episode.ordinal + 1) % BLOCK_ORDINALS == 0:
            await self._export_block(episode.ordinal // BLOCK_ORDINALS)

    def _count(self, episode: Episode) -> None:
        self._model_s += sum(step.model_s for step in episode.steps)
        self._environment_s += sum(step.environment_s for step in episode.steps)
        self._num_steps += len(episode.steps)
        self._on_task(summary(episode))

    async def _export_block(self, block: int) -> None:
        parts, start = self._parts, block * BLOCK_ORDINALS
        await self._write(
            lambda: parts.sink.write_block(
                self._spec.cell, self._spec.stream, block, list(parts.store.episodes(start, start + BLOCK_ORDINALS))
            )
        )

    async def _attempt(self, task: Task, ordinal: int, memory: TaskMemory) -> Attempt:
        if self._worker_deaths > self._spec.task_restarts:
            limit = self._spec.task_restarts
            deaths = f"the worker died {self._worker_deaths} times inside this task (task_restarts = {limit})"
            return Attempt(run=None, outcome=unevaluable(Boundary.WORKER, deaths))
        place = self._seeds.child("ordinal", ordinal)
        return await self._parts.player.play(
            task, memory, environment_seed=place.child("environment").value(), agent_seed=place.child("agent").value()
        )

    def _episode_id(self, ordinal: int, epoch: int) -> str:
        return ids.episode_id(self._spec.cell, self._spec.stream, ordinal, epoch)

    async def _write(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._parts.writer, call)


def _failed(error: BoundaryError) -> Attempt:
    return Attempt(run=None, outcome=unevaluable(error.boundary, str(error)))


def root_seeds(spec: StreamSpec) -> SeedTree:
    """Root of the cell's seeds. Memory, policy, framework, backbone and run are not in it, so cells are paired."""
    return SeedTree(("seed", spec.seed, spec.benchmark.name))


def stream_tasks(spec: StreamSpec, tasks: Sequence[Task]) -> list[Task]:
    """The tasks of this stream in its order, out of the benchmark's `tasks`."""
    kept = list(tasks[: spec.limit])
    root = root_seeds(spec)
    if spec.split == "partition":
        root.child("order").generator().shuffle(kept)
        return kept[spec.stream :: spec.num_streams]
    root.child("stream", spec.stream, "order").generator().shuffle(kept)
    return kept


def summary(episode: Episode) -> TaskEnded:
    """What progress and tracking need of a finished task."""
    outcome = episode.outcome
    return TaskEnded(
        cell=episode.cell,
        stream=episode.stream,
        ordinal=episode.ordinal,
        outcome_class=outcome.outcome_class.value,
        score=outcome.score,
        reward=episode.reward,
        num_steps=outcome.num_steps,
        agent_prompt_tokens=outcome.tokens.agent_prompt,
        agent_completion_tokens=outcome.tokens.agent_completion,
        memory_tokens=sum(
            d.tokens_items + d.tokens_insights + d.tokens_plan + d.tokens_hint for d in episode.decisions
        ),
        num_decisions=len(episode.decisions),
        num_forced=sum(decision.forced for decision in episode.decisions),
        memory_size=episode.memory_size,
        duration_s=outcome.duration_s,
    )
