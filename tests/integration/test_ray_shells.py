"""The Ray shells without a cluster: a call that breaks, an actor that lives on, a replica that dies as it is asked."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from memcon.errors import InvariantError, MemconError, StorageError, UnavailableError
from memcon.learning.events import Decided
from memcon.testing.policy import decide_request
from memcon_platform.sweep.events import StreamDone, StreamReady, WorkerLost, WorkerReady
from memcon_policy_server.client.local import LocalPolicyClient
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.options import OwnerOptions
from memcon_policy_server.sharding import journal_path
from memcon_workers.spec import StreamReady as Waits
from memcon_workers.spec import StreamResult
from support.shards import SETTINGS, new_shard
from support.streams import spec_of

# Ray and Serve warn while they are imported, hence the imports inside.
pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _ray() -> None:
    pytest.importorskip("ray")


# --- the pool of actors ----------------------------------------------------------------------------------------------


class FakeActor:
    """An actor whose streams and drain end when the test says so."""

    def __init__(self) -> None:
        self.calls: list[asyncio.Future[Any]] = []
        self.drained: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.pid, self.drain, self.run_stream = _Remote(_at_once), _Remote(lambda: self.drained), _Remote(self._call)
        self.grants: list[tuple[str, int]] = []
        self.granted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.grant = _Remote(self._grant)
        self.ended: list[tuple[str, int]] = []
        self.stop_stream = _Remote(self._stop_stream)

    def _grant(self, cell: str, stream: int) -> asyncio.Future[Any]:
        self.grants.append((cell, stream))
        return self.granted

    def _stop_stream(self, cell: str, stream: int) -> asyncio.Future[Any]:
        self.ended.append((cell, stream))
        return _at_once()

    def _call(self, *_: Any) -> asyncio.Future[Any]:
        self.calls.append(asyncio.get_running_loop().create_future())
        return self.calls[-1]


class _Remote:
    def __init__(self, call: Callable[..., Any]) -> None:
        self.remote = call


def _at_once() -> asyncio.Future[int]:
    done = asyncio.get_running_loop().create_future()
    done.set_result(1)
    return done


def _result() -> StreamResult:
    return StreamResult(
        cell="cell", stream=0, num_ended=4, num_tasks=4, elapsed_s=1.0, model_s=0.0, environment_s=0.0, num_steps=1
    )


async def ticks(count: int = 5) -> None:
    """Let the event loop run what is ready."""
    for _ in range(count):
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)


async def _pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Any, FakeActor, list[Any]]:
    from memcon_platform.sweep import ray_pool

    actor = FakeActor()
    killed: list[Any] = []
    monkeypatch.setattr(ray_pool, "start_worker", lambda *_, **__: actor)
    monkeypatch.setattr("ray.kill", killed.append)
    pool = ray_pool.RayPool("run", lambda: None, lambda: None, max_streams=2)  # type: ignore[arg-type,return-value]
    await pool.start_worker(0)
    assert await pool.news.get() == WorkerReady(0)
    for stream in range(2):
        await pool.run_stream(0, spec_of(tmp_path, stream=stream), worker_died=False)
    while len(actor.calls) < 2:
        await ticks(1)
    return pool, actor, killed


async def test_a_broken_call_ends_the_actor_too_so_that_it_keeps_no_lock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ray.exceptions import ActorUnavailableError

    pool, actor, killed = await _pool(monkeypatch, tmp_path)
    actor.calls[0].set_exception(ActorUnavailableError("the network hiccuped", None))

    lost = await pool.news.get()

    assert isinstance(lost, WorkerLost)
    assert "hiccuped" in lost.reason
    assert killed == [actor]
    await pool.close()


async def test_a_result_after_the_loss_of_its_worker_is_not_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ray.exceptions import ActorDiedError

    pool, actor, killed = await _pool(monkeypatch, tmp_path)
    actor.drained.set_exception(ActorDiedError())
    assert isinstance(await pool.news.get(), WorkerLost)
    actor.calls[0].set_result(_result())
    actor.calls[1].set_exception(ActorDiedError())

    await asyncio.gather(*pool._jobs)

    assert pool.news.empty(), "the Supervisor gave the stream to another worker already"
    assert killed == [actor]
    await pool.close()


async def test_a_result_of_a_living_worker_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pool, actor, _ = await _pool(monkeypatch, tmp_path)
    actor.calls[0].set_result(_result())
    assert [await pool.news.get(), await pool.news.get()] == [_result(), StreamDone(("cell", 0))]
    await pool.close()


async def test_a_stream_that_waits_is_told_with_its_worker_and_is_granted_or_ended_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pool, actor, _ = await _pool(monkeypatch, tmp_path)
    drained, actor.drained = actor.drained, asyncio.get_running_loop().create_future()
    drained.set_result([Waits(cell="cell", stream=1, num_ended=3)])
    assert await pool.news.get() == StreamReady(0, ("cell", 1), 3)

    await pool.grant_task(0, ("cell", 1))
    await pool.stop_stream(0, ("cell", 0))

    await ticks()
    assert actor.grants == [("cell", 1)]
    assert actor.ended == [("cell", 0)]
    assert pool.news.empty()
    await pool.close()


async def test_a_grant_that_breaks_is_the_loss_of_its_worker_since_the_stream_would_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ray.exceptions import ActorUnavailableError

    pool, actor, killed = await _pool(monkeypatch, tmp_path)
    actor.granted.set_exception(ActorUnavailableError("the network hiccuped", None))

    await pool.grant_task(0, ("cell", 1))

    assert isinstance(await pool.news.get(), WorkerLost)
    assert killed == [actor]
    await pool.close()


async def test_news_that_arrive_after_the_loss_of_their_worker_are_not_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ray.exceptions import ActorDiedError

    pool, actor, _ = await _pool(monkeypatch, tmp_path)
    actor.calls[0].set_exception(ActorDiedError())
    assert isinstance(await pool.news.get(), WorkerLost)
    actor.drained.set_result([Waits(cell="cell", stream=1, num_ended=3)])

    await pool.settle()

    assert pool.news.empty(), "the stream waits elsewhere by now, or is being claimed"
    await pool.close()


# --- the served policy -----------------------------------------------------------------------------------------------


class _Answer:
    def __init__(self, value: str | Exception) -> None:
        self._value = value

    def result(self, timeout_s: float) -> str:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


def _served(monkeypatch: pytest.MonkeyPatch, answers: Sequence[str | Exception]) -> tuple[Any, list[str]]:
    """A served policy with one shard that gives `answers` in turn, and the apps that were deleted."""
    from memcon_policy_server.serving import deployments

    waiting = iter(answers)
    deleted: list[str] = []

    class Handle:
        stop = _Remote(lambda: _Answer(next(waiting)))

    monkeypatch.setattr(deployments.ServeShardMap, "handle", lambda *_: Handle)
    monkeypatch.setattr("ray.serve.delete", deleted.append)
    return deployments.ServedPolicy(shard_map=deployments.ServeShardMap(app_name="memcon-x", num_shards=1)), deleted


def test_a_shard_that_dies_while_it_exports_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.exceptions import ActorDiedError

    policy, deleted = _served(monkeypatch, [ActorDiedError(), "served/shard-0.json"])
    assert policy.stop() == [Path("served/shard-0.json")]
    assert deleted == ["memcon-x"]


def _from_the_replica(error: MemconError) -> Exception:
    from ray.exceptions import RayTaskError

    raised: Any = RayTaskError
    told: Exception = raised("stop", "Traceback: many lines", error, pid=1, ip="127.0.0.1").as_instanceof_cause()
    return told


def test_the_owner_s_own_error_comes_out_as_it_was_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, _ = _served(monkeypatch, [_from_the_replica(StorageError("the disk is full"))])
    with pytest.raises(StorageError, match=r"^the disk is full$"):
        policy.stop()


def test_a_serve_that_does_not_answer_is_one_clear_error_and_is_not_waited_for_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, deleted = _served(monkeypatch, [TimeoutError("in 60 s")])
    with pytest.raises(UnavailableError, match=r"memcon-x did not answer stop.*run the same command again"):
        policy.stop()
    assert deleted == []


@pytest.mark.parametrize(("update", "tries", "deletes"), [(False, 1, ["memcon-x"]), (True, 3, [])])
def test_an_update_that_fails_is_tried_again_and_never_ends_what_runs(
    update: bool, tries: int, deletes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memcon_policy_server.serving import deployments

    run: list[str] = []
    deleted: list[str] = []

    def fail(_: object, *, name: str, **__: object) -> None:
        run.append(name)
        raise RuntimeError("Deploying application memcon-x failed: a process died\nand more")

    monkeypatch.setattr("ray.serve.run", fail)
    monkeypatch.setattr("ray.serve.delete", deleted.append)

    with pytest.raises(UnavailableError, match=r"memcon-x.*a process died$"):
        deployments.start_gateway(tmp_path, 1, "memcon-x", OwnerOptions(), host="127.0.0.1", gateways=1, update=update)

    assert run == ["memcon-x"] * tries
    assert deleted == deletes


async def test_a_journal_that_no_shard_can_fold_is_refused_before_anything_starts(tmp_path: Path) -> None:
    from memcon_policy_server.serving.deployments import start_policy

    client = LocalPolicyClient(tmp_path)
    await client.open_table("table", SETTINGS)
    await client.close()
    journal = SqliteJournal(journal_path(tmp_path, 0), shard=0, num_shards=1)
    journal.claim()
    # Soundly chained, but a decision that the table would not take.
    event = new_shard().decide(decide_request(1)).events[0]
    assert isinstance(event, Decided)
    journal.append([dataclasses.replace(event, action_id="noop")])
    journal.close()

    with pytest.raises(InvariantError, match="event 2"):
        start_policy(tmp_path, 1, "memcon-forged")


async def test_an_owner_whose_listener_ended_is_reported_to_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memcon_policy_server.serving import deployments

    # The collector of the tests' own process stays as it is.
    monkeypatch.setattr(deployments, "_collect_seldom", lambda: None)
    replica = deployments.ShardReplica.__new__(deployments.ShardReplica)
    # As Serve does.
    await replica.__init__(str(tmp_path), 0, 1, OwnerOptions(), "127.0.0.1")  # type: ignore[misc]
    await replica.check_health()

    replica.listener._server.should_exit = True
    await asyncio.wait_for(asyncio.shield(replica.listener._task), 10)  # type: ignore[arg-type]

    with pytest.raises(UnavailableError, match="its process must be replaced"):
        await replica.check_health()
    await replica.owner.close()
