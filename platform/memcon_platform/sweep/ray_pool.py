"""The pool of Ray actors: one worker process each. Ray restarts and retries nothing; losses become events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import ray
from ray.exceptions import RayError

from memcon.protocols import PolicyClient
from memcon_platform.sweep.events import StreamName, WorkerLost, WorkerReady
from memcon_platform.sweep.pool import News, event_of, news_of
from memcon_workers.actor import start_worker
from memcon_workers.spec import StreamResult, StreamSpec
from memcon_workers.worker import ClientFactory, SinkFactory

__all__ = ["RayPool"]

_REASON_LENGTH = 160


class RayPool:
    """Workers as Ray actors in an initialised Ray; at most `max_streams` run or wait in one of them."""

    def __init__(self, run: str, make_client: ClientFactory, make_sink: SinkFactory, *, max_streams: int) -> None:
        self.news: asyncio.Queue[News] = asyncio.Queue()
        self._run, self._make_client, self._make_sink = run, make_client, make_sink
        self._max_streams = max_streams
        self._actors: dict[int, Any] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._drain_jobs: list[asyncio.Task[None]] = []
        self._settling = False

    @asynccontextmanager
    async def policy(self) -> AsyncIterator[PolicyClient]:
        """A client of its own, closed at the end of the block."""
        client = self._make_client()
        try:
            yield client
        finally:
            await client.close()

    async def start_worker(self, worker: int) -> None:
        """Create the actor; it is ready when it answers."""
        name = f"memcon-{self._run}-worker-{worker}"
        actor = start_worker(name, self._make_client, self._make_sink, max_streams=self._max_streams)
        self._actors[worker] = actor
        self._spawn(self._greet(worker, actor))

    async def run_stream(self, worker: int, spec: StreamSpec, *, worker_died: bool) -> None:
        """Call the actor once; a lost actor is an event, never a retry."""
        self._spawn(self._run_stream(worker, spec, worker_died=worker_died))

    async def grant_task(self, worker: int, stream: StreamName) -> None:
        """Call the actor; a call that breaks is the loss of the worker, since its stream would wait for ever."""
        actor = self._actors.get(worker)
        if actor is not None:
            self._spawn(self._tell_stream(worker, actor.grant, stream))

    async def stop_stream(self, worker: int, stream: StreamName) -> None:
        """Call the actor, as for a grant."""
        actor = self._actors.get(worker)
        if actor is not None:
            self._spawn(self._tell_stream(worker, actor.stop_stream, stream))

    async def stop_worker(self, worker: int) -> None:
        """Ask the worker's streams to end at their next task boundary."""
        actor = self._actors.get(worker)
        if actor is not None:
            self._spawn(self._quietly(actor.stop.remote()))

    async def settle(self) -> None:
        """Pass on the tasks that ended last."""
        self._settling = True
        await asyncio.gather(*self._drain_jobs)

    async def close(self) -> None:
        """End all workers: their streams are over, or will be repeated from the last ended task."""
        jobs = [*self._jobs, *self._drain_jobs]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        for actor in self._actors.values():
            ray.kill(actor)
        self._actors.clear()

    async def _greet(self, worker: int, actor: Any) -> None:
        try:
            await actor.pid.remote()
        except RayError as error:
            self._lose(worker, error)
            return
        self.news.put_nowait(WorkerReady(worker))
        self._drain_jobs.append(asyncio.create_task(self._drain(worker, actor)))

    async def _run_stream(self, worker: int, spec: StreamSpec, *, worker_died: bool) -> None:
        actor = self._actors.get(worker)
        if actor is None:
            return
        try:
            result = await actor.run_stream.remote(spec, worker_died)
        except RayError as error:
            self._lose(worker, error)
            return
        if worker not in self._actors:
            # Its loss is told already, so the stream runs again: the claim finds what had ended.
            return
        if isinstance(result, StreamResult):
            self.news.put_nowait(result)
        self.news.put_nowait(event_of(result))

    async def _drain(self, worker: int, actor: Any) -> None:
        while True:
            settling = self._settling
            try:
                said = await actor.drain.remote()
            except RayError as error:
                self._lose(worker, error)
                return
            if worker not in self._actors:
                # Its loss is told already, and what its streams have ended was read from their files.
                return
            for news in news_of(said, lambda _: worker):
                self.news.put_nowait(news)
            if settling:
                return

    async def _tell_stream(self, worker: int, method: Any, stream: StreamName) -> None:
        try:
            await method.remote(*stream)
        except RayError as error:
            self._lose(worker, error)

    def _lose(self, worker: int, error: RayError) -> None:
        actor = self._actors.pop(worker, None)
        if actor is None:
            return
        # Ray also raises for an actor that lives (a call that broke, a network hiccup). It must not keep the locks of
        # streams that now run elsewhere, nor the core of its successor.
        ray.kill(actor)
        self.news.put_nowait(WorkerLost(worker, _reason(error)))

    async def _quietly(self, reference: Any) -> None:
        try:
            await reference
        except RayError:
            return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        job = asyncio.get_running_loop().create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)


def _reason(error: RayError) -> str:
    """What the worker raised, or what Ray says of its end: the last line of a text that may hold a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:_REASON_LENGTH] if lines else type(error).__name__
