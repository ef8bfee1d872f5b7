"""The runner: carries the Supervisor's instructions out through a pool, and shows, tracks and records what happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from memcon.errors import MemconError, StorageError
from memcon.files import replace_file
from memcon_platform.sweep.events import (
    GrantTask,
    Instruction,
    RunStream,
    StartWorker,
    StopRequested,
    StopStream,
    StopWorker,
    StreamDone,
    StreamName,
    TaskDone,
    WorkerLost,
)
from memcon_platform.sweep.interrupts import Interrupted
from memcon_platform.sweep.pool import News, Pool
from memcon_platform.sweep.progress import Progress
from memcon_platform.sweep.status import error_path, stream_status
from memcon_platform.sweep.supervisor import StreamState, Supervisor
from memcon_workers.spec import StreamResult, StreamSpec, TaskEnded

__all__ = ["Observer", "RunEnd", "Runner"]

T = TypeVar("T")

_SECOND = 2


class Observer(Protocol):
    """Who wants to know of ended tasks and cells (tracking)."""

    def task_ended(self, task: TaskEnded) -> None:
        """A task is committed."""
        ...

    def cell_ended(self, cell: str) -> None:
        """All streams of a cell are done."""
        ...


@dataclass(slots=True, kw_only=True)
class RunEnd:
    """How a launch ended."""

    # It was asked to stop, and some stream has tasks left.
    stopped: bool
    # Failed streams; what each failed of, and what that means for the rest.
    failures: Mapping[StreamName, str]
    results: dict[StreamName, StreamResult] = field(default_factory=dict)


class Runner:
    """One launch of a plan."""

    def __init__(
        self,
        run_dir: Path,
        specs: Mapping[StreamName, StreamSpec],
        ended: Mapping[StreamName, int],
        *,
        supervisor: Supervisor,
        pool: Pool,
        progress: Progress,
        observer: Observer,
    ) -> None:
        self._run_dir, self._specs, self._supervisor, self._pool = run_dir, specs, supervisor, pool
        self._progress, self._observer = progress, observer
        # Ended tasks of each stream, as far as they are known here.
        self._ended = dict(ended)
        self._open_streams: dict[str, int] = {}
        for cell, _ in specs:
            self._open_streams[cell] = self._open_streams.get(cell, 0) + 1
        self._results: dict[StreamName, StreamResult] = {}
        self._noted: set[StreamName] = set()
        # What streams failed of, by what was shown of it.
        self._shown: Counter[str] = Counter()
        self._stopped = False
        self._at_once: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> RunEnd:
        """Run until nothing is left, or until a stop has been honoured.

        Raises:
            Interrupted: `interrupt` was called twice.
        """
        await self._carry_out(self._supervisor.start())
        while not self._supervisor.finished:
            await self._take(await self._unless_interrupted(self._pool.news.get()))
        await self._unless_interrupted(self._pool.settle())
        while not self._pool.news.empty():
            await self._take(self._pool.news.get_nowait())
        # A stop that came when the last task had ended has stopped nothing, and a failed stream stops its table.
        states = {self._supervisor.state(name) for name in self._specs}
        failures = {name: self._told(name, message) for name, message in self._supervisor.failures().items()}
        return RunEnd(stopped=self._stopped and StreamState.STOPPED in states, failures=failures, results=self._results)

    def interrupt(self) -> None:
        """The first time: end after the current tasks; the second time: at once."""
        if self._stopped:
            if not self._at_once.done():
                self._at_once.set_result(None)
            return
        self._stopped = True
        self._progress.note("stopping after the current tasks; Ctrl-C again stops at once")
        # Handed to the loop as news, so that the Supervisor is only ever used from one place.
        self._pool.news.put_nowait(StopRequested())

    async def _unless_interrupted(self, work: Coroutine[Any, Any, T]) -> T:
        job = asyncio.ensure_future(work)
        while not job.done():
            waiting: set[asyncio.Future[Any]] = {job, self._at_once}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=1.0)
            self._progress.show()
            if self._at_once.done():
                job.cancel()
                raise Interrupted
        return job.result()

    async def _take(self, news: News) -> None:
        if isinstance(news, TaskEnded):
            self._ended[news.cell, news.stream] = news.ordinal + 1
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
            why = f" ({news.reason})" if news.reason else ""
            self._progress.note(f"worker {news.worker} died{why}; its streams go on from their last ended task")
            self._hear_the_lost(news.worker)
        await self._carry_out(self._supervisor.handle(news))
        self._note_failures()

    def _hear_the_lost(self, worker: int) -> None:
        """Count the tasks that a dead worker committed and did not tell of: their streams were getting on."""
        for stream in self._supervisor.streams_of(worker):
            with suppress(MemconError):
                ended = stream_status(self._run_dir, *stream).num_ended
                if ended > self._ended[stream]:
                    self._progress.snapshot.tasks_untold += ended - self._ended[stream]
                    self._ended[stream] = ended
                    self._supervisor.handle(TaskDone(stream))

    async def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case StartWorker(worker):
                    await self._pool.start_worker(worker)
                case RunStream(worker, stream, worker_died):
                    with suppress(OSError):
                        error_path(self._run_dir, *stream).unlink(missing_ok=True)
                    await self._pool.run_stream(worker, self._specs[stream], worker_died=worker_died)
                case GrantTask(worker, stream):
                    await self._pool.grant_task(worker, stream)
                case StopStream(worker, stream):
                    await self._pool.stop_stream(worker, stream)
                case StopWorker(worker):
                    await self._pool.stop_worker(worker)

    def _note_failures(self) -> None:
        for (cell, stream), message in self._supervisor.failures().items():
            if (cell, stream) in self._noted:
                continue
            self._noted.add((cell, stream))
            self._show_failure((cell, stream), message)
            # A disk that is full for this note must not end the streams that go on.
            with suppress(StorageError):
                replace_file(error_path(self._run_dir, cell, stream), message + "\n")

    def _show_failure(self, name: StreamName, message: str) -> None:
        """Show the first of equal failures, and that there are more; the end of the launch counts them."""
        told = self._told(name, message)
        self._shown[told] += 1
        if self._shown[told] == 1:
            self._progress.note(f"stream {name[0]}/{name[1]} failed: {told}")
        elif self._shown[told] == _SECOND:
            self._progress.note("more streams fail of the same; they are counted at the end")

    def _told(self, name: StreamName, message: str) -> str:
        if not self._supervisor.stops_table(name):
            return message
        return (
            f"{message}; table '{self._specs[name].table}' stops with it, since without its turns the other streams "
            "would learn what no undisturbed run learns: mend that, then the same command again goes on"
        )

    def _count_done(self, cell: str) -> None:
        self._open_streams[cell] -= 1
        if self._open_streams[cell] == 0:
            self._progress.snapshot.cells_done += 1
            self._observer.cell_ended(cell)
