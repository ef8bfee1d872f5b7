"""StreamLoop: the tasks of one stream in order, so that any death loses and doubles nothing.

The task protocol (docs/architecture.md): claim, begin, decide, end in one commit, then outcomes until acknowledged. The
claim of a fresh stream fills its memory. No clock, no chance and no Ray of its own: collaborators are ports, seeds come
from the tree, blocking commits go to the process's one writer thread.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memcon import ids
from memcon.control.controller import Finished, MemoryController, TaskMemory
from memcon.control.decisions import tokens_injected
from memcon.errors import Boundary, BoundaryError
from memcon.protocols import Clock, EpisodeSink, PolicyClient
from memcon.seeds import SeedTree
from memcon.store import StreamStore
from memcon.types import Episode, OutcomeClass, Task, TokenUsage, Trajectory
from memcon_workers.episode import Attempt, Played, Player, failed, unevaluable
from memcon_workers.gate import Gate, unless_stopped
from memcon_workers.spec import StreamReady, StreamResult, StreamSpec, TaskEnded
from memcon_workers.trials import TrialPlayer

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
    # The attempts that `spec.preload` asks for; None without it.
    practise: Callable[[], Coroutine[Any, Any, Sequence[Trajectory]]] | None = None
    # None: tasks need no grant.
    gate: Gate | None = None


class StreamLoop:
    """Runs one claimed stream to its end, or until `stop` is set at a task boundary.

    `tell` gets every ended task, and for a gated stream when it is ready for the next one, in order.
    """

    def __init__(
        self,
        spec: StreamSpec,
        parts: StreamParts,
        *,
        stop: asyncio.Event,
        tell: Callable[[TaskEnded | StreamReady], None],
    ) -> None:
        self._spec, self._parts, self._stop, self._tell = spec, parts, stop, tell
        self._seeds = root_seeds(spec).child("stream", spec.stream)
        self._epoch = 0
        self._worker_deaths = 0
        self._seeding_s = self._model_s = self._environment_s = 0.0
        self._num_steps = 0
        self._controller = parts.make_controller()
        self._trials = None
        if spec.trial_set is not None:
            self._trials = TrialPlayer(spec.trial_set, store=parts.store, cell=spec.cell, stream=spec.stream)

    async def run(self, *, worker_died: bool) -> StreamResult:
        """Claim the stream and run what is left of it.

        `worker_died` says that the stream comes from a worker that died, which counts against the open task.

        Raises:
            StorageError, DamagedFileError, UnavailableError, ConflictError, ProviderError: the stream cannot go on;
                nothing is lost, and the open task is repeated by the next claim.
            ConfigError, NotFoundError, ConflictError: what the memory shall begin with cannot be had, or has gone on;
                the stream has not begun.
        """
        start = self._parts.clock.monotonic()
        await self._claim(worker_died=worker_died)
        store = self._parts.store
        while store.num_ended < len(self._parts.tasks) and await self._may_begin():
            await self._task(store.num_ended)
        if store.num_ended % BLOCK_ORDINALS:
            await self._export_block(store.num_ended // BLOCK_ORDINALS)
        return StreamResult(
            cell=self._spec.cell,
            stream=self._spec.stream,
            num_ended=store.num_ended,
            num_tasks=len(self._parts.tasks),
            elapsed_s=self._parts.clock.monotonic() - start - self._seeding_s,
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
        await self._seed()
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

    async def _seed(self) -> None:
        """Fill the memory of a stream whose first task has never begun, in one commit that is made once.

        A memory that is copied has all that its own stream was preloaded with.
        """
        store, source, practise = self._parts.store, self._spec.memory_from, self._parts.practise
        if (source is None and practise is None) or store.is_seeded:
            return
        start = self._parts.clock.monotonic()
        if source is not None:
            num_ended = self._spec.memory_from_ended
            await self._write(lambda: store.seeded(lambda: store.copy_memory(Path(source), num_ended=num_ended)))
            # The backend has seen an empty file.
            self._controller = self._parts.make_controller()
        elif practise is not None:
            attempts = await unless_stopped(practise(), self._stop)
            if attempts is None:
                return
            await self._write(lambda: store.seeded(lambda: [self._controller.learn(attempt) for attempt in attempts]))
        self._seeding_s = self._parts.clock.monotonic() - start

    async def _deliver(self) -> None:
        waiting = self._parts.store.outbox()
        if waiting and self._parts.policy is not None:
            await self._parts.policy.outcomes(waiting)
            await self._write(self._parts.store.delivered)

    async def _cancel(self, episode_id: str) -> None:
        if self._parts.policy is not None:
            await self._parts.policy.cancel_episode(self._spec.table, episode_id)

    # --- one task ----------------------------------------------------------------------------------------------------

    async def _may_begin(self) -> bool:
        """Wait until the next task is granted, if it needs that; False when the stream was asked to end here."""
        if self._parts.gate is None or self._stop.is_set():
            return not self._stop.is_set()
        num_ended = self._parts.store.num_ended
        self._tell(StreamReady(cell=self._spec.cell, stream=self._spec.stream, num_ended=num_ended))
        return await self._parts.gate.passed()

    async def _task(self, ordinal: int) -> None:
        parts = self._parts
        started_at = parts.clock.wall()
        await self._write(lambda: parts.store.begin(ordinal, self._epoch, worker_deaths=self._worker_deaths))
        played = await self._play(ordinal)
        try:
            episode = await self._end(ordinal, played, started_at)
        except BoundaryError as error:
            # The memory backend failed while it recorded: the transaction is rolled back, and the backend's view in
            # this process may be ahead of the file, so it is built again from the file.
            self._controller = parts.make_controller()
            episode = await self._end(ordinal, replace(played, attempt=failed(error)), started_at)
        self._worker_deaths = 0
        await self._settle(episode)
        self._count(episode)

    async def _play(self, ordinal: int) -> Played:
        task, episode_id = self._parts.tasks[ordinal], self._episode_id(ordinal, self._epoch)
        attempt = functools.partial(self._attempt, task, ordinal)
        if self._trials is not None:
            return await self._trials.play(
                self._controller, task, ordinal=ordinal, episode_id=episode_id, attempt=attempt
            )
        try:
            memory = self._controller.begin(task, ordinal=ordinal, episode_id=episode_id)
        except BoundaryError as error:
            return Played(attempt=failed(error), memory=None)
        made = await attempt(memory)
        return Played(attempt=made, memory=memory, model_ids=made.model_ids)

    async def _end(self, ordinal: int, played: Played, started_at: float) -> Episode:
        """Commit the task: memory, plan templates, maintenance, episode and outcomes, all or nothing."""
        spec, memory, attempt = self._spec, played.memory, played.attempt
        finished = memory.finish(attempt.outcome) if memory else Finished(reward=None, decisions=(), outcomes=())
        task, run = self._parts.tasks[ordinal], attempt.run

        def make() -> Episode:
            tokens, maintenance = self._remember(ordinal, played)
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
                maintenance=maintenance,
                trials=played.trials,
                model_ids=played.model_ids,
            )

        episode: Episode = await self._write(lambda: self._parts.store.end(make, finished.outcomes))
        return episode

    def _remember(self, ordinal: int, played: Played) -> tuple[TokenUsage, Mapping[str, str]]:
        """Keep the attempt and run the upkeep that is due; returns the task's tokens with both, and `maintenance`.

        An `unevaluable` task leaves nothing and has no upkeep: a hook that killed its workers must not run again.
        """
        memory, run, outcome = played.memory, played.attempt.run, played.attempt.outcome
        if memory is None:
            return outcome.tokens, {}
        tokens = replace(outcome.tokens, memory_read=memory.read_tokens, memory_maintenance=memory.maintenance_tokens)
        if run is None:
            return tokens, {}
        task = self._parts.tasks[ordinal]
        trajectory = Trajectory(
            task=task, first_observation=run.first_observation, steps=run.steps, success=run.success
        )
        written = memory.record(trajectory, outcome)
        upkeep, maintenance = self._controller.upkeep(self._controller.scheduled(ordinal))
        maintained = tokens.memory_maintenance + upkeep
        return replace(tokens, memory_write=written, memory_maintenance=maintained), maintenance

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
        self._tell(summary(episode))

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
        memory_tokens=sum(tokens_injected(decision) for decision in episode.decisions),
        num_decisions=len(episode.decisions),
        num_forced=sum(decision.forced for decision in episode.decisions),
        memory_size=episode.memory_size,
        duration_s=outcome.duration_s,
    )
