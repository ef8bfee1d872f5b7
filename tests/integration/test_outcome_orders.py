"""Outcomes in every order and state, over HTTP, at a listener and at the gateway: each has its stated answer."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from memcon.learning.events import Credited, Decided
from memcon.learning.exploration import UcbConfig
from memcon.seeds import SeedTree
from memcon_policy_server import wire
from memcon_policy_server.journal.fold import folded
from memcon_policy_server.options import OwnerOptions
from support.journals import events_of
from support.outcome_orders import CASES, KEY, OrderCase, World, asked, decide_body, outcome_of
from support.policy_reference import PaperPolicy
from support.served_gateway import TOKEN, LiveServer
from support.served_policy import ServedShards
from support.wire import OPEN, TABLE, Wire

DOCS = Path(__file__).resolve().parents[2] / "docs" / "serving.md"
SETTINGS = UcbConfig().learning_settings()
EXPIRY = {
    "never": OwnerOptions(durable_decides=False),
    "lost": OwnerOptions(durable_decides=False, expire_after_s=0.05),
    "default": OwnerOptions(durable_decides=False, expire_after_s=0.05, default_reward=-1.0),
}
Opened = Callable[..., Awaitable[World]]


@pytest.fixture(params=["listener", "gateway"])
async def opened(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Opened]:
    """Starts a server, once."""
    stops: list[Callable[[], Awaitable[None]]] = []

    async def _open(options: OwnerOptions = EXPIRY["never"]) -> World:
        if request.param == "gateway":
            server = LiveServer(tmp_path, options=options)
            url, num_shards, stop = server.url, 2, server.stop
        else:
            shards = ServedShards(tmp_path, token=TOKEN, options=options)
            url, num_shards, stop = shards.listeners[0].base_url, 1, shards.close
        client = Wire(url, token=TOKEN)
        stops.extend([client.close, stop])
        world = World(wire=client, base_url=url, bearer=TOKEN, directory=tmp_path, num_shards=num_shards)
        assert await client.post(wire.OPEN_TABLE, OPEN) == (200, {})
        return world

    yield _open
    for stop in stops:
        await stop()


def learned(table: dict[str, Any]) -> int:
    arms = [arm for key in table["numbers"]["keys"].values() for arm in key.values()]
    return sum(arm["credited"] for arm in arms)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what.replace(" ", "-"))
async def test_each_outcome_has_its_stated_answer(opened: Opened, case: OrderCase) -> None:
    world = await opened(EXPIRY[case.expiry])
    outcome = await case.prepare(world)
    before = await world.table()

    assert await world.tell(outcome) == case.answer

    after = await world.table()
    assert learned(after) - learned(before) == case.learned
    if not case.learned:
        assert after["numbers"] == before["numbers"]
    if case.answer.startswith("4"):
        assert after == before
    # In a batch it is answered alike; what was taken by now is a duplicate.
    again = "duplicate" if case.answer.startswith("2") else case.answer.partition(" ")[2]
    assert await world.tell_all(outcome, outcome) == [again, again]
    assert await world.table() == after


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "1e300", "-1000001", "null", '"1"', "true"]
)
async def test_a_reward_that_is_no_number_of_an_episode_is_refused_by_name(opened: Opened, number: str) -> None:
    world = await opened()
    outcome = outcome_of(await world.decide())
    before = await world.table()
    body = json.dumps({**outcome, "reward": "@"}).replace('"@"', number).encode()

    assert await world.tell(body) == "400 rejected"
    # One that has not the form of the wire takes its whole batch along.
    status, answer = await world.wire.post(
        wire.OUTCOMES, b'{"outcomes":[%b,%b]}' % (json.dumps(outcome).encode(), body)
    )
    assert (status, answer["error"]) == (400, "rejected")

    assert await world.table() == before
    assert await world.tell(outcome) == "200 credited"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e300])
async def test_so_is_one_in_msgpack(opened: Opened, number: float) -> None:
    world = await opened()
    outcome = outcome_of(await world.decide())
    before = await world.table()

    for field in ("reward", "cost"):
        body = {**outcome, field: number}
        status, answer = await world.wire.post(wire.OUTCOME, body, content_type="application/msgpack")
        assert (status, answer["error"], f"$.{field}" in answer["message"]) == (400, "rejected", True)
    assert await world.table() == before


async def test_a_cancel_has_its_stated_answers(opened: Opened) -> None:
    world = await opened()
    told, taken_back = await world.decide("told"), await world.decide("taken back")
    assert await world.tell(outcome_of(told)) == "200 credited"

    assert await world.cancel(told) == "409 conflict"
    assert await world.cancel(taken_back) == "200 True"
    assert await world.cancel(taken_back) == "200 False"
    assert await world.cancel(world.signed()) == "200 False"
    assert await world.cancel({**told, "token": ""}) == "404 not_found"
    assert await world.cancel({**told, "decision_id": "taken back"}) == "409 conflict"
    # An unknown decision that was cancelled may have been taken: its outcome still counts.
    assert await world.tell(outcome_of(world.signed())) == "200 recovered"


async def test_a_decide_that_is_repeated_has_one_answer_until_its_outcome_came(opened: Opened) -> None:
    world = await opened()
    reader, writer = await asked(world, "d")
    reply = await world.decide("d")
    assert await world.tell(outcome_of(reply)) == "200 credited"

    first = await reader.readuntil(b"}")
    writer.close()

    assert json.loads(first.partition(b"\r\n\r\n")[2]) == reply
    status, answer = await world.wire.post(wire.DECIDE, decide_body("d"))
    assert (status, answer["error"]) == (409, "conflict")
    assert "already credited" in answer["message"]


async def test_of_an_outcome_and_a_cancel_at_once_one_counts(opened: Opened) -> None:
    world = await opened()
    replies = [await world.decide(f"d{n}") for n in range(40)]

    answers = await asyncio.gather(
        *(asyncio.gather(world.tell(outcome_of(reply)), world.cancel(reply)) for reply in replies[::2]),
        *(asyncio.gather(world.cancel(reply), world.tell(outcome_of(reply))) for reply in replies[1::2]),
    )

    ends = Counter("/".join(sorted(pair)) for pair in answers)
    assert set(ends) <= {"200 credited/409 conflict", "200 True/409 conflict"}, ends
    table = await world.table()
    arms = table["numbers"]["keys"][KEY].values()
    assert [arm["taken"] for arm in arms] == [arm["credited"] for arm in arms]
    assert learned(table) == ends["200 credited/409 conflict"]


def test_the_documentation_states_these_answers() -> None:
    section = DOCS.read_text().partition("### How an outcome is answered\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| (.*?) \| (\d{3} `\w+`) \|", section, flags=re.MULTILINE)

    assert dict(rows) == {case.what: _documented(case.answer) for case in CASES} | {
        "with NaN, infinity, or a reward beyond 1e6": "400 `rejected`"
    }


def _documented(answer: str) -> str:
    status, _, word = answer.partition(" ")
    return f"{status} `{word}`"


# --- many at once ----------------------------------------------------------------------------------------------------


async def test_shuffled_and_doubled_outcomes_count_once_each(opened: Opened, tmp_path: Path) -> None:
    world = await opened()
    replies = [await world.decide(f"d{n}", keys=[f"key {n % 5}"]) for n in range(80)]
    tree = SeedTree(("orders", 1)).generator()
    outcomes = [outcome_of(reply, reward=tree.choice((-0.5, 1.0, 1.15))) for reply in replies]
    letters = [outcome for outcome in outcomes for _ in range(3)]
    tree.shuffle(letters)
    taken: Counter[str] = Counter()

    async def _tell(mine: list[dict[str, Any]]) -> None:
        for index in range(0, len(mine), 4):
            alone, *rest = mine[index : index + 4]
            answers = [(await world.tell(alone)).partition(" ")[2], *await world.tell_all(*rest)]
            taken.update(answers)

    await asyncio.gather(*(_tell(letters[place::8]) for place in range(8)))

    assert taken == {"credited": 80, "duplicate": 160}
    table = await world.table()
    assert table["open"] == {}
    assert _values(table) == _by_paper(tmp_path, world.num_shards)
    for shard in range(world.num_shards):
        keys = folded(tmp_path, shard, world.num_shards)[0].dump(TABLE)["numbers"]["keys"]
        assert all(table["numbers"]["keys"][key] == row for key, row in keys.items())


def _values(table: dict[str, Any]) -> dict[str, dict[str, float]]:
    keys = table["numbers"]["keys"]
    return {key: {arm: float.fromhex(row["q"]) for arm, row in arms.items()} for key, arms in keys.items()}


def _by_paper(directory: Path, num_shards: int) -> dict[str, dict[str, float]]:
    """The values that the order of the journal gives."""
    paper = PaperPolicy()
    chosen: dict[str, tuple[str, str]] = {}
    for event in events_of(directory, num_shards):
        if isinstance(event, Credited):
            key, arm = chosen.pop(event.decision_id)
            paper.returns[key].append((arm, event.reward))
        elif isinstance(event, Decided):
            chosen[event.decision_id] = event.keys[0], event.action_id
    assert not chosen
    return {key: {arm: paper.value(key, arm) for arm in SETTINGS.action_ids} for key in paper.returns}
