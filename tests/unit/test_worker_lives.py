"""A worker beside its predecessor, and at its end; an attempt that is cancelled by nobody."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memcon import registry
from memcon.clock import SystemClock
from memcon.control.settings import PreloadSettings
from memcon.errors import StorageError, UnavailableError
from memcon.protocols import AgentRun, Environment
from memcon.store import StreamStore
from memcon.testing.chat_model import ScriptedModel
from memcon.testing.framework import FixedMemory, Switches, switch_task
from memcon.testing.policy import FakePolicyClient
from memcon.types import Episode
from memcon_policy_server.client.local import LocalPolicyClient
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import export_path, journal_path
from memcon_workers.episode import Attempt, Player
from memcon_workers.spec import PluginSpec, StreamError, StreamReady, StreamResult, TaskEnded
from memcon_workers.worker import Worker
from support.plugged import plugged
from support.streams import MemorySink, spec_of


def _worker(patience_s: float) -> Worker:
    return Worker(make_client=FakePolicyClient, make_sink=MemorySink, lock_patience_s=patience_s)


async def test_a_claim_waits_for_the_last_owner_of_the_stream_to_die(tmp_path: Path) -> None:
    spec, worker = spec_of(tmp_path, limit=1), _worker(30.0)
    dying = StreamStore(Path(spec.store_path), identity="cell/0")
    job = asyncio.ensure_future(worker.run_stream(spec, worker_died=False))
    await asyncio.wait({job}, timeout=0.2)
    assert not job.done()

    dying.close()

    result = await job
    assert isinstance(result, StreamResult), result
    assert result.done
    await worker.close()


async def test_a_claim_does_not_wait_for_ever(tmp_path: Path) -> None:
    spec, worker = spec_of(tmp_path, limit=1), _worker(0.0)
    living = StreamStore(Path(spec.store_path), identity="cell/0")
    result = await worker.run_stream(spec, worker_died=False)
    assert isinstance(result, StreamError)
    assert "is held by process" in result.message
    living.close()
    await worker.close()


class _Closed:
    """A benchmark that has tasks and cannot open its world."""

    def __init__(self, inner: Any, error: Exception) -> None:
        self._inner, self._error = inner, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def environment(self) -> Environment:
        raise self._error


@pytest.mark.parametrize("error", [OSError("no display"), UnavailableError("no display")])
async def test_a_world_that_cannot_be_opened_is_named_as_what_failed(error: Exception, tmp_path: Path) -> None:
    spec, worker = spec_of(tmp_path, limit=1), _worker(0.0)
    found = registry.plugin("benchmark", spec.benchmark.name)
    closed = dataclasses.replace(found, build=lambda config: _Closed(found.build(config), error))
    with plugged({("benchmark", spec.benchmark.name): closed}):
        result = await worker.run_stream(spec, worker_died=False)
    await worker.close()

    assert isinstance(result, StreamError)
    assert result.message == f"environment failed during opening: {type(error).__name__}: no display"


async def _told(worker: Worker) -> list[TaskEnded | StreamReady]:
    """The next things that the worker's streams tell."""
    told: list[TaskEnded | StreamReady] = []
    while not told:
        told = await worker.drain()
    return told


async def test_a_worker_hands_grants_to_its_gated_streams_and_tells_in_order(tmp_path: Path) -> None:
    worker = _worker(0.0)
    specs = [
        spec_of(tmp_path / "gated", limit=2, cell="gated", gated=True, learning=None),
        spec_of(tmp_path / "free", limit=2, cell="free", learning=None),
    ]
    jobs = [asyncio.ensure_future(worker.run_stream(spec, worker_died=False)) for spec in specs]
    told: list[TaskEnded | StreamReady] = []
    while len(told) < 6:
        fresh = await _told(worker)
        told += fresh
        # To a stream that nobody knows, to one that waits for nothing, and to the one that waits.
        for cell, stream in (
            ("gated", 7),
            ("free", 0),
            *((one.cell, 0) for one in fresh if isinstance(one, StreamReady)),
        ):
            worker.grant(cell, stream)
    results = await asyncio.gather(*jobs)
    assert all(isinstance(result, StreamResult) and result.done for result in results), results
    of_gated = [report for report in told if report.cell == "gated"]
    assert [type(report) for report in of_gated] == [StreamReady, TaskEnded, StreamReady, TaskEnded]
    assert [report.num_ended for report in of_gated if isinstance(report, StreamReady)] == [0, 1]
    assert [type(report) for report in told if report.cell == "free"] == [TaskEnded, TaskEnded]
    await worker.close()


async def test_a_stop_reaches_a_stream_that_waits_for_its_grant(tmp_path: Path) -> None:
    worker = _worker(0.0)
    job = asyncio.ensure_future(
        worker.run_stream(spec_of(tmp_path, limit=2, gated=True, learning=None), worker_died=False)
    )
    assert await _told(worker) == [StreamReady(cell="cell", stream=0, num_ended=0)]
    worker.stop()
    result = await job
    assert isinstance(result, StreamResult)
    assert (result.num_ended, result.done) == (0, False)
    await worker.close()


async def test_streams_of_a_worker_share_their_practice_and_carry_their_setup(tmp_path: Path) -> None:
    class Noting(MemorySink):
        def write_block(self, cell: str, stream: int, block: int, episodes: Sequence[Episode]) -> None:
            super().write_block(cell, stream, block, episodes)
            seen.extend(episodes)

    seen: list[Episode] = []
    worker = Worker(make_client=FakePolicyClient, make_sink=Noting)
    changes: dict[str, Any] = {"limit": 1, "learning": None, "setup": "5e7", "preload": PreloadSettings(per_type=1)}
    specs = [spec_of(tmp_path / str(n), cell=f"cell{n}", **changes) for n in range(3)]
    results = await asyncio.gather(*(worker.run_stream(spec, worker_died=False) for spec in specs))
    assert all(isinstance(result, StreamResult) and result.done for result in results), results
    features = [decision.features for episode in seen for decision in episode.decisions]
    assert [(feature.memory_size, feature.setup, feature.benchmark) for feature in features] == [
        (6, "5e7", "household")
    ] * 3
    await worker.close()


async def test_a_preload_that_the_benchmark_cannot_give_ends_the_stream_in_one_line(tmp_path: Path) -> None:
    worker = _worker(0.0)
    spec = spec_of(tmp_path, learning=None, benchmark=PluginSpec(name="trivia"), preload=PreloadSettings())
    result = await worker.run_stream(spec, worker_died=False)
    assert isinstance(result, StreamError)
    assert result.message.startswith("preload: benchmark 'trivia' has no practice tasks;")
    await worker.close()


async def test_a_model_that_cannot_close_does_not_keep_the_policy_open() -> None:
    class Client(FakePolicyClient):
        closed = False

        async def close(self) -> None:
            self.closed = True

    class Model:
        complete = None

        async def close(self) -> None:
            raise RuntimeError("no")

    client = Client()
    worker = Worker(make_client=lambda: client, make_sink=MemorySink)
    worker._shared["backbone"] = Model()
    await worker.close()
    assert client.closed


async def test_one_shard_that_cannot_export_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    client = LocalPolicyClient(tmp_path, num_shards=2)
    export_path(tmp_path, 0).mkdir(parents=True)
    with pytest.raises(StorageError, match=r"shard-0\.json"):
        await client.close()
    assert export_path(tmp_path, 1).is_file()
    # Both journals are free.
    for shard in range(2):
        SqliteJournal(journal_path(tmp_path, shard), shard=shard, num_shards=2).close()


# --- one attempt -----------------------------------------------------------------------------------------------------


class Cancelling:
    """A framework out of which a cancel comes that nobody asked for, or which waits for ever."""

    def __init__(self, *, leaks: bool) -> None:
        self._leaks = leaks

    async def run(self, *_: Any, **__: Any) -> AgentRun:
        if self._leaks:
            raise asyncio.CancelledError
        await asyncio.Event().wait()
        raise AssertionError


async def _play(framework: Cancelling) -> Attempt:
    player = Player(
        framework=framework,
        environment=Switches(),
        model=ScriptedModel([]),
        clock=SystemClock(),
        time_limit_s=None,
    )
    return await player.play(switch_task(), FixedMemory(), environment_seed=0, agent_seed=0)


async def test_a_cancel_that_nobody_asked_for_is_a_failed_task_and_no_lost_stream() -> None:
    attempt = await _play(Cancelling(leaks=True))
    assert (attempt.outcome.outcome_class, attempt.outcome.error_boundary) == ("unevaluable", "framework")


async def test_a_cancel_of_ours_goes_through() -> None:
    job = asyncio.ensure_future(_play(Cancelling(leaks=False)))
    await asyncio.wait({job}, timeout=0)
    job.cancel()
    await asyncio.wait({job})
    assert job.cancelled()
