"""10,000 odd bodies: none is the server's fault, none that is refused changes a table, memory stays steady."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memcon.learning.exploration import UcbConfig
from memcon.learning.shard import PolicyShard
from memcon_policy_server import wire
from memcon_policy_server.http.app import HttpApp
from memcon_policy_server.journal.fold import fold
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.options import Limits, OwnerOptions
from memcon_policy_server.owner.shard_owner import ShardOwner
from memcon_policy_server.secret import load_secret
from memcon_policy_server.sharding import journal_path
from support.served_policy import ServedShards
from support.wire import Wire
from support.wire_fuzz import mutants

COUNT = 10_000
LIMITS = Limits(max_tables=4, max_keys_per_table=100)


@pytest.fixture(params=[False, True], ids=["quick", "durable"])
async def shards(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[ServedShards]:
    shards = ServedShards(tmp_path, options=OwnerOptions(durable_decides=request.param, limits=LIMITS))
    await shards.owners[0].open_table("table", UcbConfig().learning_settings())
    yield shards
    await shards.close()


async def post(app: HttpApp, path: str, body: bytes, kind: str) -> int:
    """Status of one POST through ASGI; what the application raises is raised here."""
    sent: list[dict[str, Any]] = []
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def _receive() -> dict[str, Any]:
        return next(messages, {"type": "http.disconnect"})

    async def _send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    await app(scope, _receive, _send)
    status: int = sent[0]["status"]
    return status


def applied(owner: ShardOwner) -> int:
    """Events so far; a table changes by events only."""
    metrics = owner.metrics()
    return metrics.last_seq + metrics.pending


@pytest.mark.parametrize("shards", [False], indirect=True)
async def test_10_000_bodies_in_process(shards: ServedShards) -> None:
    (owner,), (app,) = shards.owners, shards.apps
    statuses: Counter[int] = Counter()

    for path, body, kind in mutants(1, COUNT):
        before = applied(owner)
        status = await post(app, path, body, kind)
        statuses[status] += 1
        assert status < 500, (path, body, kind)
        if status != 200:
            assert applied(owner) == before, (path, body, kind)

    # Odd enough to be refused mostly, good enough to reach the table at times.
    assert statuses[400] > COUNT / 2, statuses
    assert statuses[200] > COUNT / 100, statuses
    served = (await owner.served())["tables"]
    assert folded(shards.directory) == served


def folded(directory: Path) -> dict[str, Any]:
    """The tables that the journal alone gives."""
    core = PolicyShard(0, 1, load_secret(directory))
    journal = SqliteJournal(journal_path(directory, 0), shard=0, num_shards=1, read_only=True)
    try:
        for _ in fold(journal, core):
            pass
    finally:
        journal.close()
    return {table: core.dump(table) for table in core.tables()}


@pytest.mark.parametrize("shards", [True], indirect=True)
async def test_refused_bodies_leave_no_memory_behind(shards: ServedShards) -> None:
    (owner,), (app,) = shards.owners, shards.apps
    refused = [mutant for mutant in mutants(2, 1500) if await post(app, *mutant) != 200]
    before = await owner.served()

    async def _round() -> int:
        for mutant in refused:
            assert await post(app, *mutant) != 200, mutant
        # The event loop gets a turn: it drops the timers of ended time limits.
        await asyncio.to_thread(gc.collect)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first = await _round()
        second = await _round()
    finally:
        tracemalloc.stop()
    assert second - first < 100_000
    assert await owner.served() == before


@pytest.fixture
async def wired(shards: ServedShards) -> AsyncIterator[Wire]:
    wired = Wire(shards.listeners[0].base_url)
    yield wired
    await wired.close()


async def test_bodies_over_sockets(wired: Wire) -> None:

    async def _stream(seed: int) -> Counter[int]:
        statuses: Counter[int] = Counter()
        for path, body, kind in mutants(seed, 100):
            status, answer = await wired.post(path, body, content_type=kind)
            statuses[status] += 1
            assert status < 500, (path, body, kind, answer)
        return statuses

    statuses: Counter[int] = sum(await asyncio.gather(*map(_stream, range(4))), Counter())
    assert statuses[400] > 200
    assert (await wired.get(wire.HEALTH))[1]["status"] == "ok"
