"""The listener over a real socket: strict bodies, stated status codes, and no change of a table by a bad request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memcon import codec, ids
from memcon.learning.exploration import UcbConfig
from memcon.testing.policy import state_keys
from memcon_policy_server import wire
from memcon_policy_server.options import Limits
from support.served_policy import ServedShards
from support.wire import BAD_JSON, BAD_MSGPACK, DECIDE, IMPORT, OPEN, OUTCOME, ROW, Wire

LIMITS = Limits()
ARMS = UcbConfig().learning_settings().action_ids
PACKED = {"content_type": "application/msgpack"}


@pytest.fixture
async def shards(tmp_path: Path) -> AsyncIterator[ServedShards]:
    shards = ServedShards(tmp_path)
    yield shards
    await shards.close()


@pytest.fixture
async def wired(shards: ServedShards) -> AsyncIterator[Wire]:
    wired = Wire(shards.listeners[0].base_url)
    assert await wired.post(wire.OPEN_TABLE, OPEN) == (200, {})
    yield wired
    await wired.close()


@pytest.mark.parametrize("kind", ["application/json", "application/msgpack"])
async def test_a_decision_and_its_outcome_in_plain_data(wired: Wire, kind: str) -> None:
    status, decision = await wired.post(wire.DECIDE, DECIDE, content_type=kind)
    assert (status, decision["action_id"], decision["propensity"]) == (200, "retrieve_shallow", 1.0)

    credited = await wired.post(wire.OUTCOME, {**OUTCOME, "token": decision["token"]}, content_type=kind)
    assert credited == (200, {"decision_id": "d", "status": "credited", "credit": 1.0})

    _, health = await wired.get(wire.HEALTH)
    assert (health["status"], health["shard"], health["epoch"], health["last_seq"]) == ("ok", 0, 1, 3)
    _, shown = await wired.get(f"{wire.TABLES}?table=table")
    assert shown["last_seq"] == 3
    assert shown["tables"]["table"]["numbers"]["keys"]["key"]["retrieve_shallow"]["credited"] == 1


async def test_the_reply_has_the_form_of_the_request_or_the_one_that_is_accepted(wired: Wire) -> None:
    for sent, accepted, got in (
        ("application/json", "*/*", "application/json"),
        ("application/msgpack", "*/*", "application/msgpack"),
        ("application/json; charset=utf-8", "application/msgpack", "application/msgpack"),
        ("Application/MsgPack", "text/html, application/json;q=0.9", "application/json"),
    ):
        body = json.dumps(DECIDE).encode() if "json" in sent else msgspec.msgpack.encode(DECIDE)
        response = await wired.http.post(wire.DECIDE, content=body, headers={"content-type": sent, "accept": accepted})
        assert (response.status_code, response.headers["content-type"]) == (200, got)


async def test_what_a_decide_leaves_out_is_derived_from_its_id(shards: ServedShards, wired: Wire) -> None:
    status, _ = await wired.post(wire.DECIDE, {"table": "table", "decision_id": "alone", "keys": ["key"]})

    assert status == 200
    (event,) = (await shards.owners[0].served())["tables"]["table"]["open"].values()
    assert (event["episode_id"], event["position"], event["draw"]) == ("alone", 0, ids.draw64("decision", "alone"))


async def test_a_batch_answers_each_in_its_place_and_equals_one_by_one(wired: Wire) -> None:
    decides = [{**DECIDE, "decision_id": f"d{n}", "episode_id": f"e{n}"} for n in range(9)]
    decides.insert(4, {**DECIDE, "table": "none"})

    status, answer = await wired.post(wire.DECIDE_BATCH, {"decides": decides})

    assert status == 200
    refused = answer["replies"].pop(4)
    assert refused["error"] == "not_found"
    assert "none" in refused["message"]
    # Nine first visits of one key in one batch: each saw those before it.
    assert sorted(reply["action_id"] for reply in answer["replies"]) == sorted(ARMS)
    del decides[4]
    singles = [await wired.post(wire.DECIDE, decide) for decide in decides]
    assert [reply for _, reply in singles] == answer["replies"]


async def test_outcomes_have_an_answer_each(wired: Wire) -> None:
    _, decision = await wired.post(wire.DECIDE, DECIDE)
    outcome = {**OUTCOME, "token": decision["token"]}

    status, answer = await wired.post(
        wire.OUTCOMES, {"outcomes": [OUTCOME, outcome, outcome, {**outcome, "reward": 0.5}]}
    )

    assert status == 200
    assert [reply.get("status", reply.get("error")) for reply in answer["replies"]] == [
        "not_found",
        "credited",
        "duplicate",
        "conflict",
    ]
    assert (await wired.post(wire.OUTCOME, {**outcome, "reward": 0.5}))[0] == 409
    assert (await wired.post(wire.CANCEL, {"decision_id": "d", "token": decision["token"]}))[0] == 409


async def test_cancels_and_freezing_say_what_they_changed(wired: Wire) -> None:
    _, decision = await wired.post(wire.DECIDE, DECIDE)
    cancel = {"decision_id": "d", "token": decision["token"]}

    assert await wired.post(wire.CANCEL, cancel) == (200, {"cancelled": True})
    assert await wired.post(wire.CANCEL, cancel) == (200, {"cancelled": False})
    assert (await wired.post(wire.CANCEL, {**cancel, "token": "forged"}))[0] == 404
    await wired.post(wire.DECIDE, {**DECIDE, "decision_id": "d2"})
    episode = {"table": "table", "episode_id": "e"}
    assert await wired.post(wire.CANCEL_EPISODE, episode) == (200, {"cancelled": 1})
    for frozen, changed in ((True, True), (True, False), (False, True)):
        answer = await wired.post(wire.FREEZE_TABLE, {"table": "table", "frozen": frozen})
        assert answer == (200, {"changed": changed})


async def test_tables_are_listed_with_their_sizes_and_shown_one_at_a_time(wired: Wire) -> None:
    await wired.post(wire.DECIDE, DECIDE)

    _, listed = await wired.get(wire.TABLES)

    assert (listed["shard"], listed["num_shards"], list(listed["tables"])) == (0, 1, ["table"])
    table = listed["tables"]["table"]
    assert (table["keys"], table["open"], table["settings"]["rule"]) == (1, 1, "ucb")
    assert (table["taken"], table["credited"]) == (1, 0)
    assert (await wired.get(f"{wire.TABLES}?table=none"))[0] == 404
    status, answer = await wired.get(f"{wire.TABLES}?tabel=table")
    assert (status, answer["error"]) == (400, "rejected")
    assert "tabel" in answer["message"]
    status, answer = await wired.get(f"{wire.TABLES}?key=a")
    assert (status, answer["error"]) == (400, "rejected")
    assert "needs the table of the key" in answer["message"]


@pytest.mark.parametrize(("path", "body", "named"), BAD_JSON)
async def test_a_bad_body_is_refused_with_its_field_named(
    shards: ServedShards, wired: Wire, path: str, body: Any, named: str
) -> None:
    before = await shards.owners[0].served()

    status, answer = await wired.post(path, body)

    assert (status, named in answer["message"]) == (400, True), answer
    assert await shards.owners[0].served() == before


@pytest.mark.parametrize(("path", "body", "named"), BAD_MSGPACK)
async def test_bad_msgpack_is_refused_with_its_field_named(
    shards: ServedShards, wired: Wire, path: str, body: Any, named: str
) -> None:
    before = await shards.owners[0].served()

    status, answer = await wired.post(path, body, **PACKED)

    assert (status, named in answer["message"]) == (400, True), answer
    assert await shards.owners[0].served() == before


async def test_refusals_have_stated_codes(wired: Wire) -> None:
    other = {"table": "table", "settings": codec.encode(UcbConfig(alpha=0.5).learning_settings())}
    assert (await wired.post(wire.OPEN_TABLE, other))[0] == 409
    assert (await wired.post(wire.DECIDE, {**DECIDE, "table": "none"}))[0] == 404
    assert (await wired.post(wire.OUTCOME, OUTCOME))[0] == 404
    status, answer = await wired.post("/v1/decied", DECIDE)
    assert (status, wire.DECIDE in answer["message"]) == (404, True)
    status, answer = await wired.post(wire.DECIDE, DECIDE, **{wire.SHARD_HEADER: "1/2"})
    assert (status, answer["error"]) == (421, "moved")


async def test_a_body_over_the_limit_is_refused_and_the_connection_lives(wired: Wire) -> None:
    status, answer = await wired.post(wire.DECIDE, b" " * (LIMITS.max_body_bytes + 1))
    assert (status, answer["error"]) == (413, "too_large")
    assert (await wired.post(wire.DECIDE, DECIDE))[0] == 200


async def test_a_whole_table_may_be_over_the_limit_of_other_requests(wired: Wire) -> None:
    keys = state_keys(1200)
    body = json.dumps({**IMPORT, "numbers": {key: dict.fromkeys(ARMS, ROW) for key in keys}}).encode()
    assert len(body) > LIMITS.max_body_bytes

    assert await wired.post(wire.IMPORT_TABLE, body) == (200, {})

    status, decision = await wired.post(wire.DECIDE, {**DECIDE, "keys": [keys[-1]], "explain": True})
    assert status == 200
    assert {(arm["q"], arm["taken"]) for arm in decision["per_arm"].values()} == {(0.75, 2.0)}
    status, answer = await wired.post(wire.IMPORT_TABLE, b" " * (LIMITS.max_import_bytes + 1))
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
