"""The gateway over two real owners, without Ray: it answers as an owner does, for all shards at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memcon.learning.exploration import UcbConfig
from memcon_policy_server import wire
from memcon_policy_server.sharding import shard_of_keys
from support.owners import eventually
from support.served_gateway import TOKEN, LiveServer
from support.wire import BAD_JSON, BAD_MSGPACK, IMPORT, OPEN, OUTCOME, TABLE, Wire, said


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    server = LiveServer(tmp_path)
    await server.open_table(TABLE, UcbConfig().learning_settings())
    yield server
    await server.stop()


@pytest.fixture
async def gateway(server: LiveServer) -> AsyncIterator[Wire]:
    client = Wire(server.url, token=TOKEN)
    yield client
    await client.close()


def decide(number: int, *, key: str | None = None) -> dict[str, Any]:
    return {"table": TABLE, "decision_id": f"d{number}", "keys": [key or f"key {number}"]}


def key_of(shard: int) -> str:
    return next(key for key in map("key {}".format, range(100)) if shard_of_keys(TABLE, (key,), 2) == shard)


def outcome(reply: dict[str, Any], reward: float = 1.0) -> dict[str, Any]:
    return {**OUTCOME, "decision_id": reply["decision_id"], "token": reply["token"], "reward": reward}


async def table(gateway: Wire) -> dict[str, Any]:
    status, answer = await gateway.get(f"{wire.TABLES}?table={TABLE}")
    assert status == 200, answer
    found: dict[str, Any] = answer["tables"][TABLE]
    return found


# --- one decision, and some -------------------------------------------------------------------------------------------


async def test_a_decision_and_its_outcome_go_to_the_owner_of_the_key(server: LiveServer, gateway: Wire) -> None:
    for shard in range(2):
        status, reply = await gateway.post(wire.DECIDE, decide(shard, key=key_of(shard)))
        assert (status, reply["shard"], reply["action_id"]) == (200, shard, "retrieve_shallow")
        assert await gateway.post(wire.DECIDE, decide(shard, key=key_of(shard))) == (200, reply)

        assert (await gateway.post(wire.OUTCOME, outcome(reply)))[1]["status"] == "credited"
        assert (await gateway.post(wire.OUTCOME, outcome(reply)))[1]["status"] == "duplicate"
        status, failure = await gateway.post(wire.OUTCOME, outcome(reply, 0.5))
        assert (status, failure["error"]) == (409, "conflict")


async def test_a_batch_is_answered_in_its_order_whatever_shards_it_is_for(gateway: Wire) -> None:
    bad = {**decide(99), "keys": ["finest", "coarsest"]}
    wanted = [*map(decide, range(20)), bad, *map(decide, range(20, 40))]

    _, answer = await gateway.post(wire.DECIDE_BATCH, {"decides": wanted})

    replies = answer["replies"]
    assert [reply.get("decision_id") for reply in replies] == [f"d{n}" for n in range(20)] + [None] + [
        f"d{n}" for n in range(20, 40)
    ]
    assert replies[20]["error"] == "invalid"
    assert {reply["shard"] for reply in replies if "shard" in reply} == {0, 1}

    told = [outcome(reply) for reply in replies if "token" in reply]
    _, answer = await gateway.post(wire.OUTCOMES, {"outcomes": [{**OUTCOME, "token": "forged"}, *told]})
    assert answer["replies"][0]["error"] == "not_found"
    assert {reply["status"] for reply in answer["replies"][1:]} == {"credited"}


async def test_a_batch_over_the_limit_is_refused_whole(server: LiveServer, gateway: Wire) -> None:
    wanted = [decide(number) for number in range(server.app.limits.max_batch + 1)]
    status, failure = await gateway.post(wire.DECIDE_BATCH, {"decides": wanted})
    assert (status, failure["error"]) == (413, "too_large")
    assert (await table(gateway))["open"] == {}


async def test_what_asks_at_once_reaches_an_owner_together(server: LiveServer, gateway: Wire) -> None:
    replies = await asyncio.gather(*(gateway.post(wire.DECIDE, decide(n, key=key_of(0))) for n in range(32)))

    assert {status for status, _ in replies} == {200}
    # The owner's listener counts requests; one that came first goes alone, the others gather behind it.
    asked = sum(server.shards.apps[0].answered.values())
    assert asked < 32
    # Nine arms in order of their priors, each once, before any comes again: one table, whatever the batches were.
    assert len({reply["action_id"] for _, reply in replies if reply["forced"]}) == 9


async def test_connections_that_an_owner_closed_meanwhile_are_no_failed_tries(
    server: LiveServer, gateway: Wire
) -> None:
    batches = [{"decides": [decide(number, key=key_of(0))]} for number in range(20)]
    await asyncio.gather(*(gateway.post(wire.DECIDE_BATCH, batch) for batch in batches))
    kept = server.shards.listeners[0]._server.server_state.connections
    assert len(kept) > 1

    # As the owner does with those on which nothing came for long.
    for connection in [*kept]:
        connection.transport.close()
    await eventually(lambda: not kept)

    assert (await gateway.post(wire.DECIDE, decide(99, key=key_of(0))))[0] == 200
    assert server._transport.last_failure == "no try was made"


async def test_msgpack_is_answered_in_msgpack(gateway: Wire) -> None:
    status, reply = await gateway.post(wire.DECIDE, decide(1), content_type="application/msgpack")
    assert (status, reply["decision_id"]) == (200, "d1")


# --- all shards -------------------------------------------------------------------------------------------------------


async def test_what_is_asked_of_all_shards_is_one_answer(server: LiveServer, gateway: Wire) -> None:
    for number in range(8):
        await gateway.post(wire.DECIDE, {**decide(number), "episode_id": "e"})
    _, listed = await gateway.get(wire.TABLES)
    assert {name: listed["tables"][TABLE][name] for name in ("keys", "open", "version")} == {
        "keys": 8,
        "open": 8,
        # Created at each shard.
        "version": 10,
    }
    whole = await table(gateway)
    assert sorted(whole["numbers"]["keys"]) == sorted(f"key {number}" for number in range(8))
    assert sorted(whole["open"]) == sorted(f"d{number}" for number in range(8))

    cancelled = await gateway.post(wire.CANCEL_EPISODE, {"table": TABLE, "episode_id": "e"})

    assert cancelled == (200, {"cancelled": 8})
    whole = await table(gateway)
    assert whole["open"] == {}
    assert len(whole["closed"]) == 8
    assert whole["closed_episodes"] == ["e"]


async def test_one_decision_is_cancelled_once(gateway: Wire) -> None:
    _, reply = await gateway.post(wire.DECIDE, decide(1))
    taken_back = {"decision_id": "d1", "token": reply["token"]}
    assert await gateway.post(wire.CANCEL, taken_back) == (200, {"cancelled": True})
    assert await gateway.post(wire.CANCEL, taken_back) == (200, {"cancelled": False})


async def test_a_table_is_opened_imported_and_frozen_at_every_shard(server: LiveServer, gateway: Wire) -> None:
    assert await gateway.post(wire.OPEN_TABLE, {**OPEN, "table": "other"}) == (200, {})
    assert await gateway.post(wire.IMPORT_TABLE, {**IMPORT, "table": "other"}) == (200, {})
    frozen = {"table": "other", "frozen": True}
    assert await gateway.post(wire.FREEZE_TABLE, frozen) == (200, {"changed": True})
    assert await gateway.post(wire.FREEZE_TABLE, frozen) == (200, {"changed": False})

    for shard in server.shards.owners:
        assert (await shard.tables())["other"]["settings"]["frozen"] is True
    _, listed = await gateway.get(wire.TABLES)
    assert listed["tables"]["other"]["keys"] == 1


async def test_a_table_that_is_nowhere_is_not_found(gateway: Wire) -> None:
    status, failure = await gateway.get(f"{wire.TABLES}?table=nowhere")
    assert (status, failure["error"]) == (404, "not_found")


async def test_the_shard_map_says_where_the_owners_are(server: LiveServer, gateway: Wire) -> None:
    _, answer = await gateway.get(wire.SHARD_MAP)
    assert [shard["url"] for shard in answer["shards"]] == [item.base_url for item in server.shards.listeners]


async def test_metrics_name_each_family_once_with_the_samples_of_all(gateway: Wire) -> None:
    await gateway.post(wire.DECIDE, decide(1, key=key_of(0)))

    status, page = await gateway.get(wire.METRICS)

    assert status == 200
    families = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    lines = page.splitlines()
    assert 'memcon_decisions_total{shard="0"} 1' in lines
    assert 'memcon_decisions_total{shard="1"} 0' in lines
    assert 'memcon_gateway_decisions_total{gateway="gateway"} 1' in lines


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "body", "named"), BAD_JSON)
async def test_a_bad_body_is_refused_by_name_and_changes_nothing(
    server: LiveServer, gateway: Wire, path: str, body: Any, named: str
) -> None:
    before = await table(gateway)
    status, answer = await gateway.post(path, body)
    items = answer.get("replies", [answer])
    # In a batch it is the item's own.
    assert 400 <= status < 500 or (status == 200 and any("error" in item for item in items)), answer
    assert named in str(answer)
    assert await table(gateway) == before


@pytest.mark.parametrize(("path", "body", "named"), BAD_MSGPACK)
async def test_so_is_a_bad_msgpack_body(server: LiveServer, gateway: Wire, path: str, body: Any, named: str) -> None:
    status, answer = await gateway.post(path, body, content_type="application/msgpack")
    assert status == 400, answer
    assert named in str(answer)


async def test_only_health_metrics_and_the_document_need_no_token(server: LiveServer) -> None:
    stranger = Wire(server.url)
    public = {wire.HEALTH, wire.METRICS, wire.OPENAPI}
    for path in (*public, wire.TABLES, wire.SHARD_MAP, "/v1/nothing"):
        status, _ = await stranger.get(path)
        assert status == (200 if path in public else 401), path
    status, _ = await stranger.post(wire.DECIDE, decide(1))
    assert status == 401
    await stranger.close()


# --- owners that go and come ------------------------------------------------------------------------------------------


async def test_a_request_waits_for_an_owner_that_comes_back_elsewhere(server: LiveServer, gateway: Wire) -> None:
    await gateway.post(wire.DECIDE, decide(1, key=key_of(0)))
    old = server.shards.listeners[0].base_url
    await server.shards.kill(0)
    waiting = asyncio.create_task(gateway.post(wire.DECIDE, decide(2, key=key_of(0))))
    # Shard 1 does not wait for shard 0.
    assert (await gateway.post(wire.DECIDE, decide(3, key=key_of(1))))[0] == 200
    assert not waiting.done()

    server.shards.revive(0)

    status, reply = await waiting
    assert (status, reply["action_id"]) == (200, "retrieve_medium")
    assert server.shards.listeners[0].base_url != old


async def test_a_batch_does_not_wait_for_one_owner_when_the_others_have_answered(
    server: LiveServer, gateway: Wire
) -> None:
    await server.shards.kill(0)
    wanted = [decide(shard, key=key_of(shard)) for shard in (0, 1)]

    status, answer = await gateway.post(wire.DECIDE_BATCH, {"decides": wanted})

    assert status == 200
    away, there = answer["replies"]
    assert (away["error"], there["decision_id"]) == ("unavailable", "d1")
    server.shards.revive(0)
    _, again = await gateway.post(wire.DECIDE_BATCH, {"decides": wanted})
    assert again["replies"][1] == there
    assert again["replies"][0]["decision_id"] == "d0"


async def test_an_owner_that_hangs_takes_neither_health_nor_metrics_of_the_others_along(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, attempt_timeout_s=0.3)
    gateway = Wire(server.url, token=TOKEN)

    go_on = asyncio.Event()

    async def _later(_: object) -> object:
        return await go_on.wait()

    for path in (wire.HEALTH, wire.METRICS):
        server.shards.apps[0].endpoints[path].handler = _later

    status, health = await gateway.get(wire.HEALTH)
    assert (status, health["status"]) == (200, "degraded")
    assert [shard["status"] for shard in health["shards"]] == ["away", "ok"]
    status, page = await gateway.get(wire.METRICS)
    assert (status, 'memcon_up{shard="1"} 1' in page, 'shard="0"' in page) == (200, True, False)
    go_on.set()
    await gateway.close()
    await server.stop()


async def test_an_owner_that_stays_away_is_a_503_that_names_why(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, request_timeout_s=0.3)
    await server.open_table(TABLE, UcbConfig().learning_settings())
    gateway = Wire(server.url, token=TOKEN)
    await server.shards.kill(0)

    status, failure = await gateway.post(wire.DECIDE, decide(1, key=key_of(0)))
    assert (status, failure["error"]) == (503, "unavailable")
    _, health = await gateway.get(wire.HEALTH)
    assert health["status"] == "degraded"
    assert [shard["status"] for shard in health["shards"]] == ["away", "ok"]
    status, page = await gateway.get(wire.METRICS)
    assert (status, 'memcon_up{shard="1"} 1' in page, 'shard="0"' in page) == (200, True, False)

    await server.shards.kill(1)
    assert (await gateway.get(wire.HEALTH))[0] == 503
    await gateway.close()
    await server.stop()


async def test_a_drained_gateway_answers_what_is_open_and_refuses_what_comes(server: LiveServer, gateway: Wire) -> None:
    await server.shards.kill(0)
    waiting = asyncio.create_task(gateway.post(wire.DECIDE, decide(1, key=key_of(0))))
    while not server.app._router.counts.decisions:
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    draining = asyncio.create_task(server.app.drain(10.0))

    answer = await said(server.url, b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n", until_closed=True)
    server.shards.revive(0)
    await draining

    assert b" 503 " in answer.splitlines()[0]
    assert (await waiting)[0] == 200
