"""A worker beside its predecessor, and at its end; an attempt that is cancelled by nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memcon.clock import SystemClock
from memcon.errors import StorageError
from memcon.protocols import AgentRun
from memcon.store import StreamStore
from memcon.testing.chat_model import ScriptedModel
from memcon.testing.framework import FixedMemory, Switches, switch_task
from memcon.testing.policy import FakePolicyClient
from memcon_policy_server.client.local import LocalPolicyClient
from memcon_policy_server.journal import SqliteJournal
from memcon_policy_server.sharding import export_path, journal_path
from memcon_workers.episode import Attempt, Player
from memcon_workers.spec import StreamError, StreamResult
from memcon_workers.worker import Worker
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
