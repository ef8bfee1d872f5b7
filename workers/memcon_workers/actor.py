"""The Ray shell of a worker: an async actor around `memcon_workers.worker.Worker`, with no logic of its own."""

from __future__ import annotations

import os
from typing import Any

import ray

from memcon_workers.spec import StreamError, StreamReady, StreamResult, StreamSpec, TaskEnded
from memcon_workers.worker import ClientFactory, SinkFactory, Worker

__all__ = ["start_worker"]


class _WorkerActor:
    def __init__(self, make_client: ClientFactory, make_sink: SinkFactory) -> None:
        self._worker = Worker(make_client=make_client, make_sink=make_sink)

    async def run_stream(self, spec: StreamSpec, worker_died: bool) -> StreamResult | StreamError:
        return await self._worker.run_stream(spec, worker_died=worker_died)

    async def drain(self) -> list[TaskEnded | StreamReady]:
        return await self._worker.drain()

    async def grant(self, cell: str, stream: int) -> None:
        self._worker.grant(cell, stream)

    async def stop_stream(self, cell: str, stream: int) -> None:
        self._worker.stop_stream(cell, stream)

    async def stop(self) -> None:
        self._worker.stop()

    async def close(self) -> None:
        await self._worker.close()

    async def pid(self) -> int:
        return os.getpid()


def start_worker(name: str, make_client: ClientFactory, make_sink: SinkFactory, *, max_streams: int) -> Any:
    """A worker actor for at most `max_streams` streams at a time, those included that wait for their turn.

    Never restarted and never retried by Ray: the Supervisor does both (field problem 4).
    """
    actor = ray.remote(_WorkerActor).options(
        name=name,
        num_cpus=1,
        max_restarts=0,
        max_task_retries=0,
        # The streams, a grant for each, the drain, and room for stop and close.
        max_concurrency=2 * max_streams + 8,
    )
    return actor.remote(make_client, make_sink)
