"""What the serving bench puts under load: our listener and FastAPI + Redis, both really do the job that is counted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from memcon.errors import ConfigError, UnavailableError
from memcon.learning.exploration import UcbConfig
from memcon_platform.bench.contestants import reward_of
from memcon_platform.bench.dialects import MemconDialect, PeerDialect, address_of
from memcon_platform.bench.generator import run_load
from memcon_platform.bench.load import Load, LoadReport, Target
from memcon_platform.bench.peers import fastapi_redis as peer_module
from memcon_platform.bench.peers.fastapi_redis import fastapi_redis
from memcon_platform.bench.server import TABLE, Server, running
from memcon_policy_server.options import OwnerOptions
from memcon_policy_server.wire import UnauthorizedError
from support.counted_time import count_time
from support.served_gateway import TOKEN, LiveServer
from support.served_policy import ServedShards

pytestmark = pytest.mark.usefixtures("counted")

ARMS = UcbConfig().learning_settings().action_ids
LOOSE = OwnerOptions(durable_decides=False)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No load's window goes by while this machine has no time for us."""
    count_time(monkeypatch)


async def put(server: Server, kind: str, first: int = 0, **settings: int) -> LoadReport:
    targets = server.at_shards()
    load = Load(targets=targets, kind=kind, connections=4, seconds=0.3, warmup_s=0.0, first=first, **settings)
    return await asyncio.to_thread(run_load, load)


async def test_every_job_that_is_counted_was_done_by_the_owner_of_its_key(tmp_path: Path) -> None:
    served = ServedShards(tmp_path, 2, token="t" * 64, options=LOOSE)
    settings = UcbConfig().learning_settings()
    for owner in served.owners:
        await owner.open_table(TABLE, settings)
    server = Server(gateway="", shards=tuple(one.base_url for one in served.listeners), token="t" * 64)

    pairs = await put(server, "pair")
    batches = await put(server, "batch", first=1 << 40, batch_size=16)

    assert pairs.errors == batches.errors == {}
    counted = [owner.metrics() for owner in served.owners]
    assert all(one.decisions for one in counted)
    credited = sum(one.outcomes.get("credited", 0) for one in counted)
    # The last jobs end after the measured seconds.
    assert 0 < pairs.jobs <= credited <= pairs.jobs + 4
    assert credited + 16 * batches.jobs <= sum(one.decisions for one in counted) <= credited + 16 * (batches.jobs + 4)
    await served.close()


async def test_a_load_without_the_token_is_all_errors(tmp_path: Path) -> None:
    served = ServedShards(tmp_path, 1, token="t" * 64, options=LOOSE)
    server = Server(gateway="", shards=(served.listeners[0].base_url,), token="wrong")
    report = await put(server, "decide")
    assert report.jobs == 0
    assert set(report.errors) == {"status 401"}
    # A listener is no gateway: it has no shard map.
    with pytest.raises(UnauthorizedError, match="/v1/open_table"):
        await asyncio.to_thread(running, served.listeners[0].base_url, "wrong", UcbConfig().learning_settings())
    await served.close()


async def test_a_server_that_runs_is_found_through_its_gateway_and_gets_the_table(tmp_path: Path) -> None:
    live = LiveServer(tmp_path, 2)
    settings = UcbConfig().learning_settings()
    # Twice: the table is there by then, with equal settings.
    for _ in range(2):
        server = await asyncio.to_thread(running, live.url, TOKEN, settings)
    assert server.shards == tuple(one.base_url for one in live.shards.listeners)
    assert all(owner.metrics().tables == 1 for owner in live.shards.owners)

    load = Load(targets=server.at_gateway(), kind="pair", connections=4, seconds=0.3, warmup_s=0.0)
    report = await asyncio.to_thread(run_load, load)
    assert report.errors == {}
    assert 0 < report.jobs <= sum(owner.metrics().outcomes["credited"] for owner in live.shards.owners)
    await live.stop()


def test_a_url_where_nothing_is_ours_is_one_clear_error() -> None:
    with pytest.raises(UnavailableError, match="is it the gateway of a memcon server"):
        running("http://127.0.0.1:9", None, UcbConfig().learning_settings())
    with pytest.raises(ConfigError, match="such as http://"):
        running("nowhere", None, UcbConfig().learning_settings())


def test_the_afternoons_work_learns_the_best_arm_of_each_context() -> None:
    try:
        with fastapi_redis(appendfsync="everysec") as url, httpx2.Client(base_url=url, trust_env=False) as http:
            chosen = []
            for number in range(300):
                context = number % 3
                arm = http.post("/decide", json={"context": str(context)}).json()["arm"]
                reward = reward_of(context, ARMS.index(arm))
                told = http.post("/outcome", json={"context": str(context), "arm": arm, "reward": reward})
                assert told.json() == {"learned": True}
                chosen.append((context, ARMS.index(arm)))
            under_load = run_load(loaded(url))
    except ConfigError as error:
        pytest.skip(str(error))
    # Nine arms in their order first, as ours.
    assert [arm for context, arm in chosen if context == 0][:9] == list(range(9))
    late = chosen[150:]
    assert sum(arm == context for context, arm in late) / len(late) > 0.5
    assert under_load.jobs > 0
    assert under_load.errors == {}


def loaded(url: str) -> Load:
    host, port = address_of(url)
    target = Target(host=host, port=port, dialect=PeerDialect(url, contexts=20))
    return Load(targets=(target,), kind="pair", connections=4, seconds=0.3, warmup_s=0.0)


def test_a_peer_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="apt-get install redis-server"), fastapi_redis(appendfsync="always"):
        pass
    monkeypatch.setattr(peer_module, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"memcon\[bench\]"), fastapi_redis(appendfsync="always"):
        pass


def test_dialects_ask_about_the_same_share_of_keys() -> None:
    # Both sides of a comparison meet the same contexts in the same order.
    url, keys = "http://127.0.0.1:1", [f"key {number}" for number in range(50)]
    ours, peer = MemconDialect(url, table="t", keys=keys), PeerDialect(url, contexts=50)
    for number in range(1000, 1100):
        key = ours.decide(number).rpartition(b'"key ')[2].partition(b'"')[0]
        assert peer.decide(number).rpartition(b'"context":"')[2].partition(b'"')[0] == key
