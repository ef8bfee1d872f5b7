"""A live agent gets an answer in time whatever the server does, and what it has told is not lost."""

from __future__ import annotations

import asyncio
import math
import pickle
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from memcon.errors import ConfigError, ConflictError, NotFoundError
from memcon.learning import state_key
from memcon.learning.credit import InvalidOutcomeError
from memcon.learning.exploration import UcbConfig
from memcon.types import StateFeatures
from memcon_policy_server import wire
from memcon_policy_server.client import LivePolicy, SyncPolicy, live
from support.owners import eventually
from support.served_gateway import TOKEN, LiveServer

SETTINGS = UcbConfig().learning_settings()
FEATURES = StateFeatures(
    goal_type="put", step=3, is_stuck=False, objects_held=1, locations_visited=2, memory_size=12,
    plan_available=False, task_number=1,
)  # fmt: skip
NOBODY = "http://127.0.0.1:1"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    server = LiveServer(tmp_path / "policy")
    await server.open_table("table", SETTINGS)
    yield server
    await server.stop()


@pytest.fixture
async def policy(server: LiveServer) -> AsyncIterator[LivePolicy]:
    async with await LivePolicy.connect(server.url, TOKEN, deadline_s=10.0) as policy:
        yield policy


async def served(server: LiveServer) -> dict[str, Any]:
    """What the owners hold of the table, over all shards: key -> arm -> numbers."""
    tables = [(await owner.served())["tables"]["table"] for owner in server.shards.owners]
    return {key: row for table in tables for key, row in table["numbers"]["keys"].items()}


async def delivered(policy: LivePolicy, count: int) -> None:
    async with asyncio.timeout(30.0):
        while (await policy.counters()).delivered < count:
            pass


# --- deciding --------------------------------------------------------------------------------------------------------


async def test_an_agent_decides_from_raw_signals(server: LiveServer, policy: LivePolicy) -> None:
    decision = await policy.decide("table", FEATURES, explain=True)

    assert (decision.action_id, decision.propensity, decision.is_fallback) == ("retrieve_shallow", 1.0, False)
    assert decision.per_arm is not None
    assert list(await served(server)) == [state_key.key_text("paper", FEATURES)]


async def test_keys_may_be_given_as_text(server: LiveServer, policy: LivePolicy) -> None:
    await policy.decide("table", "one key")
    await policy.decide("table", ("another key",))

    assert sorted(await served(server)) == ["another key", "one key"]


async def test_the_same_place_in_an_episode_is_the_same_decision(policy: LivePolicy) -> None:
    first = await policy.decide("table", "key", episode_id="episode", position=1)

    assert await policy.decide("table", "key", episode_id="episode", position=1) == first
    assert (await policy.decide("table", "key", episode_id="episode", position=2)).action_id != first.action_id
    assert (await policy.decide("table", "key")).episode_id != (await policy.decide("table", "key")).episode_id


@pytest.mark.parametrize("reaches_owners", [True, False])
async def test_decisions_go_to_the_owners_or_through_the_gateway(server: LiveServer, reaches_owners: bool) -> None:
    async with await LivePolicy.connect(server.url, TOKEN, deadline_s=10.0, direct=reaches_owners) as policy:
        decisions = [await policy.decide("table", f"key {n}", episode_id=f"e{n}") for n in range(8)]
        for decision in decisions:
            await policy.outcome(decision, 1.0)
        await delivered(policy, 8)

    through_gateway = sum(count for (path, _), count in server.app.answered.items() if path == wire.DECIDE)
    assert through_gateway == (0 if reaches_owners else 8)
    assert len(await served(server)) == 8


@pytest.mark.parametrize(
    ("table", "changes", "error", "message"),
    [
        ("nowhere", {}, NotFoundError, "nowhere"),
        ("table", {"allowed": ["noop", "retreive_deep"]}, ConfigError, "retreive_deep"),
        ("table", {"allowed": ["retrieve_deep"]}, ConfigError, "lacks the fallback arm 'noop'"),
        ("table", {"position": -1}, wire.RejectedError, "position"),
    ],
)
async def test_a_refusal_is_raised_and_no_reason_to_fall_back(
    policy: LivePolicy, table: str, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    for state in ("key", FEATURES):
        with pytest.raises(error, match=message):
            await policy.decide(table, state, **changes)

    assert (await policy.counters()).fallbacks == 0


async def test_a_wrong_token_is_told(server: LiveServer) -> None:
    async with await LivePolicy.connect(server.url, "wrong", deadline_s=10.0) as policy:
        with pytest.raises(wire.UnauthorizedError, match="no valid token"):
            await policy.decide("table", "key")


async def test_the_token_may_stand_in_the_environment(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMCON_TOKEN", TOKEN)
    async with await LivePolicy.connect(server.url + "/", deadline_s=10.0) as policy:
        assert not (await policy.decide("table", "key")).is_fallback


@pytest.mark.parametrize(
    ("url", "changes", "message"),
    [
        ("localhost:8000", {}, "url = 'localhost:8000'"),
        (NOBODY, {"deadline_s": math.nan}, "deadline_s"),
        (NOBODY, {"fallback": ""}, "fallback"),
    ],
)
async def test_a_connection_that_cannot_work_is_refused(url: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await LivePolicy.connect(url, "token", **changes)


# --- without the server ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["key", FEATURES])
async def test_without_a_server_the_fallback_arm_is_played_in_time(state: str | StateFeatures) -> None:
    clock = asyncio.get_running_loop().time
    async with await LivePolicy.connect(NOBODY, "token", fallback="retrieve_deep", deadline_s=0.2) as policy:
        begun = clock()
        decision = await policy.decide("table", state, episode_id="e", position=3)
        took_s = clock() - begun

        assert (decision.action_id, decision.propensity, decision.is_fallback) == ("retrieve_deep", None, True)
        # Not after the ten seconds for which it goes on trying.
        assert took_s < 8.0
        # Nothing of it is ever told.
        await policy.outcome(decision, 1.0, num_decisions=4)
        await policy.cancel(decision)
        counters = await policy.counters()
        assert (counters.decisions, counters.fallbacks, counters.spooled, counters.waiting) == (1, 1, 0, 0)


async def test_an_agent_goes_on_when_the_server_comes_back(server: LiveServer) -> None:
    async with await LivePolicy.connect(server.url, TOKEN, deadline_s=0.3) as policy:
        # Owners and gateway have new processes then, the owners new ports.
        await server.stop()
        assert (await policy.decide("table", "key")).is_fallback
        server.start()

        async with asyncio.timeout(30.0):
            while (await policy.decide("table", "key")).is_fallback:
                pass


async def test_an_agent_that_can_wait_is_not_given_up_for_before_its_deadline(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "DELIVERY_PATIENCE_S", 0.05)
    async with await LivePolicy.connect(server.url, TOKEN, deadline_s=20.0) as policy:
        await server.stop()
        waits = asyncio.create_task(policy.decide("table", "key"))
        await asyncio.wait({waits}, timeout=0.3)
        assert not waits.done()

        server.start()

        assert not (await waits).is_fallback


async def test_outcomes_told_while_the_server_is_away_arrive_later(server: LiveServer, policy: LivePolicy) -> None:
    decisions = [await policy.decide("table", f"key {n}", episode_id=f"e{n}") for n in range(20)]
    await server.stop()

    for decision in decisions:
        await policy.outcome(decision, 1.0)
    assert (await policy.counters()).waiting == 20
    server.start()
    await delivered(policy, 20)

    assert all(row["retrieve_shallow"]["credited"] == 1 for row in (await served(server)).values())
    assert (await policy.counters()).waiting == 0


async def test_a_spool_is_delivered_by_the_next_process(server: LiveServer, tmp_path: Path) -> None:
    spool = tmp_path / "agent.sqlite"
    first = await LivePolicy.connect(server.url, TOKEN, deadline_s=10.0, spool=spool)
    decision = await first.decide("table", "key")
    await server.stop()
    await first.outcome(decision, 1.0)
    await first.close(flush_s=0.05)
    server.start()

    second = await LivePolicy.connect(server.url, TOKEN, spool=spool)
    await delivered(second, 1)
    await second.close()

    assert (await served(server))["key"]["retrieve_shallow"]["credited"] == 1


async def test_a_decision_that_came_too_late_is_taken_back(
    server: LiveServer, policy: LivePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried = await LivePolicy.connect(server.url, TOKEN, deadline_s=10.0)
    # The map is known, so that the decide itself is what is slow.
    assert not (await hurried.decide("table", "warm")).is_fallback
    hurried._deadline_s = 0.2
    release = asyncio.Event()
    for app in server.shards.apps:
        hold(app._owner, release, monkeypatch)

    decision = await hurried.decide("table", "key")
    assert decision.is_fallback
    release.set()
    await eventually(lambda: hurried._delivery.counts.delivered == 1)

    counters = await hurried.counters()
    assert (counters.abandoned, counters.spooled) == (1, 1)
    assert (await served(server)).get("key", {}).get("retrieve_shallow", {"taken": 0})["taken"] == 0
    await hurried.close()


def hold(owner: Any, release: asyncio.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let decides of `owner` wait for `release`, as behind a slow disk."""
    decide = owner.decide

    async def slow(request: Any) -> Any:
        await release.wait()
        return await decide(request)

    monkeypatch.setattr(type(owner), "decides_at_once", property(lambda _: False))
    monkeypatch.setattr(owner, "decide", slow)


# --- outcomes --------------------------------------------------------------------------------------------------------


async def test_an_outcome_is_discounted_by_its_place(server: LiveServer, policy: LivePolicy) -> None:
    decision = await policy.decide("table", "key", episode_id="e", position=0)
    await policy.outcome(decision, 1.0, num_decisions=3, cost=0.01)
    await delivered(policy, 1)

    row = (await served(server))["key"]["retrieve_shallow"]
    assert float.fromhex(row["q"]) == 0.5 + 0.15 * (0.9**2 - 0.01 - 0.5)


async def test_the_outcome_may_be_told_by_another_process(server: LiveServer, policy: LivePolicy) -> None:
    decision = pickle.loads(pickle.dumps(await policy.decide("table", "key")))

    async with await LivePolicy.connect(server.url, TOKEN) as other:
        await other.outcome(decision, 1.0)

    assert (await served(server))["key"]["retrieve_shallow"]["credited"] == 1


async def test_told_twice_counts_once(server: LiveServer, policy: LivePolicy) -> None:
    decision = await policy.decide("table", "key")
    for _ in range(2):
        await policy.outcome(decision, 1.0)
    await delivered(policy, 2)

    assert (await served(server))["key"]["retrieve_shallow"]["credited"] == 1
    assert await policy.refused() == []


async def test_what_the_server_refuses_is_kept_with_its_reason(server: LiveServer, tmp_path: Path) -> None:
    spool = tmp_path / "agent.sqlite"
    async with await LivePolicy.connect(server.url, TOKEN, deadline_s=10.0, spool=spool) as policy:
        decision = await policy.decide("table", "key")
        other = await policy.decide("table", "key")
        await policy.outcome(decision, 1.0)
        await policy.outcome(decision, -0.5)
        await policy.outcome(other, 1.0)

    async with await LivePolicy.connect(NOBODY, spool=spool) as later:
        [refusal] = await later.refused()
        assert (await later.counters()).waiting == 0

    assert refusal.error == ConflictError.__name__
    assert "already credited" in refusal.reason
    assert refusal.message.decision_id == decision.decision_id


async def test_a_wrong_token_refuses_nothing_for_ever(server: LiveServer, tmp_path: Path) -> None:
    spool = tmp_path / "agent.sqlite"
    async with await LivePolicy.connect(server.url, TOKEN, deadline_s=10.0) as policy:
        decision = await policy.decide("table", "key")
    wrong = await LivePolicy.connect(server.url, "wrong", spool=spool)
    await wrong.outcome(decision, 1.0)
    await wrong.close(flush_s=0.2)

    async with await LivePolicy.connect(server.url, TOKEN, spool=spool) as right:
        await delivered(right, 1)
        assert await right.refused() == []


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e7])
async def test_an_impossible_reward_is_the_agents_error_at_once(policy: LivePolicy, reward: float) -> None:
    decision = await policy.decide("table", "key")

    with pytest.raises(InvalidOutcomeError, match="reward"):
        await policy.outcome(decision, reward)

    assert (await policy.counters()).spooled == 0


async def test_a_cancelled_decision_leaves_no_count(server: LiveServer, policy: LivePolicy) -> None:
    await policy.cancel(await policy.decide("table", "key"))
    await delivered(policy, 1)

    assert (await policy.decide("table", "key")).action_id == "retrieve_shallow"


async def test_a_closed_policy_may_be_closed_again(policy: LivePolicy) -> None:
    await policy.close()
    await policy.close()


# --- without an event loop -------------------------------------------------------------------------------------------


async def in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


async def test_agents_without_a_loop_have_the_same_methods(server: LiveServer, tmp_path: Path) -> None:
    def agent() -> list[str]:
        arms = []
        with SyncPolicy.connect(server.url, TOKEN, deadline_s=10.0, spool=tmp_path / "agent.sqlite") as policy:
            for _ in range(9):
                decision = policy.decide("table", FEATURES)
                policy.outcome(decision, 0.0)
                arms.append(decision.action_id)
            policy.cancel(policy.decide("table", FEATURES))
            assert policy.counters().decisions == 10
            assert policy.refused() == []
        policy.close()
        return arms

    arms = await in_thread(agent)

    assert sorted(arms) == sorted(SETTINGS.action_ids)
    [row] = (await served(server)).values()
    assert sum(numbers["credited"] for numbers in row.values()) == 9
    assert sum(numbers["taken"] for numbers in row.values()) == 9


async def test_threads_may_share_a_policy_and_its_requests(server: LiveServer) -> None:
    def agents() -> list[str]:
        arms: list[str] = []
        with SyncPolicy.connect(server.url, TOKEN, deadline_s=10.0) as policy:
            threads = [
                threading.Thread(target=lambda: arms.append(policy.decide("table", "key").action_id)) for _ in range(9)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return arms

    assert sorted(await in_thread(agents)) == sorted(SETTINGS.action_ids)


async def test_a_thread_ends_with_its_policy(server: LiveServer) -> None:
    before = set(threading.enumerate())

    def agent() -> None:
        with pytest.raises(ConfigError):
            SyncPolicy.connect("nowhere", TOKEN)
        with SyncPolicy.connect(server.url, TOKEN):
            pass

    await in_thread(agent)

    left = set(threading.enumerate()) - before
    assert [thread.name for thread in left if thread.name.startswith("memcon")] == []
