"""The gateway against odd bodies and against its own OpenAPI document: no fault, nothing changed by a refusal."""

from __future__ import annotations

import asyncio
import gc
import resource
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from memcon.learning.exploration import UcbConfig
from memcon_policy_server import wire
from support.asgi import post
from support.served_gateway import TOKEN, LiveServer
from support.wire import TABLE
from support.wire_fuzz import mutants

COUNT = 10_000


async def sent(server: LiveServer, bodies: Iterable[tuple[str, bytes, str]]) -> Counter[int]:
    """Statuses of the answers to `bodies`."""
    statuses: Counter[int] = Counter()
    for path, body, kind in bodies:
        status, answer = await post(server.app, path, body, kind, token=TOKEN)
        statuses[status] += 1
        assert status < 500, (path, body, kind, answer)
    return statuses


def applied(server: LiveServer) -> int:
    """Events so far; a table changes by events only."""
    return sum(owner.metrics().last_seq + owner.metrics().pending for owner in server.shards.owners)


def resident() -> int:
    """Bytes of this process in memory; 0 where the kernel does not say."""
    known = Path("/proc/self/statm")
    return int(known.read_text().split()[1]) * resource.getpagesize() if known.exists() else 0


async def test_10_000_bodies(tmp_path: Path) -> None:
    server = LiveServer(tmp_path)
    await server.open_table(TABLE, UcbConfig().learning_settings())

    await sent(server, mutants(11, COUNT // 10))
    gc.collect()
    tracemalloc.start()
    statuses = await sent(server, mutants(12, COUNT // 10))
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    before = resident()
    statuses += await sent(server, mutants(13, COUNT - 2 * (COUNT // 10)))
    gc.collect()
    assert resident() - before < 8_000_000

    # Odd enough to be refused mostly, good enough to reach an owner at times.
    assert statuses[400] > COUNT / 2, statuses
    assert statuses[200] > COUNT / 100, statuses
    # What the good ones left in the tables.
    assert grown < 1_000_000
    await server.stop()


async def test_a_body_that_is_refused_reaches_no_table(tmp_path: Path) -> None:
    server = LiveServer(tmp_path)
    await server.open_table(TABLE, UcbConfig().learning_settings())
    refused = 0
    for path, body, kind in mutants(14, COUNT // 20):
        before = applied(server)
        status, _ = await post(server.app, path, body, kind, token=TOKEN)
        if status != 200:
            refused += 1
            assert applied(server) == before, (path, body, kind)
    assert refused > COUNT // 40
    await server.stop()


@pytest.fixture
def base_url(tmp_path: Path) -> Iterator[str]:
    """A gateway in a thread of its own: schemathesis is not asynchronous."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def _start() -> LiveServer:
        server = LiveServer(tmp_path)
        await server.open_table(TABLE, UcbConfig().learning_settings())
        return server

    server = asyncio.run_coroutine_threadsafe(_start(), loop).result()
    yield server.url
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.timeout(120)
def test_every_operation_keeps_to_the_document(base_url: str) -> None:
    pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install 'memcon[dev]'")
    from support.wire_schema import conforms

    tried = conforms(base_url, token=TOKEN, max_examples=6)

    assert {wire.DECIDE, wire.SHARD_MAP} <= tried
    assert len(tried) >= 13
