"""A head that the listener knows, and what a client may send before, behind or in place of its body."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from memcon.learning.exploration import UcbConfig
from memcon_policy_server import wire
from memcon_policy_server.http.protocol import QuickProtocol
from memcon_policy_server.options import OwnerOptions
from support.owners import HandClock, eventually
from support.served_policy import ServedShards
from support.wire import DECIDE, TABLE

TOKEN = "t" * 64
BEARER = f"authorization: Bearer {TOKEN}\r\n".encode()
BODY = json.dumps(DECIDE).encode()
LENGTH = b"content-length: %d\r\n" % len(BODY)


def request(*, more: bytes = b"", length: bytes = LENGTH, body: bytes = BODY, version: bytes = b"1.1") -> bytes:
    lines = b"POST %b HTTP/%b\r\nhost: x\r\n" % (wire.DECIDE.encode(), version)
    return lines + BEARER + length + more + b"\r\n" + body


KNOWN = request()
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
CANCEL = b'{"table":"%b","episode_id":"none"}' % TABLE.encode()


@pytest.fixture
async def shards(tmp_path: Path) -> AsyncIterator[ServedShards]:
    # An owner that has not seen its journal for a second answers the long way only.
    shards = ServedShards(tmp_path, token=TOKEN, options=OwnerOptions(durable_decides=False), clock=HandClock())
    await shards.owners[0].open_table(TABLE, UcbConfig().learning_settings())
    yield shards
    await shards.close()


@pytest.mark.parametrize(
    "odd",
    [
        KNOWN.replace(b"t" * 64, b"u" * 64),
        KNOWN.replace(BEARER, b""),
        KNOWN.replace(b"host: x", b"host: elsewhere"),
        request(more=b"expect: 100-continue\r\n"),
        request(more=b"connection: upgrade\r\nupgrade: h2c\r\n"),
        request(more=b"connection: close\r\n") + KNOWN,
        request(version=b"1.0"),
        request(length=b"transfer-encoding: chunked\r\n", body=CHUNKED),
        request(more=b"transfer-encoding: chunked\r\n", body=CHUNKED),
        request(length=LENGTH.replace(b": ", b": +")),
        request(more=LENGTH),
        KNOWN.replace(b"\r\n", b"\n"),
        request(body=BODY[:-4] + b"\r\n\r\n"),
        request(body=BODY[:-1] + b"]"),
        KNOWN[:60],
        KNOWN + b"\r\n",
        KNOWN + KNOWN,
        KNOWN + KNOWN[:60],
        b"\r\n" + KNOWN,
        b"\r\n\r\n",
        request(length=b"content-length: %d\r\n" % len(CANCEL), body=CANCEL).replace(b"/decide ", b"/cancel_episode ")
        + KNOWN,
    ],
)
async def test_whatever_comes_between_known_heads_is_answered_as_if_none_were_known(
    odd: bytes, shards: ServedShards
) -> None:
    pieces = [KNOWN, odd, KNOWN, KNOWN, request(more=b"connection: close\r\n")]
    short = await _said(shards, pieces)
    assert KNOWN[: -len(BODY)] in shards.apps[0].heads
    shards.apps[0].quick.clear()

    # It is the same decision each time.
    assert await _said(shards, pieces) == short
    assert short.startswith(b"HTTP/1.1 200")


async def test_a_body_that_reads_well_before_its_end_is_waited_for(shards: ServedShards) -> None:
    padded = request(length=b"content-length: %d\r\n" % (len(BODY) + 3), body=BODY + b"   ")
    answer = await _said(shards, [padded, padded[:-3], b"   ", padded, request(more=b"connection: close\r\n")])
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"200"] * 4


HEAD = KNOWN[: -len(BODY)]
LAST = request(more=b"connection: close\r\n")


async def test_a_body_that_comes_behind_its_head_is_answered_the_short_way(shards: ServedShards) -> None:
    async def never(_: object) -> object:
        raise AssertionError("went through ASGI")

    shards.apps[0].endpoints[wire.DECIDE].handler = never
    connection, reader, writer = await _connected(shards)
    for _ in range(3):
        connection.data_received(HEAD)
        connection.data_received(BODY)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"}")
    writer.close()
    assert HEAD in shards.apps[0].heads


async def test_a_chunked_body_that_came_with_its_head_is_not_waited_for(shards: ServedShards) -> None:
    connection, _, writer = await _connected(shards)
    connection.data_received(request(length=b"transfer-encoding: chunked\r\n", body=CHUNKED))
    assert shards.apps[0].answered[wire.DECIDE, 200] == 1
    writer.close()


async def test_a_head_whose_body_comes_in_pieces_goes_on(shards: ServedShards) -> None:
    answer = await _said(shards, [HEAD, BODY[:9], BODY[9:], HEAD, BODY, LAST])
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"200"] * 3


async def test_a_head_whose_body_does_not_come_goes_on_alone(shards: ServedShards) -> None:
    connection, reader, writer = await _connected(shards)
    connection.data_received(HEAD)
    await eventually(lambda: not connection._is_between)
    connection.data_received(BODY)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_request_whose_head_has_come_is_answered_by_a_draining_listener(shards: ServedShards) -> None:
    connection, reader, writer = await _connected(shards)
    connection.data_received(HEAD)
    connection.shutdown()
    writer.write(BODY)
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer


async def _said(shards: ServedShards, pieces: list[bytes]) -> bytes:
    """All that is answered to pieces that arrive one by one, without its dates."""
    connection, reader, writer = await _connected(shards)
    for piece in pieces:
        # No transport gives on what comes after its end.
        if not connection.transport.is_closing():
            connection.data_received(piece)
        await eventually(
            lambda: not connection._is_between or connection._is_free() or connection.transport.is_closing()
        )
    answer = await reader.read()
    writer.close()
    return re.sub(rb"date: [^\r]*\r\n", b"", answer)


async def _connected(shards: ServedShards) -> tuple[QuickProtocol, asyncio.StreamReader, asyncio.StreamWriter]:
    """A new connection, seen from both ends."""
    listener = shards.listeners[0]
    host, port = listener.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    connections = listener._server.server_state.connections
    await eventually(lambda: connections)
    [found] = connections
    return cast(QuickProtocol, found), reader, writer
