"""Maintenance on a schedule, inside the commit of a task's end; tasks that wait for their grant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memcon.control.settings import ControlSettings
from memcon.errors import Boundary, BoundaryError, ConfigError
from memcon.protocols import AgentRun
from memcon.types import Operation, OutcomeClass
from memcon_workers.gate import Gate
from memcon_workers.spec import PluginSpec, StreamReady, TaskEnded
from support.streams import Fuse, PowerCut, StreamRig, spec_of

KEEPER = PluginSpec(name="metagpt", parameters={"maintenance": True, "index_failures": True})


class Hooked:
    """A backend that notes its maintenance, spends tokens on it, and fails where it is told to."""

    def __init__(self, inner: Any, fails: Callable[[Operation], bool]) -> None:
        self._inner, self._fails = inner, fails
        self.ran: list[tuple[Operation, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def maintain(self, operation: Operation) -> int:
        self.ran.append((operation, self._inner.size()))
        self._inner.maintain(operation)
        if self._fails(operation):
            raise OSError("index is gone")
        return 7


def _rig(
    folder: Path, fails: Callable[[Operation], bool] = lambda operation: False, **changes: Any
) -> tuple[StreamRig, list[Hooked]]:
    rig = StreamRig(spec_of(folder, **{"learning": None, "memory": KEEPER, **changes}))
    made: list[Hooked] = []

    def wrap(inner: Any) -> Any:
        made.append(Hooked(inner, fails))
        return made[-1]

    rig.wrap_backend = wrap
    return rig, made


def _every(**schedule: int) -> ControlSettings:
    return ControlSettings(**schedule)  # type: ignore[arg-type]


async def test_maintenance_runs_after_every_nth_task_of_the_stream(tmp_path: Path) -> None:
    rig, made = _rig(tmp_path, limit=6, control=_every(forget_every=2, consolidate_every=3))
    await rig.run()
    assert [dict(episode.maintenance) for episode in rig.episodes()] == [
        {},
        {"forget": ""},
        {"consolidate": ""},
        {"forget": ""},
        {},
        {"consolidate": "", "forget": ""},
    ]
    assert [episode.outcome.tokens.memory_maintenance for episode in rig.episodes()] == [0, 7, 7, 7, 0, 14]
    # The task's own attempt is in the memory that is maintained, and the size is that afterwards.
    (backend,) = made
    assert backend.ran[0] == (Operation.FORGET, 2)
    assert rig.episodes()[0].memory_size == 1
    assert rig.exported() == rig.episodes()


async def test_a_hook_that_fails_takes_only_itself_back_and_is_told(tmp_path: Path) -> None:
    control = _every(forget_every=2, consolidate_every=2)
    rig, _ = _rig(tmp_path / "failing", lambda op: op is Operation.CONSOLIDATE, limit=4, control=control)
    await rig.run()
    told = [dict(episode.maintenance) for episode in rig.episodes()]
    assert told == [{}, {"consolidate": "OSError: index is gone", "forget": ""}] * 2
    assert [episode.outcome.tokens.memory_maintenance for episode in rig.episodes()] == [0, 7, 0, 7]
    assert OutcomeClass.UNEVALUABLE not in {episode.outcome.outcome_class for episode in rig.episodes()}

    alone, _ = _rig(tmp_path / "alone", limit=4, control=_every(forget_every=2))
    await alone.run()
    assert rig.memory() == alone.memory()


async def test_an_unevaluable_task_has_no_upkeep(tmp_path: Path) -> None:
    rig, made = _rig(tmp_path, limit=2, control=_every(forget_every=1))

    class Broken:
        def __init__(self, inner: Any) -> None:
            self._inner, self._plays = inner, 0

        async def run(self, *args: Any, **keywords: Any) -> AgentRun:
            self._plays += 1
            if self._plays == 1:
                raise BoundaryError(Boundary.ENVIRONMENT, "reset", OSError("gone"))
            run: AgentRun = await self._inner.run(*args, **keywords)
            return run

    rig.wrap_framework = Broken
    await rig.run()
    assert [dict(episode.maintenance) for episode in rig.episodes()] == [{}, {"forget": ""}]
    assert [operation for backend in made for operation, _ in backend.ran] == [Operation.FORGET]


async def test_a_hook_that_kills_its_workers_does_not_hold_the_stream_up(tmp_path: Path) -> None:
    rig, _ = _rig(tmp_path, limit=2, control=_every(forget_every=1), task_restarts=1)
    for life in range(2):
        with pytest.raises(PowerCut):
            await rig.run(fuse=Fuse("before maintain"), worker_died=life > 0)
    assert (await rig.run(worker_died=True)).done
    first, second = rig.episodes()
    assert (first.outcome.error_boundary, first.maintenance) == ("worker", {})
    assert second.maintenance == {"forget": ""}


async def test_a_schedule_that_the_memory_cannot_carry_out_is_refused_before_the_claim(tmp_path: Path) -> None:
    rig, _ = _rig(tmp_path, control=_every(forget_every=10), memory=PluginSpec(name="metagpt"))
    with pytest.raises(ConfigError, match=r"forget_every = 10: memory 'metagpt' has no forget hook"):
        await rig.run()
    assert rig.episodes() == []


# --- grants ----------------------------------------------------------------------------------------------------------


def _listening(rig: StreamRig) -> asyncio.Queue[tuple[TaskEnded | StreamReady, Gate]]:
    """What the stream tells from now on, with the gate of its life; nothing is granted by itself."""
    told: asyncio.Queue[tuple[TaskEnded | StreamReady, Gate]] = asyncio.Queue()
    rig.on_told = lambda report, gate: told.put_nowait((report, gate))
    return told


async def test_a_gated_stream_begins_each_task_when_it_is_granted(tmp_path: Path) -> None:
    rig, _ = _rig(tmp_path, limit=3, gated=True)
    told = _listening(rig)
    job = asyncio.ensure_future(rig.run())
    for ordinal in range(3):
        ready, gate = await told.get()
        assert ready == StreamReady(cell="cell", stream=0, num_ended=ordinal)
        await asyncio.wait({job}, timeout=0.05)
        assert told.empty()
        assert len(rig.ended) == ordinal
        gate.grant()
        # Before the first is taken, it is the same grant.
        gate.grant()
        ended, _ = await told.get()
        assert isinstance(ended, TaskEnded)
        assert ended.ordinal == ordinal
    assert (await job).done
    # After the last task there is nothing to be ready for.
    assert told.empty()


async def test_a_stop_ends_a_stream_that_waits_for_its_grant(tmp_path: Path) -> None:
    rig, _ = _rig(tmp_path, limit=3, gated=True)
    told = _listening(rig)
    job = asyncio.ensure_future(rig.run())
    _, gate = await told.get()
    gate.grant()
    await told.get()
    await told.get()
    rig.stop.set()
    result = await job
    assert (result.num_ended, result.done) == (1, False)
    # No task was begun under the grant that never came: the next life repeats none.
    rig.stop.clear()
    rig.on_told = lambda report, gate: gate.grant()
    assert (await rig.run()).done
    assert [episode.epoch for episode in rig.episodes()] == [1, 2, 2]
    assert rig.ready == [0, 1, 1, 2]


async def test_a_stop_wins_over_a_grant() -> None:
    stop = asyncio.Event()
    gate = Gate(stop)
    gate.grant()
    stop.set()
    assert not await gate.passed()


async def test_a_cancelled_wait_leaves_no_task_behind() -> None:
    gate = Gate(asyncio.Event())
    before = asyncio.all_tasks()
    job = asyncio.ensure_future(gate.passed())
    await asyncio.wait({job}, timeout=0)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    while left := asyncio.all_tasks() - before:
        await asyncio.wait(left)
    assert asyncio.all_tasks() == before


async def test_a_gate_that_is_shut_ends_its_stream_where_it_waits_and_no_other(tmp_path: Path) -> None:
    rig, _ = _rig(tmp_path, limit=3, gated=True)
    told = _listening(rig)
    job = asyncio.ensure_future(rig.run())
    _, gate = await told.get()
    gate.grant()
    await told.get()
    await told.get()
    gate.shut()
    result = await job
    assert (result.num_ended, result.done) == (1, False)
    # What had ended is exported, and nobody else of its worker is stopped.
    assert len(rig.exported()) == 1
    assert not rig.stop.is_set()
