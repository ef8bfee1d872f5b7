"""A silent server costs an agent one deadline, not one a decide; a client that ends leaves nobody waiting."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memcon import ids
from memcon.errors import StorageError, UnavailableError
from memcon.learning.exploration import UcbConfig
from memcon.types import StateFeatures
from memcon_policy_server import wire
from memcon_policy_server.client import LivePolicy, SyncPolicy, delivery, live
from support.owners import eventually
from support.served_gateway import TOKEN, LiveServer

FEATURES = StateFeatures(
    goal_type="put", step=3, is_stuck=False, objects_held=1, locations_visited=2, memory_size=12,
    plan_available=False, task_number=1,
)  # fmt: skip
NOBODY = "http://127.0.0.1:1"
# One key of each of two shards.
KEYS = [next(f"key{n}" for n in range(99) if ids.shard_of("table", f"key{n}", 2) == shard) for shard in (0, 1)]


@pytest.fixture(autouse=True)
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is held is not sent again, however long this machine has no time for us."""
    monkeypatch.setattr(live, "ATTEMPT_TIMEOUT_S", 30.0)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    server = LiveServer(tmp_path / "policy")
    await server.open_table("table", UcbConfig().learning_settings())
    yield server
    await server.stop()


def held(app: Any, path: str) -> tuple[asyncio.Event, list[int]]:
    """Let requests to `path` wait until the event is set; how many came."""
    release, came = asyncio.Event(), [0]
    endpoint = app.endpoints[path]
    handler = endpoint.handler

    async def _later(message: Any) -> object:
        came[0] += 1
        await release.wait()
        return await handler(message)

    app.quick.pop(path.encode(), None)
    endpoint.handler = _later
    return release, came


async def counts(server: LiveServer, shard: int) -> tuple[int, int]:
    """Decisions at the shard's key, and those that are open."""
    table = (await server.shards.owners[shard].served())["tables"]["table"]
    row = table["numbers"]["keys"].get(KEYS[shard], {})
    return sum(arm["taken"] for arm in row.values()), len(table["open"])


@pytest.mark.parametrize("state", ["key", FEATURES])
@pytest.mark.parametrize("listens", [True, False])
async def test_only_the_first_decide_waits_for_a_silent_server(
    state: str | StateFeatures, listens: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def _never(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await asyncio.Event().wait()

    clock = asyncio.get_running_loop().time
    with contextlib.closing(await asyncio.start_server(_never, "127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}" if listens else NOBODY
        policy = await LivePolicy.connect(url, "token", deadline_s=0.4)
        if not listens:
            # The failure of a try is told: one was made, however little time this machine has for us.
            with pytest.raises(UnavailableError):
                await policy._client._transport.post(0, wire.DECIDE, b"")
        begun = clock()
        decisions = [await policy.decide("table", state) for _ in range(30)]
        decisions += await asyncio.gather(*(policy.decide("table", state) for _ in range(70)))
        took_s = clock() - begun

        assert all(decision.is_fallback for decision in decisions)
        # One deadline, where one for each of those that ask one after the other would be twelve seconds.
        assert 0.4 <= took_s < 8.0
        assert (await policy.counters()).fallbacks == 100
        [told] = [record.getMessage() for record in caplog.records]
        assert "did not answer within 0.4 s" in told
        assert listens or "ConnectError" in told
        await policy.close()


async def test_one_silent_shard_is_no_reason_to_fall_back_at_another(server: LiveServer) -> None:
    async with await LivePolicy.connect(server.url, TOKEN, deadline_s=20.0) as policy:
        assert not (await policy.decide("table", KEYS[1])).is_fallback
        release, came = held(server.shards.apps[0], wire.DECIDE)
        policy._deadline_s = 0.3
        silent = [await policy.decide("table", KEYS[0]) for _ in range(5)]

        assert [decision.is_fallback for decision in silent] == [True] * 5
        assert came == [1]
        policy._deadline_s = 20.0
        assert not (await policy.decide("table", KEYS[1])).is_fallback

        # The one that waits is answered: it is taken back, and the others ask again.
        release.set()
        await eventually(lambda: policy._delivery.counts.delivered == 1)
        assert not (await policy.decide("table", KEYS[0])).is_fallback
        assert await counts(server, 0) == (1, 1)


async def test_a_silence_is_asked_about_again_after_a_while(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "DELIVERY_PATIENCE_S", 0.1)
    async with await LivePolicy.connect(server.url, TOKEN, deadline_s=0.2) as policy:
        await policy.decide("table", KEYS[0])
        release, _ = held(server.shards.apps[0], wire.DECIDE)
        assert (await policy.decide("table", KEYS[0])).is_fallback
        await eventually(lambda: not policy._silent)

        release.set()
        policy._deadline_s = 20.0
        policy._client._patience_s = 20.0

        assert not (await policy.decide("table", KEYS[0])).is_fallback


async def test_a_deadline_too_short_for_a_first_contact_does_not_keep_an_agent_from_it(server: LiveServer) -> None:
    endpoint = server.app.endpoints[wire.SHARD_MAP]
    handler = endpoint.handler

    async def _slow(message: Any) -> object:
        await asyncio.wait({asyncio.create_task(asyncio.Event().wait())}, timeout=0.5)
        return await handler(message)

    endpoint.handler = _slow
    async with await LivePolicy.connect(server.url, TOKEN, deadline_s=0.2) as policy:
        async with asyncio.timeout(30.0):
            while (await policy.decide("table", FEATURES)).is_fallback:
                pass


async def test_a_hundred_decides_ask_for_the_tables_settings_once(server: LiveServer) -> None:
    async with await LivePolicy.connect(server.url, TOKEN, deadline_s=10.0) as policy:
        decisions = await asyncio.gather(*(policy.decide("table", FEATURES) for _ in range(100)))

    assert len({decision.decision_id for decision in decisions if not decision.is_fallback}) == 100
    assert server.app.answered[wire.TABLES, 200] == 1


async def test_a_caller_that_is_cancelled_leaves_no_open_decision(server: LiveServer) -> None:
    async with await LivePolicy.connect(server.url, TOKEN, deadline_s=10.0) as policy:
        await policy.decide("table", KEYS[1])
        release, came = held(server.shards.apps[0], wire.DECIDE)
        deciding = asyncio.create_task(policy.decide("table", KEYS[0]))
        await eventually(lambda: came == [1])

        deciding.cancel()
        await asyncio.wait({deciding})
        release.set()
        await eventually(lambda: policy._delivery.counts.delivered == 1)

        assert await counts(server, 0) == (0, 0)


@pytest.mark.parametrize("state", ["key", FEATURES])
@pytest.mark.parametrize("answer", [b"{}", b"[]", b'{"status":"ok"}'])
async def test_what_another_program_answers_in_the_servers_place_is_a_silence(
    server: LiveServer, tmp_path: Path, answer: bytes, state: str | StateFeatures
) -> None:
    spool = tmp_path / "agent.sqlite"
    async with await LivePolicy.connect(server.url, TOKEN, deadline_s=10.0) as policy:
        told, taken_back = await policy.decide("table", KEYS[0]), await policy.decide("table", KEYS[1])

    async with _stranger(answer) as (url, asked):
        lost = await LivePolicy.connect(url, TOKEN, spool=spool, direct=False, deadline_s=0.1)
        assert (await lost.decide("table", state)).is_fallback
        await lost.outcome(told, 1.0)
        await lost.cancel(taken_back)
        await eventually(lambda: asked.issuperset({wire.OUTCOME, wire.CANCEL}))
        await lost.close(flush_s=0.1)

    async with await LivePolicy.connect(server.url, TOKEN, spool=spool) as policy:
        await eventually(lambda: policy._delivery.counts.delivered == 2)
        assert await policy.refused() == []


@contextlib.asynccontextmanager
async def _stranger(answer: bytes) -> AsyncIterator[tuple[str, set[str]]]:
    """A program that answers 200 with `answer` to whatever it is asked; its URL and the paths that were."""
    asked: set[str] = set()

    async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := (await reader.readuntil(b"\r\n\r\n")).lower():
                await reader.readexactly(
                    int((head + b"content-length: 0\r\n").split(b"content-length: ")[1].split()[0])
                )
                asked.add(head.split()[1].decode())
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))
        writer.close()

    program = await asyncio.start_server(_serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{program.sockets[0].getsockname()[1]}", asked
    program.close()


async def test_a_defect_with_one_message_holds_up_no_other_and_refuses_none(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def _breaks(_: object) -> bool:
        raise KeyError("a defect")

    monkeypatch.setattr(delivery, "ROUND_SIZE", 2)
    policy = await LivePolicy.connect(server.url, TOKEN, deadline_s=10.0)
    decisions = [await policy.decide("table", KEYS[0]) for _ in range(4)]
    monkeypatch.setattr(policy._client, "cancel", _breaks)

    for decision in decisions[:2]:
        await policy.cancel(decision)
    for decision in decisions[2:]:
        await policy.outcome(decision, 1.0)
    await eventually(lambda: policy._delivery.counts.delivered == 2)

    assert ((await policy.counters()).waiting, await policy.refused()) == (2, [])
    monkeypatch.undo()
    await eventually(lambda: policy._delivery.counts.delivered == 4)
    await policy.close()


async def test_a_shard_that_is_away_holds_up_only_its_own_outcomes(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "ROUND_SIZE", 4)
    policy = await LivePolicy.connect(server.url, TOKEN, deadline_s=10.0)
    decisions = [await policy.decide("table", KEYS[shard]) for shard in (0,) * 8 + (1,) * 6]
    assert not any(decision.is_fallback for decision in decisions)
    await server.shards.listeners[0].stop()
    policy._client._patience_s = 0.6

    for decision in decisions:
        await policy.outcome(decision, 1.0)
    await eventually(lambda: policy._delivery.counts.delivered == 6)

    assert (await policy.counters()).waiting == 8
    await policy.close(flush_s=0.01)


async def test_a_closed_policy_says_so(server: LiveServer) -> None:
    policy = await LivePolicy.connect(server.url, TOKEN, deadline_s=10.0)
    decision = await policy.decide("table", "key")
    await policy.close()

    with pytest.raises(StorageError, match="closed"):
        await policy.outcome(decision, 1.0)
    assert (await policy.decide("table", FEATURES)).is_fallback


# --- without an event loop -------------------------------------------------------------------------------------------


async def test_threads_that_decide_while_the_policy_ends_are_not_left_waiting() -> None:
    def agents() -> int:
        ended = 0
        for _ in range(20):
            policy = SyncPolicy.connect(NOBODY, "token", deadline_s=0.01)
            begun = threading.Barrier(5)

            def decides(policy: SyncPolicy = policy, begun: threading.Barrier = begun) -> None:
                begun.wait(30)
                with contextlib.suppress(UnavailableError):
                    while True:
                        policy.decide("table", "key")

            threads = [threading.Thread(target=decides, daemon=True) for _ in range(4)]
            for thread in threads:
                thread.start()
            begun.wait(30)
            policy.close(flush_s=0.01)
            for thread in threads:
                thread.join(20)
                ended += not thread.is_alive()
        return ended

    assert await asyncio.to_thread(agents) == 80


def test_a_process_that_was_forked_off_is_told_to_connect_anew() -> None:
    program = (
        "import os, sys; from memcon_policy_server.client import SyncPolicy\n"
        f"policy = SyncPolicy.connect('{NOBODY}', 'token', deadline_s=0.01)\n"
        "if os.fork() == 0:\n"
        "    try: policy.decide('table', 'key')\n"
        "    except Exception as error: sys.stdout.write(str(error))\n"
        "    policy.close()\n"
        "    sys.stdout.flush()\n"
        "    os._exit(0)\n"
        "os.wait(); policy.close()"
    )

    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=50)

    assert "connect anew" in told.stdout
