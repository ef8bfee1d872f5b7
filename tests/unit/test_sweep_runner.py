"""The runner over a pool that dies, fails and finishes as the test says."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memcon.clock import SystemClock
from memcon.protocols import PolicyClient
from memcon_platform.sweep.events import (
    StreamDone,
    StreamFailed,
    StreamName,
    StreamReady,
    StreamStopped,
    WorkerLost,
    WorkerReady,
)
from memcon_platform.sweep.interrupts import Interrupted
from memcon_platform.sweep.pool import News
from memcon_platform.sweep.progress import Progress, Snapshot
from memcon_platform.sweep.runner import Runner
from memcon_platform.sweep.status import error_path, stream_path
from memcon_platform.sweep.supervisor import StreamState, Supervisor
from memcon_platform.sweep.turns import Turns
from memcon_workers.spec import StreamSpec, TaskEnded
from support.streams import StreamRig, spec_of

A, B, C = ("cell", 0), ("cell", 1), ("cell", 2)


class ScriptedPool:
    """Runs `play` in place of a stream."""

    def __init__(self, play: Callable[[ScriptedPool, int, StreamSpec], Coroutine[Any, Any, None]]) -> None:
        self.news: asyncio.Queue[News] = asyncio.Queue()
        self._play = play
        self.granted: list[tuple[int, StreamName]] = []
        self.stopped: list[tuple[int, StreamName]] = []
        self.settled = asyncio.Event()
        self.settled.set()

    async def start_worker(self, worker: int) -> None:
        self.news.put_nowait(WorkerReady(worker))

    async def run_stream(self, worker: int, spec: StreamSpec, *, worker_died: bool) -> None:
        await self._play(self, worker, spec)

    def policy(self) -> AbstractAsyncContextManager[PolicyClient]:
        raise NotImplementedError("a runner asks no policy")

    async def grant_task(self, worker: int, stream: StreamName) -> None:
        self.granted.append((worker, stream))
        self.news.put_nowait(StreamDone(stream))

    async def stop_stream(self, worker: int, stream: StreamName) -> None:
        self.stopped.append((worker, stream))
        self.news.put_nowait(StreamStopped(stream))

    async def stop_worker(self, worker: int) -> None:
        self.news.put_nowait(StreamStopped(A))

    async def settle(self) -> None:
        await self.settled.wait()

    async def close(self) -> None:
        return


class Nobody:
    """An observer that does not look."""

    def task_ended(self, task: TaskEnded) -> None:
        return

    def cell_ended(self, cell: str) -> None:
        return


def _runner(
    run_dir: Path,
    specs: Mapping[StreamName, StreamSpec],
    pool: ScriptedPool,
    *,
    max_deaths: int = 0,
    turns: Sequence[Turns] = (),
    shown: io.StringIO | None = None,
) -> tuple[Runner, Supervisor, Progress]:
    supervisor = Supervisor(list(specs), num_workers=1, streams_per_worker=2, max_deaths=max_deaths, turns=turns)
    console = Console(file=shown or io.StringIO())
    progress = Progress(console, SystemClock(), Snapshot(num_cells=1, num_tasks=3))
    runner = Runner(
        run_dir, specs, dict.fromkeys(specs, 0), supervisor=supervisor, pool=pool, progress=progress, observer=Nobody()
    )
    return runner, supervisor, progress


async def test_tasks_that_a_dead_worker_did_not_tell_of_count_as_getting_on(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, store_path=str(stream_path(tmp_path, *A)))
    lives = iter(range(1, 4))

    async def play(pool: ScriptedPool, worker: int, given: StreamSpec) -> None:
        # Every life ends one task more, then its process dies with the news of it.
        life = next(lives)
        await StreamRig(spec_of(tmp_path, store_path=given.store_path, limit=life)).run()
        pool.news.put_nowait(WorkerLost(worker) if life < 3 else StreamDone(A))

    runner, supervisor, progress = _runner(tmp_path, {A: spec}, ScriptedPool(play), max_deaths=1)

    end = await runner.run()

    assert end.failures == {}
    assert supervisor.state(A) is StreamState.DONE
    assert progress.snapshot.tasks_done == 2


async def test_a_failure_that_cannot_be_noted_does_not_end_the_other_streams(tmp_path: Path) -> None:
    async def play(pool: ScriptedPool, worker: int, given: StreamSpec) -> None:
        pool.news.put_nowait(StreamDone(B) if given.stream else StreamFailed(A, "the disk is full"))

    # Stands for a disk that takes nothing.
    (tmp_path / "streams").write_text("no folder")
    specs = {A: spec_of(tmp_path), B: spec_of(tmp_path, stream=1)}
    runner, supervisor, _ = _runner(tmp_path, specs, ScriptedPool(play))

    end = await runner.run()

    assert end.failures == {A: "the disk is full"}
    assert supervisor.state(B) is StreamState.DONE


@pytest.mark.parametrize("bound", [1, 2])
async def test_a_failed_stream_stops_its_table_if_that_is_exact_and_says_so(tmp_path: Path, bound: int) -> None:
    async def play(pool: ScriptedPool, worker: int, given: StreamSpec) -> None:
        name = (given.cell, given.stream)
        pool.news.put_nowait(StreamReady(worker, name, 0) if name != A else StreamFailed(A, "the disk is full"))

    specs = {name: spec_of(tmp_path, stream=name[1], gated=True) for name in (A, B, C)}
    pool = ScriptedPool(play)
    shown = io.StringIO()
    runner, supervisor, _ = _runner(tmp_path, specs, pool, turns=[Turns([A, B, C], bound=bound)], shown=shown)

    end = await runner.run()

    assert not end.stopped, "nobody asked for a stop"
    assert error_path(tmp_path, *A).read_text() == "the disk is full\n"
    if bound == 1:
        assert (pool.granted, pool.stopped) == ([], [(0, B), (0, C)])
        assert {supervisor.state(B), supervisor.state(C)} == {StreamState.STOPPED}
        assert "the disk is full; table" in end.failures[A]
        assert end.failures[A].endswith("the same command again goes on")
        assert "the same command again goes on" in " ".join(shown.getvalue().split())
    else:
        assert (pool.granted, pool.stopped) == ([(0, B), (0, C)], [])
        assert end.failures == {A: "the disk is full"}


async def test_the_reason_of_a_failure_stands_beside_its_stream_until_the_next_try(tmp_path: Path) -> None:
    async def fail(pool: ScriptedPool, worker: int, given: StreamSpec) -> None:
        pool.news.put_nowait(StreamFailed(A, "why"))

    async def succeed(pool: ScriptedPool, worker: int, given: StreamSpec) -> None:
        assert not error_path(tmp_path, *A).exists()
        pool.news.put_nowait(StreamDone(A))

    await _runner(tmp_path, {A: spec_of(tmp_path)}, ScriptedPool(fail))[0].run()
    assert error_path(tmp_path, *A).read_text() == "why\n"
    await _runner(tmp_path, {A: spec_of(tmp_path)}, ScriptedPool(succeed))[0].run()


async def test_an_interrupt_ends_at_a_task_boundary_and_a_second_one_at_once(tmp_path: Path) -> None:
    async def play(pool: ScriptedPool, worker: int, given: StreamSpec) -> None:
        runner.interrupt()

    pool = ScriptedPool(play)
    runner, _, _ = _runner(tmp_path, {A: spec_of(tmp_path)}, pool)
    assert (await runner.run()).stopped

    pool = ScriptedPool(play)
    runner, _, _ = _runner(tmp_path, {A: spec_of(tmp_path)}, pool)
    # A worker that hangs while the last news are fetched.
    pool.settled.clear()
    job = asyncio.ensure_future(runner.run())
    while pool.news.qsize() or not runner._stopped or not runner._supervisor.finished:
        await asyncio.wait({job}, timeout=0)
    runner.interrupt()
    with pytest.raises(Interrupted):
        await job


async def test_a_stop_after_the_last_task_is_no_stop(tmp_path: Path) -> None:
    async def play(pool: ScriptedPool, worker: int, given: StreamSpec) -> None:
        runner.interrupt()
        pool.news.put_nowait(StreamDone(A))

    class TooLate(ScriptedPool):
        async def stop_worker(self, worker: int) -> None:
            return

    runner, _, _ = _runner(tmp_path, {A: spec_of(tmp_path)}, TooLate(play))

    assert not (await runner.run()).stopped


def test_a_frame_of_progress_is_one_line_on_a_narrow_terminal() -> None:
    console = Console(file=io.StringIO(), width=40, force_terminal=True)
    progress = Progress(console, SystemClock(), Snapshot(num_cells=1, num_tasks=3, restarts=7))
    progress.close()
    assert progress._frame().cell_len < 40
    assert "\n" not in progress._frame().plain
