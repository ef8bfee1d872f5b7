"""The port between the runner and the processes that run streams, and the pool of this very process (`--local`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol

from memcon.protocols import PolicyClient
from memcon_platform.sweep.events import (
    Event,
    StreamDone,
    StreamFailed,
    StreamName,
    StreamReady,
    StreamStopped,
    TaskDone,
    WorkerReady,
)
from memcon_workers import spec as told
from memcon_workers.spec import StreamError, StreamResult, StreamSpec, TaskEnded
from memcon_workers.worker import ClientFactory, SinkFactory, Worker

__all__ = ["LocalPool", "News", "Pool", "event_of", "news_of"]

# What a pool puts into its queue: events for the Supervisor, and what progress and tracking read.
News = Event | TaskEnded | StreamResult


class Pool(Protocol):
    """Starts workers, runs streams on them, and tells what happens through `news`."""

    news: asyncio.Queue[News]

    def policy(self) -> AbstractAsyncContextManager[PolicyClient]:
        """A client of the run's policy while the block runs."""
        ...

    async def start_worker(self, worker: int) -> None:
        """Start a worker; `WorkerReady` or `WorkerLost` follows."""
        ...

    async def run_stream(self, worker: int, spec: StreamSpec, *, worker_died: bool) -> None:
        """Run a stream; its tasks, then its result or the loss of the worker follow."""
        ...

    async def grant_task(self, worker: int, stream: StreamName) -> None:
        """Let a stream that waits on the worker begin its next task."""
        ...

    async def stop_stream(self, worker: int, stream: StreamName) -> None:
        """End a stream that waits on the worker for its next task."""
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


def news_of(said: Sequence[TaskEnded | told.StreamReady], worker_of: Callable[[StreamName], int]) -> list[News]:
    """What a worker's report means to the runner; `worker_of` tells the number under which a stream runs there."""
    news: list[News] = []
    for item in said:
        name = (item.cell, item.stream)
        if isinstance(item, told.StreamReady):
            news.append(StreamReady(worker_of(name), name, item.num_ended))
        else:
            news += [item, TaskDone(name)]
    return news


class LocalPool:
    """All streams in this process, on this event loop, over the in-process policy client."""

    def __init__(self, make_client: ClientFactory, make_sink: SinkFactory) -> None:
        self.news: asyncio.Queue[News] = asyncio.Queue()
        # The one owner of the journals: a second one would take them over.
        self._client = make_client()
        self._worker = Worker(make_client=lambda: self._client, make_sink=make_sink)
        # This process under the number that the Supervisor has given it for each stream.
        self._workers: dict[StreamName, int] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._drain_job: asyncio.Task[None] | None = None
        self._settling = False

    @asynccontextmanager
    async def policy(self) -> AsyncIterator[PolicyClient]:
        """The client of the streams."""
        yield self._client

    async def start_worker(self, worker: int) -> None:
        """There is one worker: this process, whatever its numbers."""
        if self._drain_job is None:
            self._drain_job = asyncio.create_task(self._drain())
        self.news.put_nowait(WorkerReady(worker))

    async def run_stream(self, worker: int, spec: StreamSpec, *, worker_died: bool) -> None:
        """Run the stream as a task of this loop."""
        self._workers[spec.cell, spec.stream] = worker

        async def run() -> None:
            result = await self._worker.run_stream(spec, worker_died=worker_died)
            if isinstance(result, StreamResult):
                self.news.put_nowait(result)
            self.news.put_nowait(event_of(result))

        self._spawn(run())

    async def grant_task(self, worker: int, stream: StreamName) -> None:
        """Wake the stream."""
        self._worker.grant(*stream)

    async def stop_stream(self, worker: int, stream: StreamName) -> None:
        """Wake the stream, to end."""
        self._worker.stop_stream(*stream)

    async def stop_worker(self, worker: int) -> None:
        """Let the streams end at their next task boundary."""
        self._worker.stop()

    async def settle(self) -> None:
        """Pass on the tasks that ended last."""
        self._settling = True
        if self._drain_job is not None:
            # It waits for more; what it has not taken stays with the worker.
            self._drain_job.cancel()
            with suppress(asyncio.CancelledError):
                await self._drain_job
            await self._pass_on(patience_s=0.0)

    async def close(self) -> None:
        """Cancel what still runs and close the worker."""
        jobs = [*self._jobs, *([self._drain_job] if self._drain_job is not None else [])]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await self._worker.close()

    async def _drain(self) -> None:
        while not self._settling:
            await self._pass_on(patience_s=1.0)

    async def _pass_on(self, *, patience_s: float) -> None:
        for news in news_of(await self._worker.drain(patience_s=patience_s), self._workers.__getitem__):
            self.news.put_nowait(news)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        job = asyncio.get_running_loop().create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
