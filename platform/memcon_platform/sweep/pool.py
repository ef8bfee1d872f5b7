"""The port between the runner and the processes that run streams, and the pool of this very process (`--local`)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from memcon_platform.sweep.supervisor import Event, StreamDone, StreamFailed, StreamStopped, TaskDone, WorkerReady
from memcon_workers.spec import StreamError, StreamResult, StreamSpec, TaskEnded
from memcon_workers.worker import ClientFactory, SinkFactory, Worker

__all__ = ["LocalPool", "News", "Pool", "event_of"]

# What a pool puts into its queue: events for the Supervisor, and what progress and tracking read.
News = Event | TaskEnded | StreamResult


class Pool(Protocol):
    """Starts workers, runs streams on them, and tells what happens through `news`."""

    news: asyncio.Queue[News]

    async def start_worker(self, worker: int) -> None:
        """Start a worker; `WorkerReady` or `WorkerLost` follows."""
        ...

    async def run_stream(self, worker: int, spec: StreamSpec, *, worker_died: bool) -> None:
        """Run a stream; its tasks, then its result or the loss of the worker follow."""
        ...

    async def stop_worker(self, worker: int) -> None:
        """Ask the worker's streams to end at their next task boundary."""
        ...

    async def settle(self) -> None:
        """Return when all that has happened so far is in `news`; nothing more is run after it."""
        ...

    async def close(self) -> None:
        """End all workers."""
        ...


def event_of(result: StreamResult | StreamError) -> Event:
    """What a stream's end means to the Supervisor."""
    name = (result.cell, result.stream)
    if isinstance(result, StreamError):
        return StreamFailed(name, result.message)
    return StreamDone(name) if result.done else StreamStopped(name)


class LocalPool:
    """All streams in this process, on this event loop, over the in-process policy client."""

    def __init__(self, make_client: ClientFactory, make_sink: SinkFactory) -> None:
        self.news: asyncio.Queue[News] = asyncio.Queue()
        self._worker = Worker(make_client=make_client, make_sink=make_sink)
        self._jobs: set[asyncio.Task[None]] = set()
        self._drain_job: asyncio.Task[None] | None = None
        self._settling = False

    async def start_worker(self, worker: int) -> None:
        """There is one worker: this process."""
        self._drain_job = asyncio.create_task(self._drain())
        self.news.put_nowait(WorkerReady(worker))

    async def run_stream(self, worker: int, spec: StreamSpec, *, worker_died: bool) -> None:
        """Run the stream as a task of this loop."""

        async def run() -> None:
            result = await self._worker.run_stream(spec, worker_died=worker_died)
            if isinstance(result, StreamResult):
                self.news.put_nowait(result)
            self.news.put_nowait(event_of(result))

        self._spawn(run())

    async def stop_worker(self, worker: int) -> None:
        """Let the streams end at their next task boundary."""
        self._worker.stop()

    async def settle(self) -> None:
        """Pass on the tasks that ended last."""
        self._settling = True
        if self._drain_job is not None:
            await self._drain_job

    async def close(self) -> None:
        """Cancel what still runs and close the worker."""
        jobs = [*self._jobs, *([self._drain_job] if self._drain_job is not None else [])]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await self._worker.close()

    async def _drain(self) -> None:
        while True:
            settling = self._settling
            self._pass_on(await self._worker.drain())
            if settling:
                return

    def _pass_on(self, ended: list[TaskEnded]) -> None:
        for task in ended:
            self.news.put_nowait(task)
            self.news.put_nowait(TaskDone((task.cell, task.stream)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        job = asyncio.get_running_loop().create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
