"""What stands between a stranger and an owner: token, methods, media types, sizes, times, draining."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from memcon.errors import ConfigError, UnavailableError
from memcon.learning.exploration import UcbConfig
from memcon_policy_server import wire
from memcon_policy_server.http.listener import Listener
from memcon_policy_server.http.protocol import QuickProtocol
from memcon_policy_server.options import Limits, OwnerOptions
from support.owners import eventually
from support.served_policy import ServedShards
from support.wire import DECIDE, OPEN, OUTCOME, TABLE, Wire, said

TOKEN = "a token of the server"
DECIDE_HEAD = b"POST /v1/decide HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a token of the server\r\n"
SMALL = Limits(
    max_body_bytes=4096, max_text_chars=64, max_batch=2, max_keys_per_table=3, max_tables=1, max_connections=20
)
HASTY = Limits(request_timeout_s=0.2)


# Decides that are answered at once do not pass through ASGI: all must hold for both ways.
@pytest.fixture(params=[True, False], ids=["durable", "quick"])
async def shards(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[ServedShards]:
    options = OwnerOptions(durable_decides=request.param, limits=SMALL)
    shards = ServedShards(tmp_path, token=TOKEN, options=options)
    yield shards
    await shards.close()


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[ServedShards]:
    shards = ServedShards(tmp_path, token=TOKEN, options=OwnerOptions(durable_decides=False, limits=HASTY))
    await shards.owners[0].open_table(TABLE, UcbConfig().learning_settings())
    yield shards
    await shards.close()


@pytest.fixture
async def wired(shards: ServedShards) -> AsyncIterator[Wire]:
    wired = Wire(shards.listeners[0].base_url, token=TOKEN)
    assert (await wired.post(wire.OPEN_TABLE, OPEN))[0] == 200
    yield wired
    await wired.close()


async def test_without_the_token_nothing_is_answered(shards: ServedShards, wired: Wire) -> None:
    before = await shards.owners[0].served()
    stranger = Wire(shards.listeners[0].base_url)
    given = [None, "", "Bearer", "Bearer a token", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"{TOKEN}", "Bearer é"]

    for authorization in given:
        headers = {} if authorization is None else {b"authorization": authorization.encode()}
        for method, path in (("POST", wire.DECIDE), ("GET", wire.TABLES), ("GET", "/v1/no"), ("PUT", wire.DECIDE)):
            response = await stranger.http.request(method, path, content=json.dumps(DECIDE), headers=headers)
            assert (response.status_code, response.json()["error"]) == (401, "unauthorized")
            assert response.headers["www-authenticate"].startswith("Bearer")

    await stranger.close()
    assert await shards.owners[0].served() == before


async def test_the_scheme_of_the_token_has_no_case(shards: ServedShards, wired: Wire) -> None:
    stranger = Wire(shards.listeners[0].base_url)
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert (await stranger.post(wire.DECIDE, DECIDE, authorization=f"{scheme} {TOKEN}"))[0] == 200
    await stranger.close()


async def test_health_metrics_and_the_document_need_no_token(shards: ServedShards) -> None:
    stranger = Wire(shards.listeners[0].base_url)
    for path in (wire.HEALTH, wire.METRICS, wire.OPENAPI):
        assert (await stranger.get(path))[0] == 200
    await stranger.close()


async def test_another_method_is_refused_with_the_one_to_use(wired: Wire) -> None:
    for method, path, allow in (
        ("GET", wire.DECIDE, "POST"),
        ("POST", wire.TABLES, "GET"),
        ("HEAD", wire.HEALTH, "GET"),
    ):
        response = await wired.http.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, allow)


async def test_another_media_type_is_refused(wired: Wire) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"):
        status, answer = await wired.post(wire.DECIDE, b"table=x", content_type=kind)
        assert (status, answer["error"]) == (415, "media_type")
        assert "application/json" in answer["message"]


async def test_sizes_are_bounded_and_named(shards: ServedShards, wired: Wire) -> None:
    before = await shards.owners[0].served()
    decides = {"decides": [DECIDE] * 3}
    for path, body, status, named in (
        (wire.DECIDE_BATCH, decides, 413, "a batch of 3, at most 2"),
        (wire.OUTCOMES, {"outcomes": [OUTCOME] * 3}, 413, "a batch of 3, at most 2"),
        (wire.DECIDE, {**DECIDE, "keys": ["x" * 65]}, 400, "$.keys[0]"),
        (wire.DECIDE, {**DECIDE, "episode_id": "x" * 65}, 400, "$.episode_id"),
        (wire.OPEN_TABLE, {**OPEN, "table": "another"}, 409, "max_tables"),
        (wire.DECIDE, b" " * 4097, 413, "4096"),
    ):
        answer = await wired.post(path, body)
        assert (answer[0], named in answer[1]["message"]) == (status, True), answer
    assert await shards.owners[0].served() == before


async def test_a_body_of_unannounced_length_is_bounded_too(shards: ServedShards) -> None:
    chunks = b"".join(b"400\r\n" + b" " * 1024 + b"\r\n" for _ in range(5))

    answer = await said(shards.listeners[0].base_url, DECIDE_HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks)

    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_keys_of_a_table_are_bounded_and_known_ones_still_decide(wired: Wire) -> None:
    async def _decide(name: str, key: str) -> tuple[int, Any]:
        return await wired.post(wire.DECIDE, {"table": "table", "decision_id": name, "keys": [key]})

    assert [(await _decide(f"d{n}", f"key{n}"))[0] for n in range(4)] == [200, 200, 200, 409]
    status, answer = await _decide("e", "another")
    assert (status, answer["error"], "max_keys_per_table" in answer["message"]) == (409, "limit", True)
    assert (await _decide("f", "key0"))[0] == 200


async def test_a_body_that_does_not_come_is_given_up(hasty: ServedShards) -> None:
    answer = await said(hasty.listeners[0].base_url, DECIDE_HEAD + b"content-length: 100\r\n\r\n{", until_closed=True)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer
    assert b"slow_request" in answer


async def test_a_head_that_does_not_come_is_given_up(hasty: ServedShards) -> None:
    answer = await said(hasty.listeners[0].base_url, b"POST /v1/decide HTTP/1.1\r\nhost: x\r\nx-", until_closed=True)

    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_head_without_end_is_refused(shards: ServedShards) -> None:
    head = b"POST /v1/decide HTTP/1.1\r\n" + b"".join(b"x-%d: %s\r\n" % (n, b"y" * 1000) for n in range(600))

    answer = await said(shards.listeners[0].base_url, head, until_closed=True)

    # Not read to its end, so the answer may be lost to a reset.
    assert answer.startswith(b"HTTP/1.1 431 ") or not answer


async def test_what_is_no_http_is_refused_and_the_next_connection_lives(shards: ServedShards, wired: Wire) -> None:
    for data in (b"\x00\x01\x02\r\n\r\n", b"GET /v1/\xff HTTP/1.1\r\n\r\n", b"POST /v1/decide HTTP/9.9\r\n\r\n"):
        answer = await said(shards.listeners[0].base_url, data, until_closed=True)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "rejected"
    assert (await wired.post(wire.DECIDE, DECIDE))[0] == 200


async def test_an_answer_that_takes_too_long_is_given_up(hasty: ServedShards) -> None:
    async def _never(*_: object) -> object:
        return await asyncio.get_running_loop().create_future()

    hasty.owners[0].served = _never  # type: ignore[method-assign,assignment]
    wired = Wire(hasty.listeners[0].base_url, token=TOKEN)

    status, answer = await wired.get(f"{wire.TABLES}?table=table")

    assert (status, answer["error"]) == (503, "unavailable")
    assert "0.2 s" in answer["message"]
    await wired.close()


def _held(command: Callable[..., Awaitable[Any]], arrived: asyncio.Event, go_on: asyncio.Event) -> Any:
    async def _later(*arguments: Any, **keywords: Any) -> Any:
        arrived.set()
        await go_on.wait()
        return await command(*arguments, **keywords)

    return _later


async def test_draining_answers_what_is_open_and_refuses_what_comes(tmp_path: Path) -> None:
    shards = ServedShards(tmp_path, options=OwnerOptions(durable_decides=False))
    owner, listener = shards.owners[0], shards.listeners[0]
    first, second = Wire(listener.base_url), Wire(listener.base_url)
    await first.post(wire.OPEN_TABLE, OPEN)
    assert (await second.post(wire.DECIDE, DECIDE))[0] == 200
    arrived, go_on = asyncio.Event(), asyncio.Event()
    owner.cancel_episode = _held(owner.cancel_episode, arrived, go_on)  # type: ignore[method-assign]

    cancelling = asyncio.create_task(first.post(wire.CANCEL_EPISODE, {"table": "table", "episode_id": "e"}))
    await arrived.wait()
    stopping = asyncio.create_task(listener.stop())
    await asyncio.wait({stopping}, timeout=0.001)
    refused = await second.http.post(wire.DECIDE, json={**DECIDE, "decision_id": "late"})
    go_on.set()

    assert (refused.status_code, refused.headers["connection"]) == (503, "close")
    assert await cancelling == (200, {"cancelled": 1})
    await stopping
    with pytest.raises(ConnectionRefusedError):
        await said(listener.base_url, b"x")
    await first.close()
    await second.close()
    await owner.close()


async def test_a_connection_on_which_nothing_comes_is_closed(hasty: ServedShards) -> None:
    assert await said(hasty.listeners[0].base_url, b"", until_closed=True) == b""


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\r\n", b""),
        # Refused by its head alone; the rest never comes.
        (b"POST /v1/decide HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{", b"HTTP/1.1 401 "),
        (DECIDE_HEAD + b"content-length: 99999999\r\n\r\n{", b"HTTP/1.1 413 "),
    ],
)
async def test_a_connection_on_which_no_whole_request_comes_is_closed(
    hasty: ServedShards, data: bytes, status: bytes
) -> None:
    assert (await said(hasty.listeners[0].base_url, data, until_closed=True)).startswith(status)


async def test_bytes_without_a_request_put_off_the_end_of_a_connection_no_more_than_once(hasty: ServedShards) -> None:
    host, port = hasty.listeners[0].base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    async def _trickle() -> None:
        while True:
            writer.write(b"\r\n")
            await asyncio.wait({closed}, timeout=HASTY.request_timeout_s / 4)

    closed = asyncio.ensure_future(reader.read())
    trickling = asyncio.ensure_future(_trickle())
    # A reset, when a byte comes behind the end.
    await asyncio.wait({closed}, timeout=30.0)
    trickling.cancel()

    assert closed.done()
    assert closed.exception() is not None or closed.result() == b""
    writer.close()


async def test_a_connection_is_kept_when_a_request_comes_whole_after_its_refusal(shards: ServedShards) -> None:
    host, port = shards.listeners[0].base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    await eventually(lambda: shards.listeners[0]._server.server_state.connections)
    (connection,) = shards.listeners[0]._server.server_state.connections
    assert isinstance(connection, QuickProtocol)
    refused = b"POST /v1/decide HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{"

    writer.write(refused)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
    first = connection.timeout_keep_alive_task
    writer.write(b"}")
    await eventually(lambda: connection.timeout_keep_alive_task not in {first, None})

    timer = connection.timeout_keep_alive_task
    assert timer is not None
    assert timer.when() - asyncio.get_running_loop().time() > 10 * shards.options.limits.request_timeout_s
    writer.close()


async def test_connections_are_bounded_and_open_ones_go_on(shards: ServedShards, wired: Wire) -> None:
    url = shards.listeners[0].base_url
    host, port = url.removeprefix("http://").split(":")
    held = [await asyncio.open_connection(host, int(port)) for _ in range(19)]
    connections = shards.listeners[0]._server.server_state.connections
    await eventually(lambda: len(connections) == 20)

    refused = await said(url, b"", until_closed=True)

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b'"error":"unavailable"' in refused
    assert (await wired.post(wire.DECIDE, DECIDE))[0] == 200
    for _, writer in held:
        writer.close()
        await writer.wait_closed()
    await eventually(lambda: len(connections) == 1)
    assert (await said(url, DECIDE_HEAD + b"content-length: 1\r\n\r\n{")).startswith(b"HTTP/1.1 400 ")


async def test_an_error_names_a_long_value_in_part(wired: Wire) -> None:
    for path, body in (
        (wire.DECIDE, {**DECIDE, "z" * 3000: 1}),
        (wire.OPEN_TABLE, {"table": TABLE, "settings": {**OPEN["settings"], "pooling": ["paper"] * 300}}),
        ("/v1/" + "z" * 3000, {}),
    ):
        status, answer = await wired.post(path, body)
        assert 400 <= status < 500
        assert len(answer["message"]) == 2000


async def test_an_error_in_a_batch_names_a_long_value_in_part(hasty: ServedShards) -> None:
    wired = Wire(hasty.listeners[0].base_url, token=TOKEN)
    body = {**DECIDE, "keys": ["k" * 600] * 9}

    _, single = await wired.post(wire.DECIDE, body)
    _, batch = await wired.post(wire.DECIDE_BATCH, {"decides": [body]})

    assert batch["replies"] == [single]
    assert len(single["message"]) == 2000
    await wired.close()


async def test_a_listener_that_ended_by_itself_is_found_and_one_that_was_stopped_is_not(tmp_path: Path) -> None:
    shards = ServedShards(tmp_path, 2)
    ended, stopped = shards.listeners
    ended.check()
    # As when its server is stopped by a bug or a library: nobody asked for it.
    ended._server.should_exit = True
    await asyncio.wait_for(asyncio.shield(ended._task), 10)  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match="ended"):
        ended.check()
    await stopped.stop()
    stopped.check()
    await shards.close()


async def test_a_taken_port_is_named(shards: ServedShards) -> None:
    port = int(shards.listeners[0].base_url.rpartition(":")[2])

    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
        Listener(shards.apps[0], port=port)


async def test_metrics_are_prometheus_text_that_counts_what_happened(wired: Wire) -> None:
    _, decision = await wired.post(wire.DECIDE, DECIDE)
    await wired.post(wire.OUTCOME, {**OUTCOME, "token": decision["token"]})
    await wired.post(wire.OUTCOME, {**OUTCOME, "token": decision["token"]})
    await wired.get("/v1/nothing")

    _, text = await wired.get(wire.METRICS)

    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    shard = ("shard", "0")
    assert samples["memcon_decisions_total", shard] == 1
    assert samples["memcon_outcomes_total", shard, ("status", "credited")] == 1
    assert samples["memcon_outcomes_total", shard, ("status", "duplicate")] == 1
    assert samples["memcon_keys", shard] == 1
    assert samples["memcon_up", shard] == 1
    assert samples["memcon_commit_seconds_count", shard] == samples["memcon_commits_total", shard]
    assert samples["memcon_commit_seconds_bucket", ("le", "+Inf"), shard] == samples["memcon_commits_total", shard]
    assert samples["memcon_http_requests_total", ("path", wire.DECIDE), shard, ("status", "200")] == 1
    assert samples["memcon_http_requests_total", ("path", "other"), shard, ("status", "404")] == 1
