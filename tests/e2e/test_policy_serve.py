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

from memcon.errors import DamagedFileError
from memcon.learning.exploration import UcbConfig
from memcon.testing.policy import decide_request, outcome_request
from memcon_platform.replay import verify
from memcon_policy_server import wire
from memcon_policy_server.client.http import HttpPolicyClient, ServedClientFactory
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.secret import load_token
from memcon_policy_server.sharding import journal_path, shard_of_keys

if TYPE_CHECKING:
    from memcon_policy_server.serving.deployments import ServedPolicy

pytestmark = [
    pytest.mark.ray,
    pytest.mark.fault,
    pytest.mark.timeout(180),
    # Serve's modules warn while they are imported, hence the imports inside; Ray leaves sockets to its exit hooks.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture
def served(cluster: None, tmp_path: Path) -> ServedPolicy:
    from memcon_policy_server.serving.deployments import start_policy

    return start_policy(tmp_path / "policy", 2, f"memcon-{tmp_path.name}")


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


async def scenario(served: ServedPolicy, directory: Path) -> list[str]:
    # As a worker gets it: through pickle, which the token must not pass.
    factory = pickle.dumps(ServedClientFactory(shard_map=served.shard_map, directory=directory, patience_s=60.0))
    assert load_token(directory).encode() not in factory
    client = pickle.loads(factory)()
    await client.open_table("table", UcbConfig().learning_settings())
    open_before_kill = await client.decide(decide_request(1000, key=key_of_shard(0)))
    arms = await play(client, 0, 10)
    before = (await served.shard_map()).shards

    os.kill(await owner_pid(before[0].url), signal.SIGKILL)
    arms += await play(client, 10, 20)

    assert await client.decide(decide_request(1000, key=key_of_shard(0))) == open_before_kill
    [late] = await client.outcomes([outcome_request(open_before_kill, 1.0)])
    assert late.status == "credited"
    after = (await served.shard_map()).shards
    assert after[0].url != before[0].url
    assert after[0].epoch == before[0].epoch + 1
    assert after[1] == before[1]
    await client.close()
    return arms


def test_a_killed_shard_comes_back_and_its_clients_carry_on(served: ServedPolicy, tmp_path: Path) -> None:
    arms = asyncio.run(scenario(served, tmp_path / "policy"))
    served.stop()

    assert len(arms) == 30
    report = verify(tmp_path)
    assert report.problems == ()
    # created twice; 31 decisions and their outcomes, the kill notwithstanding, once each.
    assert (report.shards, report.tables, report.events) == (2, 1, 2 + 31 * 2)


async def fenced(served: ServedPolicy, directory: Path) -> tuple[str, str]:
    client = HttpPolicyClient(served.shard_map, token=load_token(directory), patience_s=60.0)
    await client.open_table("table", UcbConfig().learning_settings())
    first = await client.decide(decide_request(1, key=key_of_shard(1)))
    before = await owner_pid((await served.shard_map()).shards[1].url)
    intruder = SqliteJournal(journal_path(directory, 1), shard=1, num_shards=2)
    assert intruder.claim() == 2
    intruder.close()

    second = await client.decide(decide_request(2, key=key_of_shard(1)))

    assert await owner_pid((await served.shard_map()).shards[1].url) != before
    await client.close()
    return first.action_id, second.action_id


def test_a_replaced_owner_ends_its_process_and_a_new_one_takes_over(served: ServedPolicy, tmp_path: Path) -> None:
    arms = asyncio.run(fenced(served, tmp_path / "policy"))
    served.stop()

    assert arms == ("retrieve_shallow", "retrieve_medium")
    assert verify(tmp_path).problems == ()


@pytest.mark.usefixtures("cluster")
def test_a_damaged_journal_is_one_clear_error_before_anything_starts(tmp_path: Path) -> None:
    from memcon_policy_server.serving.deployments import start_policy

    (tmp_path / "secret").write_text("00" * 32)
    (tmp_path / "shard-0.sqlite").write_bytes(b"no database at all " * 400)

    with pytest.raises(DamagedFileError, match="not a database"):
        start_policy(tmp_path, 1, "memcon-damaged")
