"""The listener over a real socket: strict bodies, stated status codes, and no change of a table by a bad request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from memcon import codec
from memcon.learning.exploration import UcbConfig
from memcon.testing.policy import state_keys
from memcon_policy_server import wire
from memcon_policy_server.listener import MAX_BODY_BYTES, MAX_IMPORT_BYTES
from support.served_policy import ServedShards

DECIDE: dict[str, Any] = {
    "table": "table",
    "decision_id": "d",
    "episode_id": "e",
    "position": 0,
    "keys": ["key"],
    "draw": 2**64 - 1,
}
(KEY,) = state_keys(1)
ROW: dict[str, Any] = {"q": (0.75).hex(), "taken": 2, "credited": 2, "squares": (1.0).hex()}
IMPORT: dict[str, Any] = {"table": "table", "source": "an earlier run", "numbers": {KEY: {"noop": ROW}}}
ARMS = UcbConfig().learning_settings().action_ids
OUTCOME: dict[str, Any] = {"decision_id": "d", "token": "", "reward": 1.0, "position": 0, "num_decisions": 1}


class Wire:
    def __init__(self, base_url: str) -> None:
        self._http = httpx2.AsyncClient(trust_env=False, base_url=base_url)

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = await self._http.post(path, content=content, headers=headers)
        return response.status_code, response.json()

    async def get(self, path: str) -> tuple[int, dict[str, Any]]:
        response = await self._http.get(path)
        return response.status_code, response.json()

    async def close(self) -> None:
        await self._http.aclose()


@pytest.fixture
async def shards(tmp_path: Path) -> AsyncIterator[ServedShards]:
    shards = ServedShards(tmp_path)
    yield shards
    await shards.close()


@pytest.fixture
async def wired(shards: ServedShards) -> AsyncIterator[Wire]:
    wired = Wire((await shards())[0])
    settings = codec.encode(UcbConfig().learning_settings())
    assert await wired.post(wire.OPEN_TABLE, {"table": "table", "settings": settings}) == (200, {})
    yield wired
    await wired.close()


async def test_a_decision_and_its_outcome_in_plain_json(wired: Wire) -> None:
    status, decision = await wired.post(wire.DECIDE, DECIDE)
    assert (status, decision["action_id"], decision["propensity"]) == (200, "retrieve_shallow", 1.0)

    credited = await wired.post(wire.OUTCOMES, {"outcomes": [{**OUTCOME, "token": decision["token"]}]})
    assert credited == (200, {"replies": [{"decision_id": "d", "status": "credited", "credit": 1.0}]})

    _, health = await wired.get(wire.HEALTH)
    assert (health["status"], health["shard"], health["epoch"], health["last_seq"]) == ("ok", 0, 1, 3)
    _, served = await wired.get(wire.TABLES)
    assert served["tables"]["table"]["numbers"]["keys"]["key"]["retrieve_shallow"]["credited"] == 1


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        (wire.DECIDE, b"{", "truncated"),
        (wire.DECIDE, b"\xff", "malformed"),
        (wire.DECIDE, b"[]", "Expected `object`"),
        (wire.DECIDE, {**DECIDE, "tabel": "x"}, "tabel"),
        (wire.DECIDE, {key: DECIDE[key] for key in DECIDE if key != "draw"}, "draw"),
        (wire.DECIDE, {**DECIDE, "position": -1}, "$.position"),
        (wire.DECIDE, {**DECIDE, "position": 1.5}, "$.position"),
        (wire.DECIDE, {**DECIDE, "draw": 2**64}, "draw"),
        (wire.DECIDE, {**DECIDE, "draw": -1}, "draw"),
        (wire.DECIDE, {**DECIDE, "keys": []}, "$.keys"),
        (wire.DECIDE, {**DECIDE, "keys": [1]}, "$.keys"),
        (wire.DECIDE, {**DECIDE, "allowed": ["sing"]}, "sing"),
        (wire.DECIDE, {**DECIDE, "episode_id": ""}, "episode_id"),
        (wire.OUTCOMES, {"outcomes": [{**OUTCOME, "reward": "1"}]}, "reward"),
        (wire.OUTCOMES, b'{"outcomes":[{"decision_id":"d","token":"","reward":NaN}]}', "invalid"),
        (wire.OUTCOMES, b'{"outcomes":[{"decision_id":"d","token":"","reward":1e999}]}', "reward"),
        (wire.OUTCOMES, {"outcomes": [{**OUTCOME, "num_decisions": 0}]}, "num_decisions"),
        (wire.OUTCOMES, {"outcomes": [{**OUTCOME, "reward": 1e300}]}, "reward"),
        (wire.OPEN_TABLE, {"table": "t", "settings": {}}, "rule"),
        (wire.CANCEL_EPISODE, {"table": "table"}, "episode_id"),
        (wire.IMPORT_TABLE, {**IMPORT, "cap": 20}, "cap"),
        (wire.IMPORT_TABLE, {**IMPORT, "source": ""}, "source"),
        (wire.IMPORT_TABLE, {**IMPORT, "numbers": {KEY: {"noop": {**ROW, "credited": -1}}}}, "$.numbers[...]"),
        (wire.IMPORT_TABLE, {**IMPORT, "numbers": {KEY: {"noop": {**ROW, "q": 0.5}}}}, "$.numbers[...]"),
        (wire.IMPORT_TABLE, {**IMPORT, "numbers": {KEY: {"noop": {**ROW, "q": "inf"}}}}, "finite"),
        (wire.IMPORT_TABLE, {**IMPORT, "numbers": {"key": {"noop": ROW}}}, "key"),
    ],
)
async def test_a_bad_body_is_refused_with_its_field_named(
    shards: ServedShards, wired: Wire, path: str, body: Any, named: str
) -> None:
    before = await shards.owners[0].served()

    status, answer = await wired.post(path, body)

    assert status == 400
    assert named in answer["message"]
    assert await shards.owners[0].served() == before


async def test_refusals_have_stated_codes(wired: Wire) -> None:
    other = codec.encode(UcbConfig(alpha=0.5).learning_settings())
    assert (await wired.post(wire.OPEN_TABLE, {"table": "table", "settings": other}))[0] == 409
    assert (await wired.post(wire.DECIDE, {**DECIDE, "table": "none"}))[0] == 404
    assert (await wired.post(wire.OUTCOMES, {"outcomes": [OUTCOME]}))[0] == 404
    assert (await wired.post("/v1/decied", DECIDE))[0] == 404
    assert (await wired.get(wire.DECIDE))[0] == 404
    status, answer = await wired.post(wire.DECIDE, DECIDE, **{wire.SHARD_HEADER: "1/2"})
    assert (status, answer["error"]) == (421, "moved")


async def test_a_body_over_the_limit_is_refused_and_the_connection_lives(wired: Wire) -> None:
    status, answer = await wired.post(wire.DECIDE, b" " * (MAX_BODY_BYTES + 1))
    assert (status, answer["error"]) == (413, "too_large")
    assert (await wired.post(wire.DECIDE, DECIDE))[0] == 200


async def test_a_whole_table_may_be_over_the_limit_of_other_requests(wired: Wire) -> None:
    keys = state_keys(1200)
    body = json.dumps({**IMPORT, "numbers": {key: dict.fromkeys(ARMS, ROW) for key in keys}}).encode()
    assert len(body) > MAX_BODY_BYTES

    assert await wired.post(wire.IMPORT_TABLE, body) == (200, {})

    status, decision = await wired.post(wire.DECIDE, {**DECIDE, "keys": [keys[-1]], "explain": True})
    assert status == 200
    assert {(arm["q"], arm["taken"]) for arm in decision["per_arm"].values()} == {(0.75, 2.0)}
    status, answer = await wired.post(wire.IMPORT_TABLE, b" " * (MAX_IMPORT_BYTES + 1))
    assert (status, answer["error"]) == (413, "too_large")


async def test_an_owner_that_cannot_commit_answers_500_and_nothing_else_after(
    shards: ServedShards, wired: Wire
) -> None:
    def refuse(_: object) -> int:
        raise OSError("gone")

    shards.owners[0]._journal.append = refuse  # type: ignore[method-assign,assignment]

    for _ in range(2):
        status, answer = await wired.post(wire.DECIDE, DECIDE)
        assert (status, answer["error"]) == (500, "fault")
    assert (await wired.get(wire.HEALTH))[1]["status"] == "failed"


async def test_many_requests_at_once_are_all_answered(wired: Wire) -> None:
    answers = await asyncio.gather(
        *(wired.post(wire.DECIDE, {**DECIDE, "decision_id": f"d{n}", "episode_id": f"e{n}"}) for n in range(200))
    )

    assert {status for status, _ in answers} == {200}
    assert sorted(answer["received"] for _, answer in answers) == list(range(1, 201))
