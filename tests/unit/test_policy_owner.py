"""The owner answers only what is durable, shares commits, and answers nothing after a commit failed."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memcon.errors import ConfigError, ConflictError, InvariantError, LockedError, MemconError, StorageError
from memcon.learning import kernel, transfer
from memcon.learning.exploration import UcbConfig
from memcon.policy_types import LearningSettings, OutcomeReply
from memcon.testing.policy import decide_request, outcome_request, state_keys, table_import
from memcon_policy_server.client.local import LocalPolicyClient
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.owner.shard_owner import ShardOwner
from memcon_policy_server.sharding import export_path, journal_path, shard_of_keys
from memcon_policy_server.wire import MovedError
from support.owners import RecordedCommits, replied, ticks

SETTINGS = UcbConfig().learning_settings()


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[ShardOwner]:
    owner = ShardOwner(tmp_path, shard=0, num_shards=1)
    await owner.open_table("table", SETTINGS)
    yield owner
    await owner.close()


async def test_commands_of_one_tick_share_one_commit(owner: ShardOwner) -> None:
    commits = RecordedCommits(owner)

    await asyncio.gather(*(owner.decide(decide_request(n)) for n in range(8)))

    assert commits.batches == [8]


async def test_commands_that_arrive_during_a_commit_share_the_next_one(owner: ShardOwner) -> None:
    commits = RecordedCommits(owner)
    commits.may_go.clear()
    first = asyncio.create_task(owner.decide(decide_request(0)))
    await ticks()
    others = [asyncio.create_task(owner.decide(decide_request(n))) for n in range(1, 5)]
    await ticks()
    assert not any(task.done() for task in (first, *others))

    commits.may_go.set()
    await asyncio.gather(first, *others)

    assert commits.batches == [1, 4]


async def test_nothing_is_answered_before_its_commit(owner: ShardOwner) -> None:
    commits = RecordedCommits(owner)
    commits.may_go.clear()
    decided = asyncio.create_task(owner.decide(decide_request(0)))
    await ticks()
    # Both rest on the decide that is not durable yet: the repeated answer, and the refusal.
    repeated = asyncio.create_task(owner.decide(decide_request(0)))
    refused = asyncio.create_task(owner.decide(decide_request(0, episode_id="another")))
    await ticks()
    assert not any(task.done() for task in (decided, repeated, refused))

    commits.may_go.set()

    assert await repeated == await decided
    with pytest.raises(ConflictError):
        await refused
    assert commits.batches == [1]


async def test_a_caller_that_goes_away_takes_nothing_from_the_others(owner: ShardOwner) -> None:
    commits = RecordedCommits(owner)
    commits.may_go.clear()
    leaving, staying = (asyncio.create_task(owner.decide(decide_request(n))) for n in range(2))
    await ticks()

    leaving.cancel()
    await ticks()
    commits.may_go.set()

    assert (await staying).action_id == "retrieve_medium"
    assert (await owner.decide(decide_request(0))).action_id == "retrieve_shallow"


async def test_after_a_failed_commit_the_owner_answers_nothing_more(tmp_path: Path) -> None:
    faults: list[MemconError] = []
    owner = ShardOwner(tmp_path, shard=0, num_shards=1, on_fault=faults.append)
    await owner.open_table("table", SETTINGS)
    decision = await owner.decide(decide_request(0))
    commits = RecordedCommits(owner)
    commits.fail = StorageError("disk full")

    results = await asyncio.gather(*(owner.decide(decide_request(n)) for n in range(1, 4)), return_exceptions=True)
    assert [str(result) for result in results] == ["disk full"] * 3
    commits.fail = None
    with pytest.raises(StorageError, match="disk full"):
        await owner.decide(decide_request(0))
    with pytest.raises(StorageError, match="disk full"):
        await owner.outcomes([outcome_request(decision, 1.0)])
    with pytest.raises(StorageError, match="disk full"):
        await owner.export()
    assert [str(fault) for fault in faults] == ["disk full"]
    await owner.close()

    again = ShardOwner(tmp_path, shard=0, num_shards=1)
    assert again.health()["last_seq"] == 2
    await again.close()


async def test_a_real_full_disk_is_a_storage_error_that_stops_the_owner(owner: ShardOwner) -> None:
    driver = owner._journal._store._driver()
    pages = driver.execute("PRAGMA page_count").fetchone()[0]
    driver.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(StorageError, match="check permissions and space"):
        await asyncio.gather(*(owner.decide(decide_request(number)) for number in range(1000)))

    assert isinstance(owner.fault, StorageError)


async def test_an_owner_that_was_replaced_stops(owner: ShardOwner, tmp_path: Path) -> None:
    successor = ShardOwner(tmp_path, shard=0, num_shards=1)

    # Its lease's thread or the commit finds it, whichever comes first.
    with pytest.raises((LockedError, MovedError), match=r"claimed by another process .*after epoch 1"):
        await owner.decide(decide_request(0))

    assert owner.health()["status"] == "failed"
    assert (await successor.decide(decide_request(0))).action_id == "retrieve_shallow"
    await successor.close()


async def test_an_unexpected_error_in_the_shard_is_a_fault(owner: ShardOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("half applied")

    monkeypatch.setattr(owner._core, "decide", broken)

    with pytest.raises(InvariantError, match="ZeroDivisionError: half applied"):
        await owner.decide(decide_request(0))
    assert isinstance(owner.fault, InvariantError)


async def test_one_bad_outcome_does_not_hold_up_the_others(owner: ShardOwner) -> None:
    first, second, third = [await owner.decide(decide_request(n)) for n in range(3)]
    await owner.outcomes([outcome_request(second, 1.0)])

    answers = await owner.outcomes([outcome_request(decision, -0.5) for decision in (first, second, third)])

    assert replied(answers) == [None, ConflictError, None]
    assert "decision-1" in str(answers[1])
    again = await owner.outcomes([outcome_request(decision, -0.5) for decision in (first, third)])
    assert [answer.status for answer in again if isinstance(answer, OutcomeReply)] == ["duplicate", "duplicate"]


async def test_a_restart_gives_the_same_tables_bit_for_bit(tmp_path: Path) -> None:
    client = LocalPolicyClient(tmp_path, 3)
    # An integer where a float belongs must not change the text after a restart.
    await client.open_table("table", changed_settings(alpha=1))
    await client.open_table("other", SETTINGS)
    await client.open_table("warm", SETTINGS)
    await client.import_table(table_import(state_keys(9), table="warm"))
    for number, key in enumerate(state_keys(4)):
        await client.decide(decide_request(100 + number, table="warm", key=key))
    for number in range(60):
        key = f"key {number % 7}"
        table = "table" if number % 3 else "other"
        decision = await client.decide(decide_request(number, table=table, key=key, draw=number * 2**40))
        if number % 5 == 0:
            await client.cancel_episode(table, f"episode-{number}")
        elif number % 4:
            await client.outcomes([outcome_request(decision, 0.1 * number, cost=0.05)])
    before = [await owner.served() for owner in client._owners]
    await client.close()

    again = LocalPolicyClient(tmp_path, 3)
    after = [await owner.served() for owner in again._owners]
    exported = [json.loads(export_path(tmp_path, shard).read_text()) for shard in range(3)]
    await again.close()

    assert [json.dumps(tables) for tables in after] == [json.dumps(tables) for tables in before]
    assert exported == before


async def test_an_import_is_durable_before_it_is_answered(owner: ShardOwner) -> None:
    commits = RecordedCommits(owner)
    commits.may_go.clear()
    imported = asyncio.create_task(owner.import_table(table_import(state_keys(3))))
    await ticks()
    assert not imported.done()

    commits.may_go.set()
    await imported
    await owner.import_table(table_import(state_keys(3)))

    assert commits.batches == [1]


@pytest.mark.parametrize("table", ["other", "table"])
async def test_others_are_answered_while_the_numbers_of_an_import_are_checked(
    owner: ShardOwner, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    await owner.open_table("other", SETTINGS)
    may_go, check = threading.Event(), transfer.check_numbers

    def slow(*given: Any) -> None:
        assert may_go.wait(10)
        check(*given)

    monkeypatch.setattr(transfer, "check_numbers", slow)
    imported = asyncio.create_task(owner.import_table(table_import(state_keys(3))))
    await ticks()
    await owner.decide(decide_request(1, table=table))
    may_go.set()

    # A decision that came meanwhile is not overrun.
    (answer,) = await asyncio.gather(imported, return_exceptions=True)
    assert isinstance(answer, ConflictError) == (table == "table")
    assert (await owner.served())["tables"]["table"].get("imported") == (None if answer else "an earlier run")


async def test_the_arithmetic_is_compiled_before_the_journal_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed: list[bool] = []
    compiled = kernel.kernels()

    def compile_now() -> kernel.Kernels:
        claimed.append(journal_path(tmp_path, 0).exists())
        return compiled

    monkeypatch.setattr(kernel, "kernels", compile_now)
    owner = ShardOwner(tmp_path, shard=0, num_shards=1)
    assert claimed == [False]
    await owner.close()


async def test_a_key_of_another_shard_is_refused(tmp_path: Path) -> None:
    owner = ShardOwner(tmp_path, shard=0, num_shards=2)
    await owner.open_table("table", SETTINGS)
    key = next(key for key in map(str, range(100)) if shard_of_keys("table", (key,), 2) == 1)

    with pytest.raises(MovedError, match="belongs to shard 1, this is shard 0"):
        await owner.decide(decide_request(0, key=key))
    await owner.close()


async def test_closing_twice_and_asking_a_closed_owner(owner: ShardOwner) -> None:
    await owner.close()
    await owner.close()
    with pytest.raises(StorageError, match="is closed"):
        await owner.decide(decide_request(0))


async def test_a_client_that_cannot_claim_all_shards_frees_the_others(tmp_path: Path) -> None:
    SqliteJournal(journal_path(tmp_path, 1), shard=1, num_shards=4).close()
    (tmp_path / "secret").write_text("00" * 32)

    with pytest.raises(ConfigError, match="is shard 1 of 4, not 1 of 2"):
        LocalPolicyClient(tmp_path, 2)


def changed_settings(**changed: float) -> LearningSettings:
    return dataclasses.replace(SETTINGS, **changed)  # type: ignore[arg-type]
