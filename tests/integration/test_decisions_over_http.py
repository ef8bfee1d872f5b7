"""Decisions over HTTP, at a listener and at the gateway: Eq. 6 as in process, whoever asks, and in what parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memcon import codec
from memcon.learning.exploration import UcbConfig
from memcon.seeds import Generator, SeedTree
from memcon_policy_server import wire
from memcon_policy_server.options import OwnerOptions
from support.outcome_orders import outcome_of
from support.policy_reference import ARM_PRIORS, PaperPolicy
from support.served_gateway import TOKEN, LiveServer
from support.served_policy import ServedShards
from support.wire import Wire

ARMS = list(ARM_PRIORS)
# Arm order breaks ties of the priors (Table 6).
BY_PRIOR = sorted(ARMS, key=lambda arm: (-ARM_PRIORS[arm], ARMS.index(arm)))
REWARDS = (-0.5, 1.0, 1.15)
# Of a reply; the others are of the place where the decision was taken.
CHOSEN = ("decision_id", "action_id", "propensity", "tie_set", "forced")


@dataclass(slots=True, kw_only=True)
class Place:
    """A server, and the one client of most tests."""

    url: str
    wire: Wire

    async def open(self, table: str, config: UcbConfig | None = None) -> None:
        settings = codec.encode((config or UcbConfig()).learning_settings())
        assert await self.wire.post(wire.OPEN_TABLE, {"table": table, "settings": settings}) == (200, {})

    async def decide(self, body: dict[str, Any]) -> dict[str, Any]:
        status, reply = await self.wire.post(wire.DECIDE, body)
        assert status == 200, reply
        found: dict[str, Any] = reply
        return found

    async def numbers(self, table: str) -> dict[str, Any]:
        _, answer = await self.wire.get(f"{wire.TABLES}?table={table}")
        found: dict[str, Any] = answer["tables"][table]["numbers"]["keys"]
        return found


@pytest.fixture(params=["quick", "durable", "gateway"])
async def place(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    options = OwnerOptions(durable_decides=request.param == "durable")
    if request.param == "gateway":
        server = LiveServer(tmp_path, options=options)
        url, stop = server.url, server.stop
    else:
        shards = ServedShards(tmp_path, token=TOKEN, options=options)
        url, stop = shards.listeners[0].base_url, shards.close
    place = Place(url=url, wire=Wire(url, token=TOKEN))
    yield place
    await place.wire.close()
    await stop()


async def test_32_streams_on_a_new_key_begin_with_the_nine_arms_in_prior_order(place: Place) -> None:
    await place.open("t")
    streams = [Wire(place.url, token=TOKEN) for _ in range(32)]
    # All are connected, so that none is late for that.
    await asyncio.gather(*(stream.get(wire.HEALTH) for stream in streams))

    answers = await asyncio.gather(
        *(
            stream.post(wire.DECIDE, {"table": "t", "decision_id": f"d{n}", "keys": ["new"]})
            for n, stream in enumerate(streams)
        )
    )

    assert {status for status, _ in answers} == {200}
    replies = sorted((reply for _, reply in answers), key=lambda reply: reply["received"])
    assert [reply["received"] for reply in replies] == list(range(1, 33))
    assert [reply["action_id"] for reply in replies[:9]] == BY_PRIOR
    assert [reply["forced"] for reply in replies] == [True] * 9 + [False] * 23
    taken = {arm: row["taken"] for arm, row in (await place.numbers("t"))["new"].items()}
    assert sum(taken.values()) == 32
    # What is open counts as in Eq. 6: by then the arms of equal value share what came after.
    assert max(taken.values()) <= 6
    for stream in streams:
        await stream.close()


@pytest.mark.parametrize("history", range(3))
async def test_one_stream_decides_as_the_paper_says(place: Place, history: int) -> None:
    chance = SeedTree(("paper over http", history)).generator()
    c = (1.4, 0.0, 1.2)[history]
    await place.open("t", UcbConfig(c=c))
    paper = PaperPolicy(c=c)
    forced = 0
    for number in range(40):
        reply, key = await _one(place, paper, chance, number)
        forced += reply["forced"]
        reward = chance.choice(REWARDS)
        status, answer = await place.wire.post(wire.OUTCOME, outcome_of(reply, reward=reward))
        assert (status, answer["status"], answer["credit"]) == (200, "credited", reward)
        paper.returns[key].append((reply["action_id"], reward))

    assert forced < 30
    for key, arms in (await place.numbers("t")).items():
        assert {arm: float.fromhex(row["q"]) for arm, row in arms.items()} == {a: paper.value(key, a) for a in ARMS}


async def _one(place: Place, paper: PaperPolicy, chance: Generator, number: int) -> tuple[dict[str, Any], str]:
    """The reply to one decide that was compared with the paper, and its key."""
    key = chance.choice(("k1", "k2"))
    allowed = [arm for arm in ARMS if chance.random() < 0.5] or ["noop"]
    best = paper.best(key, allowed)
    body = {"table": "t", "decision_id": f"d{number}", "keys": [key], "draw": chance.getrandbits(64)}
    reply = await place.decide({**body, "allowed": allowed})
    assert reply["tie_set"] == best
    assert reply["action_id"] in best
    assert reply["propensity"] == 1 / len(best)
    assert reply["forced"] == (reply["action_id"] not in paper.taken[key])
    paper.taken[key].append(reply["action_id"])
    return reply, key


async def test_a_batch_decides_and_learns_as_one_by_one(place: Place) -> None:
    chance = SeedTree(("batch over http",)).generator()
    for table in ("batches", "singles"):
        await place.open(table)
    for block in range(4):
        bodies = [
            {"decision_id": f"d{block}/{n}", "keys": [chance.choice(("a", "b", "c"))], "draw": chance.getrandbits(64)}
            for n in range(32)
        ]
        status, answer = await place.wire.post(
            wire.DECIDE_BATCH, {"decides": [{**body, "table": "batches"} for body in bodies]}
        )
        assert status == 200
        together = answer["replies"]
        alone = [await place.decide({**body, "table": "singles"}) for body in bodies]
        assert [[reply[name] for name in CHOSEN] for reply in together] == [
            [reply[name] for name in CHOSEN] for reply in alone
        ]
        rewards = [chance.choice(REWARDS) for _ in bodies]
        told = [outcome_of(reply, reward=reward) for reply, reward in zip(together, rewards, strict=True)]
        status, answer = await place.wire.post(wire.OUTCOMES, {"outcomes": told})
        assert {reply["status"] for reply in answer["replies"]} == {"credited"}
        for reply, reward in zip(alone, rewards, strict=True):
            assert (await place.wire.post(wire.OUTCOME, outcome_of(reply, reward=reward)))[0] == 200

    assert await place.numbers("batches") == await place.numbers("singles")
