"""Decides that are answered at once, past ASGI: same answers, same order, and the long way where it must be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from memcon.learning.exploration import UcbConfig
from memcon_policy_server import wire
from memcon_policy_server.http import protocol
from memcon_policy_server.http.protocol import MAX_HEAD_BYTES, QuickProtocol
from memcon_policy_server.options import Limits, OwnerOptions
from memcon_policy_server.owner import group_commit
from support.owners import HandClock, eventually
from support.served_policy import ServedShards
from support.wire import DECIDE, OUTCOME, TABLE, said


def request(body: Any, *, path: str = wire.DECIDE, version: str = "1.1", headers: str = "") -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/{version}\r\nhost: x\r\ncontent-length: {len(content)}\r\n{headers}\r\n"
    return head.encode() + content


def decide(number: int) -> dict[str, Any]:
    return {**DECIDE, "decision_id": f"d{number}", "episode_id": f"e{number}"}


def bodies(answer: bytes) -> list[tuple[int, Any]]:
    """Status and reply of each response in `answer`."""
    found = []
    while answer:
        head, _, answer = answer.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines[1:])
        assert b"date" in headers
        size = int(headers[b"content-length"])
        found.append((int(lines[0].split()[1]), json.loads(answer[:size])))
        answer = answer[size:]
    return found


@pytest.fixture
async def shards(tmp_path: Path) -> AsyncIterator[ServedShards]:
    limits = Limits(max_batch=4)
    # An owner that has not seen its journal for a second answers the long way only.
    shards = ServedShards(tmp_path, options=OwnerOptions(durable_decides=False, limits=limits), clock=HandClock())
    await shards.owners[0].open_table(TABLE, UcbConfig().learning_settings())
    yield shards
    await shards.close()


async def _no(_: Any) -> object:
    raise AssertionError("went through ASGI")


async def test_a_decide_goes_the_short_way_and_gives_what_the_long_one_gives(shards: ServedShards) -> None:
    (app,) = shards.apps
    url = shards.listeners[0].base_url
    requests = [{**decide(number), "keys": [f"key{number % 3}"], "explain": number == 7} for number in range(40)]
    long_way, app.endpoints[wire.DECIDE].handler = app.endpoints[wire.DECIDE].handler, _no
    short = [bodies(await said(url, request(body)))[0] for body in requests]

    app.endpoints[wire.DECIDE].handler = long_way
    app.quick.clear()

    # The same ids again have the same answers.
    assert [bodies(await said(url, request(body)))[0] for body in requests] == short
    assert {status for status, _ in short} == {200}
    assert app.answered[wire.DECIDE, 200] == 80


async def test_requests_sent_together_are_answered_in_their_order(shards: ServedShards) -> None:
    cancel = request({"table": TABLE, "episode_id": "e1"}, path=wire.CANCEL_EPISODE)
    last = request(decide(3), headers="connection: close\r\n")
    parts = b"".join([request(decide(0)), request(decide(1)), cancel, request(decide(1)), request(decide(2)), last])

    answers = bodies(await said(shards.listeners[0].base_url, parts, until_closed=True))

    # The episode was cancelled between the two decides of its one decision.
    assert [status for status, _ in answers] == [200, 200, 200, 409, 200, 200]
    assert answers[2][1] == {"cancelled": 1}
    assert [answers[index][1]["decision_id"] for index in (0, 1, 4, 5)] == ["d0", "d1", "d2", "d3"]


async def test_answers_that_wait_for_the_disk_keep_their_place(shards: ServedShards) -> None:
    url = shards.listeners[0].base_url
    answers = bodies(await said(url, request(decide(0))))
    outcome = {**OUTCOME, "decision_id": "d0", "token": answers[0][1]["token"]}
    parts = [
        request(outcome, path=wire.OUTCOME),
        request(decide(1)),
        request({"outcomes": [outcome]}, path=wire.OUTCOMES),
        request({"decides": [decide(1)] * 5}, path=wire.DECIDE_BATCH),
        request({**outcome, "reward": 0.25}, path=wire.OUTCOME),
        request(decide(2), headers="connection: close\r\n"),
    ]

    answers = bodies(await said(url, b"".join(parts), until_closed=True))

    assert [status for status, _ in answers] == [200, 200, 200, 413, 409, 200]
    assert answers[0][1]["status"] == "credited"
    assert answers[2][1]["replies"][0]["status"] == "duplicate"
    assert [answers[index][1]["decision_id"] for index in (1, 5)] == ["d1", "d2"]


@pytest.mark.parametrize("odd", [b"\0", b"no request\r\n\r\n", b"POST /v1/decide HTTP/1.1\r\n:\r\n\r\n"])
async def test_a_request_is_answered_though_no_http_follows_it(shards: ServedShards, odd: bytes) -> None:
    url = shards.listeners[0].base_url
    [(_, reply)] = bodies(await said(url, request(decide(0))))
    outcome = {**OUTCOME, "decision_id": "d0", "token": reply["token"]}
    told = [request(outcome, path=wire.OUTCOME), request({"outcomes": [outcome]}, path=wire.OUTCOMES)]

    answers = bodies(await said(url, b"".join(told) + odd, until_closed=True))

    # Neither was told that it is refused: both are in the table.
    assert [status for status, _ in answers] == [200, 200]
    assert answers[0][1]["status"] == "credited"


async def test_a_body_that_is_no_http_is_refused_in_its_turn(shards: ServedShards) -> None:
    url = shards.listeners[0].base_url
    broken = f"POST {wire.DECIDE} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nno number\r\n".encode()
    _, go_on = await _held(shards, wire.DECIDE_BATCH)
    asking = asyncio.create_task(
        said(url, request({"decides": [decide(0)]}, path=wire.DECIDE_BATCH) + broken, until_closed=True)
    )
    connections = cast("set[QuickProtocol]", shards.listeners[0]._server.server_state.connections)
    await eventually(lambda: [connection for connection in connections if connection.pipeline])
    go_on.set()

    assert [status for status, _ in bodies(await asking)] == [200, 400]


async def _held(shards: ServedShards, path: str) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold the handler of `path` back: the events are its arrival and its going on."""
    endpoint = shards.apps[0].endpoints[path]
    arrived, go_on, handler = asyncio.Event(), asyncio.Event(), endpoint.handler

    async def _later(message: Any) -> object:
        arrived.set()
        await go_on.wait()
        return await handler(message)

    endpoint.handler = _later
    # As of an owner whose decides are durable.
    shards.apps[0].quick_later(path)
    return arrived, go_on


async def test_a_client_that_goes_away_takes_nothing_along(shards: ServedShards) -> None:
    url = shards.listeners[0].base_url
    arrived, go_on = await _held(shards, wire.DECIDE_BATCH)
    host, port = url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(request({"decides": [decide(0)]}, path=wire.DECIDE_BATCH))
    await arrived.wait()

    writer.close()
    await writer.wait_closed()
    go_on.set()

    ((status, reply),) = bodies(await said(url, request(decide(0))))
    assert (status, reply["received"]) == (200, 1)


async def test_draining_lets_a_waiting_answer_finish(shards: ServedShards) -> None:
    url = shards.listeners[0].base_url
    arrived, go_on = await _held(shards, wire.DECIDE_BATCH)
    asking = asyncio.create_task(
        said(url, request({"decides": [decide(0)]}, path=wire.DECIDE_BATCH), until_closed=True)
    )
    await arrived.wait()

    stopping = asyncio.create_task(shards.listeners[0].stop())
    await asyncio.wait({stopping}, timeout=0.3)
    assert not stopping.done()
    go_on.set()

    answer = await asking
    await stopping
    ((status, reply),) = bodies(answer)
    assert (status, reply["replies"][0]["decision_id"]) == (200, "d0")
    assert b"connection: close" in answer


async def test_a_waiting_answer_that_takes_too_long_is_given_up(shards: ServedShards) -> None:
    shards.apps[0].limits.request_timeout_s = 0.1
    await _held(shards, wire.OUTCOME)

    ((status, answer),) = bodies(await said(shards.listeners[0].base_url, request(OUTCOME, path=wire.OUTCOME)))

    assert (status, answer["error"]) == (503, "unavailable")


async def test_a_request_may_come_in_pieces(shards: ServedShards) -> None:
    host, port = shards.listeners[0].base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for number, cut in enumerate((1, 30, -1, -40)):
        data = request(decide(number))
        for piece in (data[:cut], data[cut:]):
            writer.write(piece)
            await writer.drain()
            # Nothing to wait for between the pieces: a turn of the event loop sends each by itself.
            await asyncio.wait({asyncio.create_task(asyncio.to_thread(int))})
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        assert json.loads(await reader.readexactly(size))["decision_id"] == f"d{number}"
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("version", "headers"), [("1.0", ""), ("1.1", "connection: close\r\n"), ("1.1", "connection: upgrade, close\r\n")]
)
async def test_a_connection_that_is_not_kept_is_closed_after_its_answer(
    shards: ServedShards, version: str, headers: str
) -> None:
    answer = await said(
        shards.listeners[0].base_url, request(decide(0), version=version, headers=headers), until_closed=True
    )

    ((status, reply),) = bodies(answer)
    assert (status, reply["decision_id"]) == (200, "d0")
    assert b"connection: close" in answer


async def test_a_client_that_asks_first_is_told_to_go_on(shards: ServedShards) -> None:
    data = request(decide(0), headers="expect: 100-continue\r\nconnection: close\r\n")

    answer = await said(shards.listeners[0].base_url, data, until_closed=True)

    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


async def test_an_owner_that_cannot_keep_up_lets_decides_wait_for_the_disk(
    shards: ServedShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One pending event is too much now; nothing is written by itself before it is asked for.
    monkeypatch.setattr(group_commit, "MAX_PENDING", 0)
    owner = shards.owners[0]
    url = shards.listeners[0].base_url

    answers = bodies(
        await said(
            url,
            request(decide(0)) + request(decide(1)) + request(decide(2), headers="connection: close\r\n"),
            until_closed=True,
        )
    )

    assert [status for status, _ in answers] == [200, 200, 200]
    assert owner.metrics().last_seq >= 2


async def test_a_refused_decide_is_told_and_counted_once(shards: ServedShards) -> None:
    (app,) = shards.apps
    url = shards.listeners[0].base_url
    await said(url, request(decide(0)))
    refused = [{**decide(0), "episode_id": "another"}, {**DECIDE, "table": "none"}, {**decide(1), "allowed": ["sing"]}]
    short = [bodies(await said(url, request(body)))[0] for body in refused]

    assert [(status, answer["error"]) for status, answer in short] == [
        (409, "conflict"),
        (404, "not_found"),
        (400, "invalid"),
    ]
    assert (shards.owners[0].metrics().conflicts, app.answered[wire.DECIDE, 409]) == (1, 1)
    app.quick.clear()
    assert [bodies(await said(url, request(body)))[0] for body in refused] == short


async def test_many_requests_in_one_piece_are_no_long_head(shards: ServedShards) -> None:
    listener = shards.listeners[0]
    host, port = listener.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    connections = listener._server.server_state.connections
    await eventually(lambda: connections)
    many = b"".join(request(decide(number)) for number in range(600))
    last = request(decide(600), headers="connection: close\r\n")
    assert len(many) > MAX_HEAD_BYTES

    # As a socket with a large buffer gives it, the head of the last one not whole.
    [connection] = connections
    connection.data_received(many + last[:40])
    writer.write(last[40:])

    assert len(bodies(await reader.read())) == 601
    writer.close()
    await writer.wait_closed()


async def test_a_decide_without_the_form_of_the_wire_is_told_by_the_long_way(shards: ServedShards) -> None:
    for body, status in (({**DECIDE, "position": -1}, 400), ([], 400)):
        ((found, answer),) = bodies(await said(shards.listeners[0].base_url, request(body)))
        assert (found, sorted(answer)) == (status, ["error", "message"])


async def test_a_head_that_is_known_is_read_no_more_and_gives_the_same_answers(shards: ServedShards) -> None:
    (app,) = shards.apps
    reader, writer = await _connection(shards)
    # The same length each.
    asked = [request(decide(number)) for number in range(10, 16)]
    first = await _exchange(reader, writer, asked[0])
    head = asked[0].partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    assert app.heads == {head: (wire.DECIDE.encode(), len(asked[0]) - len(head))}

    known = [await _exchange(reader, writer, one) for one in asked]
    writer.close()
    await writer.wait_closed()
    app.heads.clear()
    read = [bodies(await said(shards.listeners[0].base_url, one))[0] for one in asked]

    assert [known[0], *known] == [first, *read]
    assert {status for status, _ in read} == {200}
    assert app.answered[wire.DECIDE, 200] == 13


async def test_a_known_head_before_anything_but_its_whole_body_is_parsed(shards: ServedShards) -> None:
    (app,) = shards.apps
    reader, writer = await _connection(shards)
    whole = request(decide(10))
    await _exchange(reader, writer, whole)
    assert len(app.heads) == 1

    # Less than the body at first.
    writer.write(whole[:-5])
    await asyncio.wait({asyncio.create_task(asyncio.to_thread(int))})
    assert await _exchange(reader, writer, whole[-5:]) == await _exchange(reader, writer, whole)
    # Another request behind it.
    writer.write(request(decide(11)) + request(decide(12)))
    assert [(await _next(reader))[1]["decision_id"] for _ in range(2)] == ["d11", "d12"]
    # A body of another form, under the head that is known.
    broken = whole.replace(b'"table"', b'"tables')
    assert (await _exchange(reader, writer, broken))[0] == 400
    assert (await _exchange(reader, writer, whole))[0] == 200
    app.draining = True
    assert (await _exchange(reader, writer, whole))[0] == 503
    writer.close()
    await writer.wait_closed()


async def test_only_plain_heads_that_stand_alone_are_known_and_not_too_many(
    shards: ServedShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    (app,) = shards.apps
    url = shards.listeners[0].base_url
    whole = request(decide(10))
    for other in (
        request(decide(10), headers="connection: close\r\n"),
        request(decide(10), headers="accept: application/msgpack\r\n"),
        request(decide(10), headers="memcon-shard: 7/9\r\n"),
        request(decide(10), headers=f"x: {'y' * 2000}\r\n"),
        request({"table": TABLE, "episode_id": "e1"}, path=wire.CANCEL_EPISODE),
        whole + request(decide(11), version="1.0"),
    ):
        await said(url, other)
    assert app.heads == {}

    monkeypatch.setattr(protocol, "_MOST_HEADS", 3)
    for number in range(7):
        await said(url, request({**decide(10), "keys": ["k" * (1 + number)], "decision_id": f"other {number}"}))
    assert len(app.heads) == 1


async def _connection(shards: ServedShards) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = shards.listeners[0].base_url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def _next(reader: asyncio.StreamReader) -> tuple[int, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return bodies(head + await reader.readexactly(length))[0]


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> tuple[int, Any]:
    writer.write(data)
    return await _next(reader)
