"""The HTTP client finds owners that moved, waits for those that are away, and never counts twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from memcon.errors import StorageError, UnavailableError
from memcon.learning.exploration import UcbConfig
from memcon.testing.policy import decide_request, outcome_request
from memcon_policy_server.client.http import HttpPolicyClient
from memcon_policy_server.sharding import shard_of_keys
from support.served_policy import ServedShards

SETTINGS = UcbConfig().learning_settings()


@pytest.fixture
async def shards(tmp_path: Path) -> AsyncIterator[ServedShards]:
    shards = ServedShards(tmp_path, 2)
    yield shards
    await shards.close()


@pytest.fixture
async def client(shards: ServedShards) -> AsyncIterator[HttpPolicyClient]:
    client = shards.client()
    await client.open_table("table", SETTINGS)
    yield client
    await client.close()


async def test_the_shard_map_is_read_once_while_all_is_well(shards: ServedShards, client: HttpPolicyClient) -> None:
    await asyncio.gather(*(client.decide(decide_request(n, key=f"key {n}")) for n in range(20)))

    assert shards.asked == 1


async def test_a_client_finds_an_owner_that_came_back_elsewhere(shards: ServedShards, client: HttpPolicyClient) -> None:
    decisions = [await client.decide(decide_request(n, key=f"key {n}")) for n in range(8)]
    for shard in range(2):
        await shards.kill(shard)
        shards.revive(shard)

    again = [await client.decide(decide_request(n, key=f"key {n}")) for n in range(8)]
    replies = await client.outcomes([outcome_request(decision, 1.0) for decision in decisions])

    assert again == decisions
    assert {decision.shard for decision in decisions} == {0, 1}
    assert [reply.status for reply in replies] == ["credited"] * 8


async def test_a_client_waits_for_an_owner_that_is_away(shards: ServedShards, client: HttpPolicyClient) -> None:
    await shards.kill(0)
    away = asyncio.Event()

    async def shard_map() -> Sequence[str]:
        away.set()
        return await ServedShards.__call__(shards)

    waiting = HttpPolicyClient(shard_map, patience_s=20.0)
    key = next(key for key in map(str, range(100)) if shard_of_keys("table", (key,), 2) == 0)
    decided = asyncio.create_task(waiting.decide(decide_request(1, key=key)))
    await away.wait()
    assert not decided.done()

    shards.revive(0)

    assert (await decided).action_id == "retrieve_shallow"
    await waiting.close()


async def test_a_client_whose_map_is_of_other_shards_asks_again(shards: ServedShards, client: HttpPolicyClient) -> None:
    urls = await shards()
    maps = iter([list(reversed(urls)), urls])

    async def shard_map() -> Sequence[str]:
        return next(maps)

    lost = HttpPolicyClient(shard_map, patience_s=10.0)
    decision = await lost.decide(decide_request(1))

    assert decision.shard == shard_of_keys("table", ("key",), 2)
    await lost.close()


async def test_an_answer_that_was_lost_is_given_again_and_counted_once(
    shards: ServedShards, client: HttpPolicyClient
) -> None:
    decision = await client.decide(decide_request(1))
    await client.outcomes([outcome_request(decision, 1.0)])
    # The owner committed, and died before its reply arrived.
    for shard in range(2):
        await shards.kill(shard)
        shards.revive(shard)

    [again] = await client.outcomes([outcome_request(decision, 1.0)])

    assert (again.status, again.credit) == ("duplicate", 1.0)


@pytest.mark.parametrize("reason", ["no map", "nobody listens"])
async def test_patience_ends_with_an_error_that_says_so(reason: str) -> None:
    async def shard_map() -> Sequence[str]:
        if reason == "no map":
            raise UnavailableError("no shard map")
        return ["http://127.0.0.1:1"]

    client = HttpPolicyClient(shard_map, patience_s=0.1)

    with pytest.raises(UnavailableError, match=r"did not answer within 0\.1 s"):
        await client.decide(decide_request(1))
    await client.close()


async def test_a_failed_owner_makes_its_clients_wait_not_fail(shards: ServedShards, client: HttpPolicyClient) -> None:
    for owner in shards.owners:
        owner._fail(StorageError("disk full"))
    impatient = shards.client(patience_s=0.1)

    with pytest.raises(UnavailableError, match="disk full"):
        await impatient.decide(decide_request(1))
    await impatient.close()


async def test_a_closed_client_stops_waiting(shards: ServedShards, client: HttpPolicyClient) -> None:
    for shard in range(2):
        await shards.kill(shard)
    patient = shards.client(patience_s=1000.0)
    asked = shards.asked
    decided = asyncio.create_task(patient.decide(decide_request(1)))
    while shards.asked < asked + 3:
        await asyncio.wait([decided], timeout=0.01)

    await patient.close()

    with pytest.raises(UnavailableError, match="closed"):
        await decided
    with pytest.raises(UnavailableError, match="closed"):
        await patient.decide(decide_request(2))


def test_the_client_needs_neither_ray_nor_numpy_nor_the_server() -> None:
    program = (
        "import sys; import memcon_policy_server.client.http; "
        "print(sorted({'ray', 'numpy', 'sqlalchemy', 'uvicorn', 'msgspec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
