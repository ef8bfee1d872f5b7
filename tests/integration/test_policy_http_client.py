"""The HTTP client finds owners that moved, waits for those that are away, and never counts twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from memcon.errors import ConflictError, NotFoundError, StorageError, UnavailableError
from memcon.learning.exploration import UcbConfig
from memcon.policy_types import CancelRequest, DecideReply, OutcomeReply
from memcon.testing.policy import decide_request, outcome_request
from memcon_policy_server import wire
from memcon_policy_server.client.http import HttpPolicyClient
from memcon_policy_server.shard_map import ShardAddress, ShardMap
from memcon_policy_server.sharding import shard_of_keys
from support.served_policy import ServedShards

SETTINGS = UcbConfig().learning_settings()


@pytest.fixture
async def shards(tmp_path: Path) -> AsyncIterator[ServedShards]:
    shards = ServedShards(tmp_path, 2)
    yield shards
    await shards.close()


def requests_answered(shards: ServedShards) -> Counter[tuple[str, int]]:
    return sum((app.answered for app in shards.apps), Counter())


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

    async def shard_map() -> ShardMap:
        away.set()
        return await shards()

    waiting = HttpPolicyClient(shard_map, patience_s=20.0)
    key = next(key for key in map(str, range(100)) if shard_of_keys("table", (key,), 2) == 0)
    decided = asyncio.create_task(waiting.decide(decide_request(1, key=key)))
    await away.wait()
    assert not decided.done()

    shards.revive(0)

    assert (await decided).action_id == "retrieve_shallow"
    await waiting.close()


async def test_a_client_whose_map_is_of_other_shards_asks_again(shards: ServedShards, client: HttpPolicyClient) -> None:
    right = await shards()
    maps = iter([ShardMap(shards=right.shards[::-1]), right])

    async def shard_map() -> ShardMap:
        return next(maps)

    lost = HttpPolicyClient(shard_map, patience_s=10.0)
    decision = await lost.decide(decide_request(1))

    assert decision.shard == shard_of_keys("table", ("key",), 2)
    await lost.close()


async def test_streams_of_one_process_share_requests_and_each_gets_its_own_answer(
    shards: ServedShards, client: HttpPolicyClient
) -> None:
    await client.decide(decide_request(0, key="key 0", episode_id="cancelled"))
    await client.cancel_episode("table", "cancelled")
    requests = [decide_request(n, key=f"key {n % 5}") for n in range(1, 200)]
    requests.append(decide_request(200, key="key 0", episode_id="cancelled"))
    before = sum(requests_answered(shards).values())

    replies = await asyncio.gather(*(client.decide(request) for request in requests), return_exceptions=True)

    assert isinstance(replies[-1], ConflictError)
    decided = [reply for reply in replies if isinstance(reply, DecideReply)]
    assert [reply.decision_id for reply in decided] == [request.decision_id for request in requests[:-1]]
    # One batch a shard.
    assert sum(requests_answered(shards).values()) - before == 2
    assert requests_answered(shards)[wire.DECIDE_BATCH, 200] == 2


async def test_a_batch_gives_what_single_decides_give(shards: ServedShards, tmp_path: Path) -> None:
    others = ServedShards(tmp_path / "others", 2)
    together, alone = shards.client(), others.client()
    requests = [decide_request(n, key=f"key {n % 3}", draw=n * 2**56) for n in range(60)]
    for client in (together, alone):
        await client.open_table("table", SETTINGS)

    batch = await asyncio.gather(*(together.decide(request) for request in requests))
    single = [await alone.decide(request) for request in requests]

    assert [replace(reply, token="") for reply in batch] == [replace(reply, token="") for reply in single]
    for client in (together, alone):
        await client.close()
    await others.close()


async def test_each_outcome_of_many_has_its_own_answer(shards: ServedShards, client: HttpPolicyClient) -> None:
    decisions = [await client.decide(decide_request(n, key=f"key {n}")) for n in range(6)]
    await client.outcomes([outcome_request(decisions[0], 1.0)])
    asked = [outcome_request(decision, 0.5) for decision in decisions]
    asked[3] = replace(asked[3], token="forged")

    answers = await client.outcomes_each(asked)

    assert isinstance(answers[0], ConflictError)
    assert isinstance(answers[3], NotFoundError)
    assert [type(answers[n]) for n in (1, 2, 4, 5)] == [OutcomeReply] * 4


async def test_a_cancel_finds_the_owner_and_may_be_repeated(shards: ServedShards, client: HttpPolicyClient) -> None:
    decisions = [await client.decide(decide_request(n, key=f"key {n}")) for n in range(8)]
    asked = [CancelRequest(decision_id=item.decision_id, token=item.token) for item in decisions]
    assert {item.shard for item in decisions} == {0, 1}

    assert [await client.cancel(request) for request in asked] == [True] * 8
    assert [await client.cancel(request) for request in asked] == [False] * 8


async def test_a_wrong_token_is_an_error_at_once(tmp_path: Path) -> None:
    shards = ServedShards(tmp_path, 1, token="the right one")
    client, stranger = shards.client(), HttpPolicyClient(shards, token="a wrong one", patience_s=20.0)
    await client.open_table("table", SETTINGS)

    with pytest.raises(wire.UnauthorizedError, match="no valid token"):
        await asyncio.wait_for(stranger.decide(decide_request(1)), timeout=10.0)

    for opened in (client, stranger):
        await opened.close()
    await shards.close()


async def test_a_server_of_another_folder_is_not_taken_for_the_old_one(
    shards: ServedShards, client: HttpPolicyClient
) -> None:
    sizes = iter([2, 1])

    async def shard_map() -> ShardMap:
        return ShardMap(shards=(ShardAddress(url="http://127.0.0.1:1", epoch=1),) * next(sizes, 1))

    confused = HttpPolicyClient(shard_map, patience_s=0.3)

    with pytest.raises(UnavailableError, match="has 1 shards now, it had 2"):
        await confused.decide(decide_request(1))
    await confused.close()


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
    async def shard_map() -> ShardMap:
        if reason == "no map":
            raise UnavailableError("no shard map")
        return ShardMap(shards=(ShardAddress(url="http://127.0.0.1:1", epoch=1),))

    client = HttpPolicyClient(shard_map, patience_s=0.1)

    with pytest.raises(UnavailableError, match=r"did not answer within 0\.1 s"):
        await client.decide(decide_request(1))
    await client.close()


async def test_a_failed_owner_makes_its_clients_wait_not_fail(shards: ServedShards, client: HttpPolicyClient) -> None:
    for owner in shards.owners:
        owner._commits.fail(StorageError("disk full"))
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


@pytest.mark.parametrize("module", ["client", "client.http"])
def test_the_client_needs_neither_ray_nor_numpy_nor_the_server(module: str) -> None:
    program = (
        f"import sys; import memcon_policy_server.{module}; "
        "print(sorted({'ray', 'numpy', 'sqlalchemy', 'uvicorn', 'msgspec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
