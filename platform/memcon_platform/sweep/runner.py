"""The runner: carries the Supervisor's instructions out through a pool, and shows, tracks and records what happens."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from memcon_platform.sweep.pool import News, Pool
from memcon_platform.sweep.progress import Progress
from memcon_platform.sweep.run_folder import write_text
from memcon_platform.sweep.status import error_path
from memcon_platform.sweep.supervisor import (
    Instruction,
    RunStream,
    StartWorker,
    StopRequested,
    StopWorker,
    StreamDone,
    StreamName,
    Supervisor,
    WorkerLost,
)
from memcon_workers.spec import StreamResult, StreamSpec, TaskEnded

__all__ = ["Interrupted", "Observer", "RunEnd", "Runner"]


class Observer(Protocol):
    """Who wants to know of ended tasks and cells (tracking)."""

    def task_ended(self, task: TaskEnded) -> None:
        """A task is committed."""
        ...

    def cell_ended(self, cell: str) -> None:
        """All streams of a cell are done."""
        ...


class Interrupted(Exception):  # noqa: N818 - a wish of the user, not an error
    """The second Ctrl-C: stop at once; open tasks are repeated at the next launch."""


@dataclass(slots=True, kw_only=True)
class RunEnd:
    """How a launch ended."""

    stopped: bool
    failures: Mapping[StreamName, str]
    results: dict[StreamName, StreamResult] = field(default_factory=dict)


class Runner:
    """One launch of a plan."""

    def __init__(
        self,
        run_dir: Path,
        specs: Mapping[StreamName, StreamSpec],
        *,
        supervisor: Supervisor,
        pool: Pool,
        progress: Progress,
        observer: Observer,
    ) -> None:
        self._run_dir, self._specs, self._supervisor, self._pool = run_dir, specs, supervisor, pool
        self._progress, self._observer = progress, observer
        self._open_streams: dict[str, int] = {}
        for cell, _ in specs:
            self._open_streams[cell] = self._open_streams.get(cell, 0) + 1
        self._results: dict[StreamName, StreamResult] = {}
        self._noted: set[StreamName] = set()
        self._stopped = False

    async def run(self) -> RunEnd:
        """Run until nothing is left, or until a stop has been honoured.

        Raises:
            Interrupted: Ctrl-C came twice.
        """
        interrupted = asyncio.get_running_loop().create_future()
        with _signals(lambda: self._interrupt(interrupted)):
            await self._carry_out(self._supervisor.start())
            while not self._supervisor.finished:
                await self._take(await self._next(interrupted))
            await self._pool.settle()
            while not self._pool.news.empty():
                await self._take(self._pool.news.get_nowait())
        return RunEnd(stopped=self._stopped, failures=self._supervisor.failures(), results=self._results)

    async def _next(self, interrupted: asyncio.Future[None]) -> News:
        get = asyncio.ensure_future(self._pool.news.get())
        while not get.done():
            waiting: set[asyncio.Future[Any]] = {get, interrupted}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=1.0)
            self._progress.show()
            if interrupted.done():
                get.cancel()
                raise Interrupted
        return get.result()

    async def _take(self, news: News) -> None:
        if isinstance(news, TaskEnded):
            self._progress.task_ended(news)
            self._observer.task_ended(news)
            return
        if isinstance(news, StreamResult):
            self._results[news.cell, news.stream] = news
            return
        if isinstance(news, StreamDone):
            self._count_done(news.stream[0])
        if isinstance(news, WorkerLost):
            self._progress.snapshot.restarts += 1
            self._progress.note(f"worker {news.worker} died; its streams go on from their last ended task")
        await self._carry_out(self._supervisor.handle(news))
        self._note_failures()

    async def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case StartWorker(worker):
                    await self._pool.start_worker(worker)
                case RunStream(worker, stream, worker_died):
                    error_path(self._run_dir, *stream).unlink(missing_ok=True)
                    await self._pool.run_stream(worker, self._specs[stream], worker_died=worker_died)
                case StopWorker(worker):
                    await self._pool.stop_worker(worker)

    def _interrupt(self, interrupted: asyncio.Future[None]) -> None:
        if self._stopped:
            if not interrupted.done():
                interrupted.set_result(None)
            return
        self._stopped = True
        self._progress.note("stopping after the current tasks; Ctrl-C again stops at once")
        # Handed to the loop as news, so that the Supervisor is only ever used from one place.
        self._pool.news.put_nowait(StopRequested())

    def _note_failures(self) -> None:
        for (cell, stream), message in self._supervisor.failures().items():
            if (cell, stream) in self._noted:
                continue
            self._noted.add((cell, stream))
            path = error_path(self._run_dir, cell, stream)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, message + "\n")
            self._progress.note(f"stream {cell}/{stream} failed: {message}")

    def _count_done(self, cell: str) -> None:
        self._open_streams[cell] -= 1
        if self._open_streams[cell] == 0:
            self._progress.snapshot.cells_done += 1
            self._observer.cell_ended(cell)


@contextmanager
def _signals(call: Callable[[], None]) -> Iterator[None]:
    """Route SIGINT and SIGTERM to `call` while the block runs."""
    loop = asyncio.get_running_loop()
    names = (signal.SIGINT, signal.SIGTERM)
    for name in names:
        loop.add_signal_handler(name, call)
    try:
        yield
    finally:
        for name in names:
            loop.remove_signal_handler(name)
