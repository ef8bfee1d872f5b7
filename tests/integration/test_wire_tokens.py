"""Outcomes and cancels with tokens that no owner signed: refused by name, at a listener and at the gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memcon.learning.exploration import UcbConfig
from memcon_policy_server import wire
from memcon_policy_server.http.app import HttpApp
from memcon_policy_server.options import OwnerOptions
from support.asgi import post
from support.odd_tokens import odd_tokens
from support.outcome_orders import decide_body, outcome_of
from support.served_gateway import TOKEN, LiveServer
from support.served_policy import ServedShards
from support.wire import TABLE

COUNT = 1_500


@dataclass(slots=True, kw_only=True)
class Place:
    app: HttpApp
    shards: ServedShards

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return await post(self.app, path, json.dumps(body).encode(), "application/json", token=TOKEN)

    def applied(self) -> int:
        """Events so far; a table changes by events only."""
        return sum(owner.metrics().last_seq + owner.metrics().pending for owner in self.shards.owners)


@pytest.fixture(params=["quick", "durable", "gateway"])
async def place(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    options = OwnerOptions(durable_decides=request.param == "durable")
    if request.param == "gateway":
        server = LiveServer(tmp_path, options=options)
        await server.open_table(TABLE, UcbConfig().learning_settings())
        yield Place(app=server.app, shards=server.shards)
        await server.stop()
        return
    shards = ServedShards(tmp_path, token=TOKEN, options=options)
    await shards.owners[0].open_table(TABLE, UcbConfig().learning_settings())
    yield Place(app=shards.apps[0], shards=shards)
    await shards.close()


async def test_no_token_but_the_signed_one_is_taken(place: Place) -> None:
    _, reply = await place.post(wire.DECIDE, decide_body("d"))
    outcome = outcome_of(reply)
    before = place.applied()

    for number, token in enumerate(odd_tokens(1, COUNT, reply["token"])):
        if number % 2:
            status, answer = await place.post(wire.OUTCOME, {**outcome, "token": token})
        else:
            status, answer = await place.post(wire.CANCEL, {"decision_id": "d", "token": token})
        assert (status, answer["error"]) == (404, "not_found"), (token, answer)

    assert place.applied() == before
    assert (await place.post(wire.OUTCOME, outcome))[1]["status"] == "credited"


async def test_one_odd_token_does_not_touch_the_others_of_its_batch(place: Place) -> None:
    for index, token in enumerate(odd_tokens(2, 100, (await place.post(wire.DECIDE, decide_body("x")))[1]["token"])):
        _, reply = await place.post(wire.DECIDE, decide_body(f"d{index}"))
        odd = {**outcome_of(reply), "token": token}

        status, answer = await place.post(wire.OUTCOMES, {"outcomes": [odd, outcome_of(reply), odd]})

        assert status == 200, (token, answer)
        words = [item.get("status", item.get("error")) for item in answer["replies"]]
        assert words == ["not_found", "credited", "not_found"], (token, answer)
