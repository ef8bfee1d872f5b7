"""The served policy on a real Ray cluster: two shards, one of them killed, nothing lost."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from memcon.learning.exploration import UcbConfig
from memcon.testing.policy import decide_request, outcome_request
from memcon_platform.replay import verify
from memcon_policy_server import wire
from memcon_policy_server.client.http import HttpPolicyClient, ServedClientFactory
from memcon_policy_server.sharding import shard_of_keys

if TYPE_CHECKING:
    from memcon_policy_server.deployments import ServedPolicy

pytestmark = [
    pytest.mark.ray,
    pytest.mark.fault,
    pytest.mark.timeout(180),
    # Serve's modules warn while they are imported, hence the imports inside; Ray leaves sockets to its exit hooks.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedPolicy]:
    ray = pytest.importorskip("ray")
    from memcon_policy_server.deployments import start_policy

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        yield start_policy(tmp_path / "policy", 2, "memcon-test")
    finally:
        ray.shutdown()


def key_of_shard(shard: int) -> str:
    return next(key for key in map("key {}".format, range(100)) if shard_of_keys("table", (key,), 2) == shard)


async def owner_pid(base_url: str) -> int:
    async with httpx2.AsyncClient(trust_env=False) as http:
        return int((await http.get(base_url + wire.HEALTH)).json()["pid"])


async def play(client: HttpPolicyClient, first: int, count: int) -> list[str]:
    """Decide and credit at a key of each shard in turn; returns the arms."""
    arms = []
    for number in range(first, first + count):
        decision = await client.decide(decide_request(number, key=key_of_shard(number % 2)))
        arms.append(decision.action_id)
        [reply] = await client.outcomes([outcome_request(decision, 1.0 if number % 3 else -0.5)])
        assert reply.status == "credited"
    return arms


async def scenario(served: ServedPolicy) -> list[str]:
    # As a worker gets it: through pickle.
    client = pickle.loads(pickle.dumps(ServedClientFactory(shard_map=served.shard_map, patience_s=60.0)))()
    await client.open_table("table", UcbConfig().learning_settings())
    open_before_kill = await client.decide(decide_request(1000, key=key_of_shard(0)))
    arms = await play(client, 0, 10)
    urls = await served.shard_map()

    os.kill(await owner_pid(urls[0]), signal.SIGKILL)
    arms += await play(client, 10, 20)

    assert await client.decide(decide_request(1000, key=key_of_shard(0))) == open_before_kill
    [late] = await client.outcomes([outcome_request(open_before_kill, 1.0)])
    assert late.status == "credited"
    after = await served.shard_map()
    assert after[0] != urls[0]
    assert after[1] == urls[1]
    await client.close()
    return arms


def test_a_killed_shard_comes_back_and_its_clients_carry_on(served: ServedPolicy, tmp_path: Path) -> None:
    arms = asyncio.run(scenario(served))
    served.stop()

    assert len(arms) == 30
    report = verify(tmp_path)
    assert report.problems == ()
    # created twice; 31 decisions and their outcomes, the kill notwithstanding, once each.
    assert (report.shards, report.tables, report.events) == (2, 1, 2 + 31 * 2)
