"""The listener against its own OpenAPI document, by requests that schemathesis makes from it, over a real socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from memcon.learning.exploration import UcbConfig
from memcon_policy_server import wire
from memcon_policy_server.http.routes import ROUTES
from memcon_policy_server.options import Limits, OwnerOptions
from support.served_policy import ServedShards
from support.wire import TABLE
from support.wire_schema import conforms

pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install 'memcon[dev]'")

TOKEN = "a token of the server"
LIMITS = Limits(max_tables=50, max_keys_per_table=10_000)


@pytest.fixture
def base_url(tmp_path: Path) -> Iterator[str]:
    """A listener in a thread of its own: schemathesis is not asynchronous."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def _start() -> ServedShards:
        options = OwnerOptions(durable_decides=False, limits=LIMITS)
        shards = ServedShards(tmp_path, token=TOKEN, options=options)
        await shards.owners[0].open_table(TABLE, UcbConfig().learning_settings())
        return shards

    shards = asyncio.run_coroutine_threadsafe(_start(), loop).result()
    yield shards.listeners[0].base_url
    asyncio.run_coroutine_threadsafe(shards.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_every_operation_keeps_to_the_document(base_url: str) -> None:
    tried = conforms(base_url, token=TOKEN, max_examples=6)

    # The document's own path is left out by schemathesis.
    assert tried | {wire.OPENAPI} == {route.path for route in ROUTES if not route.gateway_only}
