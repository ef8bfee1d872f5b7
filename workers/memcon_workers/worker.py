"""Worker: one process, one event loop, many streams. Builds what a stream needs and runs its loop.

Plain Python: the Ray actor (`memcon_workers.actor`) and `memcon sweep --local` are thin shells around it. It gets
factories for the policy client and the sink, so that it imports neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from memcon import codec, registry
from memcon.clock import SystemClock
from memcon.control.controller import ControllerParts, MemoryController, StreamPlace
from memcon.errors import Boundary, LockedError, MemconError, boundary
from memcon.protocols import Benchmark, ChatModel, Embedder, Environment, EpisodeSink, MemoryBackend, PolicyClient
from memcon.store import StreamStore
from memcon.types import Task
from memcon_workers.episode import Player
from memcon_workers.gate import Gate
from memcon_workers.preload import PracticeBook
from memcon_workers.spec import PluginSpec, StreamError, StreamReady, StreamResult, StreamSpec, TaskEnded
from memcon_workers.stream import StreamLoop, StreamParts, stream_tasks

__all__ = ["ClientFactory", "SinkFactory", "Worker"]

_log = logging.getLogger(__name__)

# Seconds that a claim waits for a stream's last owner: Ray ends the workers of a killed driver a few seconds later.
LOCK_PATIENCE_S = 20.0
_LOCK_PAUSE_S = 0.1

ClientFactory = Callable[[], PolicyClient]
SinkFactory = Callable[[], EpisodeSink]


class Worker:
    """Runs streams; one instance a process."""

    def __init__(
        self, *, make_client: ClientFactory, make_sink: SinkFactory, lock_patience_s: float = LOCK_PATIENCE_S
    ) -> None:
        self._clock = SystemClock()
        self._lock_patience_s = lock_patience_s
        self._client = make_client()
        self._sink = make_sink()
        # One thread for all commits: SQLite never blocks the loop, and commits of this process queue up in order.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memcon-writer")
        self._stop = asyncio.Event()
        self._reports: list[TaskEnded | StreamReady] = []
        self._news = asyncio.Event()
        # Of the gated streams that run here, by cell and stream.
        self._gates: dict[tuple[str, int], Gate] = {}
        # Built once a process: plug-ins without state of a stream.
        self._shared: dict[str, Any] = {}
        self._tasks: dict[str, list[Task]] = {}
        self._book = PracticeBook()

    async def run_stream(self, spec: StreamSpec, *, worker_died: bool) -> StreamResult | StreamError:
        """Run `spec` to its end, or to the next task boundary after `stop`; an error is a value, told in one line."""
        try:
            return await self._run_stream(spec, worker_died=worker_died)
        except MemconError as error:
            return StreamError(cell=spec.cell, stream=spec.stream, message=str(error))
        except Exception as error:  # noqa: BLE001 - a bug in one stream must not end the others; the log has it whole
            _log.exception("stream.crashed", extra={"cell": spec.cell, "stream": spec.stream})
            return StreamError(
                cell=spec.cell, stream=spec.stream, message=f"internal error: {type(error).__name__}: {error}"
            )

    async def _run_stream(self, spec: StreamSpec, *, worker_died: bool) -> StreamResult:
        benchmark: Benchmark = self._built("benchmark", spec.benchmark)
        store = await self._open_store(spec)
        environment: Environment | None = None
        name = (spec.cell, spec.stream)
        if spec.gated:
            self._gates[name] = Gate(self._stop)
        try:
            with boundary(Boundary.ENVIRONMENT, "opening"):
                environment = benchmark.environment()
            parts = self._parts(spec, benchmark, environment, store)
            loop = StreamLoop(spec, parts, stop=self._stop, tell=self._tell)
            return await loop.run(worker_died=worker_died)
        finally:
            self._gates.pop(name, None)
            # In the writer thread: after a cancel it may still be in a commit.
            await asyncio.get_running_loop().run_in_executor(self._writer, store.close)
            if environment is not None:
                with contextlib.suppress(Exception):
                    environment.close()

    async def drain(self, *, patience_s: float = 1.0) -> list[TaskEnded | StreamReady]:
        """What streams told since the last call, in order; waits for the first, but not longer than `patience_s`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), patience_s)
        self._news.clear()
        reports, self._reports = self._reports, []
        return reports

    def grant(self, cell: str, stream: int) -> None:
        """Let the next task of a gated stream begin; no effect on a stream that has left this worker."""
        gate = self._gates.get((cell, stream))
        if gate is not None:
            gate.grant()

    def stop_stream(self, cell: str, stream: int) -> None:
        """Let a gated stream end where it waits; no effect on a stream that has left this worker."""
        gate = self._gates.get((cell, stream))
        if gate is not None:
            gate.shut()

    def stop(self) -> None:
        """Let every stream end at its next task boundary."""
        self._stop.set()

    async def close(self) -> None:
        """Free client, models and the writer thread."""
        for built in self._shared.values():
            if hasattr(built, "complete"):
                # A model that cannot close must not keep the policy from exporting its tables.
                with contextlib.suppress(Exception):
                    await built.close()
        try:
            await self._client.close()
        finally:
            self._writer.shutdown(wait=True)

    # --- building ----------------------------------------------------------------------------------------------------

    def _parts(
        self, spec: StreamSpec, benchmark: Benchmark, environment: Environment, store: StreamStore
    ) -> StreamParts:
        player = Player(
            framework=self._built("framework", spec.framework, clock=self._clock),
            environment=environment,
            model=self._model(spec.backbone),
            clock=self._clock,
            time_limit_s=spec.task_time_limit_s,
        )
        return StreamParts(
            tasks=stream_tasks(spec, self._all_tasks(spec.benchmark, benchmark)),
            store=store,
            player=player,
            make_controller=lambda: self._controller(spec, benchmark, store),
            policy=self._client if spec.learning is not None else None,
            sink=self._sink,
            clock=self._clock,
            writer=self._writer,
            practise=functools.partial(self._book.attempts, spec, benchmark, player) if spec.preload else None,
            gate=self._gates.get((spec.cell, spec.stream)),
        )

    def _built(self, kind: str, spec: PluginSpec, **collaborators: Any) -> Any:
        key = f"{kind}:{codec.encode_json(spec)}"
        if key not in self._shared:
            self._shared[key] = registry.build(kind, spec.name, spec.parameters, **collaborators)
        return self._shared[key]

    def _model(self, spec: PluginSpec) -> ChatModel:
        model: ChatModel = self._built("backbone", spec)
        return model

    def _all_tasks(self, spec: PluginSpec, benchmark: Benchmark) -> list[Task]:
        key = codec.encode_json(spec)
        if key not in self._tasks:
            with boundary(Boundary.ENVIRONMENT, "tasks"):
                self._tasks[key] = list(benchmark.tasks())
        return self._tasks[key]

    async def _open_store(self, spec: StreamSpec) -> StreamStore:
        """The stream's file, once its last owner has let go of it.

        Raises:
            LockedError: another process keeps it.
        """
        open_store = lambda: StreamStore(Path(spec.store_path), identity=f"{spec.cell}/{spec.stream}")  # noqa: E731
        deadline = self._clock.monotonic() + self._lock_patience_s
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._writer, open_store)
            except LockedError:
                if self._clock.monotonic() >= deadline or self._stop.is_set():
                    raise
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _LOCK_PAUSE_S)

    def _controller(self, spec: StreamSpec, benchmark: Benchmark, store: StreamStore) -> MemoryController:
        embedder: Embedder = self._built("embedder", spec.embedder)
        backend: MemoryBackend = registry.build(
            "memory", spec.memory.name, spec.memory.parameters, store=store, embedder=embedder
        )
        return MemoryController(
            ControllerParts(
                benchmark=benchmark,
                backend=backend,
                store=store,
                policy=self._client if spec.learning is not None else None,
                learning=spec.learning,
                table=spec.table,
                control=spec.control,
                reward=spec.reward,
                clock=self._clock,
                place=StreamPlace(cell=spec.cell, stream=spec.stream),
                setup=spec.setup,
                memory_frozen=spec.memory_frozen,
            )
        )

    def _tell(self, report: TaskEnded | StreamReady) -> None:
        self._reports.append(report)
        self._news.set()
