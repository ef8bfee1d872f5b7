"""Bytes of many requests on one connection, cut anywhere: answered in order, by the short way and by ASGI alike."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memcon.learning.exploration import UcbConfig
from memcon.seeds import SeedTree
from memcon_policy_server import wire
from memcon_policy_server.options import OwnerOptions
from support.outcome_orders import decide_body
from support.served_gateway import TOKEN, LiveServer
from support.served_policy import ServedShards
from support.wire import TABLE, said

NUM_REQUESTS = 40
HEAD = f"host: x\r\nauthorization: Bearer {TOKEN}\r\n"


@pytest.fixture(params=["quick", "durable", "gateway"])
async def url(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    options = OwnerOptions(durable_decides=request.param == "durable")
    server = LiveServer(tmp_path, 1, options=options) if request.param == "gateway" else None
    shards = server.shards if server else ServedShards(tmp_path, token=TOKEN, options=options)
    await shards.owners[0].open_table(TABLE, UcbConfig().learning_settings())
    yield server.url if server else shards.listeners[0].base_url
    await (server.stop() if server else shards.close())


def post(body: bytes, more: str = "") -> bytes:
    return f"POST {wire.DECIDE} HTTP/1.1\r\n{HEAD}{more}content-length: {len(body)}\r\n\r\n".encode() + body


def sequence() -> tuple[bytes, list[str]]:
    """Requests of three kinds, and what each is answered."""
    chance = SeedTree(("pipelined",)).generator()
    data, expected = b"", []
    for number in range(NUM_REQUESTS):
        kind = chance.randrange(4)
        if kind == 0:
            data += f"GET {wire.HEALTH} HTTP/1.1\r\n{HEAD}\r\n".encode()
            expected.append("health")
        elif kind == 1:
            data += post(b"{")
            expected.append("400")
        else:
            data += post(json.dumps(decide_body(f"d{number}")).encode())
            expected.append(f"d{number}")
    return data, expected


@pytest.mark.parametrize("piece", [7, 100, 1000, 1 << 20])
async def test_each_is_answered_in_its_place(url: str, piece: int) -> None:
    data, expected = sequence()
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    for at in range(0, len(data), piece):
        writer.write(data[at : at + piece])
        await writer.drain()
    answers = [await _answer(reader) for _ in expected]

    assert answers == expected
    writer.close()


async def _answer(reader: asyncio.StreamReader) -> str:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None, head
    body = json.loads(await reader.readexactly(int(length[1])))
    if head.startswith(b"HTTP/1.1 200"):
        return str(body.get("decision_id", "health"))
    return head.split()[1].decode()


async def test_an_offer_to_upgrade_is_answered_and_decides_nothing(url: str) -> None:
    offer = "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"
    answer = await said(url, post(json.dumps(decide_body("d")).encode(), offer))
    assert answer.startswith(b"HTTP/1.1 400 ")
    # No part of it was taken for a decide, nor for the next request.
    table = await said(url, f"GET {wire.TABLES}?table={TABLE} HTTP/1.1\r\n{HEAD}\r\n".encode())
    assert b'"open":{}' in table
