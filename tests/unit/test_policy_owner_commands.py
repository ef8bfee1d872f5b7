"""Batches, decides that do not wait for the disk, limits, and what an owner counts."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memcon.errors import ConflictError, MemconError, NotFoundError, StorageError, UnavailableError
from memcon.learning.events import Event
from memcon.learning.exploration import UcbConfig
from memcon.policy_types import CancelRequest, DecideReply, OutcomeReply
from memcon.testing.policy import decide_request, outcome_request, state_keys, table_import
from memcon_policy_server.client.local import LocalPolicyClient
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.options import Limits, OwnerOptions
from memcon_policy_server.owner import group_commit
from memcon_policy_server.owner.shard_owner import ShardOwner
from memcon_policy_server.sharding import journal_path, shard_of_keys
from memcon_policy_server.wire import LimitError, MovedError
from support.owners import HandClock, RecordedCommits, eventually, replied, ticks

SETTINGS = UcbConfig().learning_settings()
# Long enough that only what a test does can start a commit. With a clock that stands no lease lapses while this machine
# has no time for us: what need not wait is answered, and not told to look first.
LAZY = OwnerOptions(durable_decides=False, flush_every_s=60.0)


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[ShardOwner]:
    owner = ShardOwner(tmp_path, shard=0, num_shards=1)
    await owner.open_table("table", SETTINGS)
    yield owner
    await owner.close()


@pytest.fixture
async def lazy(tmp_path: Path) -> AsyncIterator[ShardOwner]:
    owner = ShardOwner(tmp_path, shard=0, num_shards=1, options=LAZY, clock=HandClock())
    await owner.open_table("table", SETTINGS)
    yield owner
    await owner.close()


def journaled(directory: Path) -> list[Event]:
    journal = SqliteJournal(journal_path(directory, 0), shard=0, num_shards=1, read_only=True)
    try:
        return [event for _, event in journal.read()]
    finally:
        journal.close()


# --- batches -----------------------------------------------------------------------------------------------------


async def test_a_batch_decides_as_one_by_one_in_one_commit(tmp_path: Path) -> None:
    # Keys that come again in the batch: each decision must see the counts of those before it.
    requests = [decide_request(n, key=f"key {n % 5}", draw=n * 2**58 % 2**64) for n in range(100)]
    single = ShardOwner(tmp_path / "single", shard=0, num_shards=1)
    await single.open_table("table", SETTINGS)
    together = ShardOwner(tmp_path / "together", shard=0, num_shards=1)
    await together.open_table("table", SETTINGS)
    commits = RecordedCommits(together)

    one_by_one = [await single.decide(request) for request in requests]
    batch = await together.decide_batch(requests)

    def said(reply: DecideReply | MemconError) -> object:
        assert isinstance(reply, DecideReply)
        # All but the token, which each owner signs with its own secret.
        return (reply.decision_id, reply.action_id, reply.propensity, reply.tie_set, reply.per_arm, reply.received)

    assert [said(reply) for reply in batch] == [said(reply) for reply in one_by_one]
    assert commits.batches == [100]
    assert (await single.served())["tables"] == (await together.served())["tables"]
    await single.close()
    await together.close()


async def test_a_refused_decide_of_a_batch_stands_in_its_place(owner: ShardOwner) -> None:
    requests = [
        decide_request(0),
        decide_request(1, table="nowhere"),
        decide_request(0, episode_id="another"),
        decide_request(2, position=-1),
        decide_request(3),
    ]

    replies = await owner.decide_batch(requests)

    assert [type(reply).__name__ for reply in replies] == [
        "DecideReply", "NotFoundError", "ConflictError", "ConfigError", "DecideReply",
    ]  # fmt: skip
    assert (await owner.served())["tables"]["table"]["open"].keys() == {"decision-0", "decision-3"}


async def test_a_batch_whose_commit_fails_is_answered_by_none(owner: ShardOwner) -> None:
    commits = RecordedCommits(owner)
    commits.fail = StorageError("disk full")

    with pytest.raises(StorageError, match="disk full"):
        await owner.decide_batch([decide_request(n) for n in range(3)])
    with pytest.raises(StorageError, match="disk full"):
        await owner.outcomes([])


async def test_outcomes_of_every_kind_are_answered_one_by_one(owner: ShardOwner) -> None:
    first, second = [await owner.decide(decide_request(n)) for n in range(2)]
    await owner.outcomes([outcome_request(second, 1.0)])
    forged = outcome_request(first, 1.0)
    forged = type(forged)(**{**{name: getattr(forged, name) for name in forged.__slots__}, "token": "x" * 40})

    answers = await owner.outcomes(
        [outcome_request(first, 1.0), outcome_request(second, 1.0), outcome_request(second, 0.5), forged]
    )

    assert replied(answers) == [None, None, ConflictError, NotFoundError]
    assert [answer.status for answer in answers if isinstance(answer, OutcomeReply)] == ["credited", "duplicate"]


# --- decides that do not wait ------------------------------------------------------------------------------------


async def test_a_decide_that_need_not_be_durable_is_answered_before_its_commit(lazy: ShardOwner) -> None:
    commits = RecordedCommits(lazy)

    reply = lazy.decide_now(decide_request(0))
    same = await lazy.decide(decide_request(0))
    await ticks()

    assert reply == same
    assert commits.batches == []
    assert lazy.metrics().pending == 1


async def test_whoever_waits_takes_the_decides_before_it_along_in_order(lazy: ShardOwner, tmp_path: Path) -> None:
    commits = RecordedCommits(lazy)
    first = lazy.decide_now(decide_request(0))
    lazy.decide_now(decide_request(1))

    await lazy.outcomes([outcome_request(first, 1.0)])

    assert commits.batches == [3]
    kinds = [(type(event).__name__, getattr(event, "decision_id", "")) for event in journaled(tmp_path)]
    assert kinds == [
        ("Created", ""), ("Decided", "decision-0"), ("Decided", "decision-1"), ("Credited", "decision-0"),
    ]  # fmt: skip


async def test_decides_that_nobody_waits_for_are_written_soon(tmp_path: Path) -> None:
    options = OwnerOptions(durable_decides=False, flush_every_s=0.01)
    owner = ShardOwner(tmp_path, shard=0, num_shards=1, options=options, clock=HandClock())
    await owner.open_table("table", SETTINGS)
    for number in range(10):
        owner.decide_now(decide_request(number))

    await eventually(lambda: owner.metrics().pending == 0)

    assert owner.metrics().last_seq == 11
    await owner.close()


async def test_many_decides_do_not_wait_for_the_time_to_pass(lazy: ShardOwner) -> None:
    commits = RecordedCommits(lazy)
    for number in range(group_commit.FLUSH_AT):
        lazy.decide_now(decide_request(number))

    await eventually(lambda: commits.batches == [group_commit.FLUSH_AT])


async def test_a_writer_that_does_not_keep_up_makes_decides_wait(
    lazy: ShardOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "MAX_PENDING", 3)
    commits = RecordedCommits(lazy)
    for number in range(4):
        lazy.decide_now(decide_request(number))
    assert not lazy.decides_at_once
    commits.may_go.clear()

    with pytest.raises(UnavailableError, match="4 events wait for the disk"):
        lazy.decide_now(decide_request(4))
    with pytest.raises(UnavailableError, match="4 events wait for the disk"):
        lazy.decide_batch_now([decide_request(4)])
    waiting = asyncio.create_task(lazy.decide(decide_request(5)))
    await ticks()
    assert not waiting.done()
    commits.may_go.set()

    assert (await waiting).decision_id == "decision-5"
    assert commits.batches == [4]
    assert (await lazy.served())["tables"]["table"]["open"].keys() == {
        f"decision-{number}" for number in (0, 1, 2, 3, 5)
    }


async def test_an_owner_whose_decides_are_durable_decides_none_at_once(owner: ShardOwner) -> None:
    assert not owner.decides_at_once
    with pytest.raises(UnavailableError, match="cannot decide at once"):
        owner.decide_now(decide_request(0))


async def test_a_batch_at_once_is_what_its_decides_are_one_by_one(lazy: ShardOwner, tmp_path: Path) -> None:
    commits = RecordedCommits(lazy)
    requests = [decide_request(number) for number in (0, 1, 0, 2)]
    # Of no table: an answer of its own.
    requests.insert(2, dataclasses.replace(decide_request(9), table="other"))

    first, second, refused, again, last = lazy.decide_batch_now(requests)

    assert isinstance(refused, NotFoundError)
    # The third of four sees its own first, which is journaled once.
    assert again == first
    assert commits.batches == []
    assert (lazy.metrics().decisions, lazy.metrics().pending) == (3, 3)
    alone = ShardOwner(tmp_path / "alone", shard=0, num_shards=1, options=LAZY, clock=HandClock())
    await alone.open_table("table", SETTINGS)
    choices = [alone.decide_now(decide_request(number)) for number in (0, 1, 2)]
    same = [reply for reply in (first, second, last) if isinstance(reply, DecideReply)]
    assert [(one.action_id, one.received, one.table_version) for one in same] == [
        (one.action_id, one.received, one.table_version) for one in choices
    ]
    await alone.close()


async def test_closing_writes_what_nobody_waited_for(tmp_path: Path) -> None:
    owner = ShardOwner(tmp_path, shard=0, num_shards=1, options=LAZY, clock=HandClock())
    await owner.open_table("table", SETTINGS)
    owner.decide_now(decide_request(0))

    await owner.close()

    assert [type(event).__name__ for event in journaled(tmp_path)] == ["Created", "Decided"]


async def test_an_outcome_of_a_decide_that_was_never_durable_is_recovered(tmp_path: Path) -> None:
    owner = ShardOwner(tmp_path, shard=0, num_shards=1, options=LAZY, clock=HandClock())
    await owner.open_table("table", SETTINGS)
    decision = owner.decide_now(decide_request(0))
    # As a kill would: what is pending is gone.
    owner.release()

    again = ShardOwner(tmp_path, shard=0, num_shards=1, options=LAZY, clock=HandClock())
    (reply,) = await again.outcomes([outcome_request(decision, 1.0)])

    assert isinstance(reply, OutcomeReply)
    assert reply.status == "recovered"
    await again.close()


# --- other commands ----------------------------------------------------------------------------------------------


async def test_a_cancel_is_durable_and_may_be_repeated(owner: ShardOwner, tmp_path: Path) -> None:
    decision = await owner.decide(decide_request(0))
    request = CancelRequest(decision_id=decision.decision_id, token=decision.token)

    assert [await owner.cancel(request), await owner.cancel(request)] == [True, False]

    (outcome,) = await owner.outcomes([outcome_request(decision, 1.0)])
    assert isinstance(outcome, ConflictError)
    assert [type(event).__name__ for event in journaled(tmp_path)][-1] == "Cancelled"


async def test_the_in_process_client_cancels_at_the_shard_of_the_token(tmp_path: Path) -> None:
    client = LocalPolicyClient(tmp_path, 3)
    await client.open_table("table", SETTINGS)
    decisions = [await client.decide(decide_request(n, key=f"key {n}")) for n in range(6)]
    assert len({shard_of_keys("table", (f"key {n}",), 3) for n in range(6)}) == 3

    cancelled = [
        await client.cancel(CancelRequest(decision_id=reply.decision_id, token=reply.token)) for reply in decisions
    ]

    assert cancelled == [True] * 6
    await client.close()


async def test_a_frozen_table_learns_nothing_and_says_so_after_a_restart(owner: ShardOwner, tmp_path: Path) -> None:
    assert [await owner.freeze_table("table", True), await owner.freeze_table("table", True)] == [True, False]
    decision = await owner.decide(decide_request(0))
    await owner.outcomes([outcome_request(decision, 1.0)])
    assert (await owner.served())["tables"]["table"]["numbers"]["keys"] == {}
    await owner.close()

    again = ShardOwner(tmp_path, shard=0, num_shards=1)
    assert (await again.served())["tables"]["table"]["settings"]["frozen"] is True
    assert await again.freeze_table("table", False)
    await again.close()


# --- limits ------------------------------------------------------------------------------------------------------


async def test_a_key_too_many_is_refused_and_known_ones_are_not(tmp_path: Path) -> None:
    options = OwnerOptions(limits=Limits(max_keys_per_table=2))
    owner = ShardOwner(tmp_path, shard=0, num_shards=1, options=options)
    await owner.open_table("table", SETTINGS)
    await owner.open_table("other", SETTINGS)
    first = await owner.decide(decide_request(0, key="a"))
    await owner.decide(decide_request(1, key="b"))
    before = (await owner.served())["tables"]

    with pytest.raises(LimitError, match="has 2 keys at shard 0, 1 more would pass max_keys_per_table = 2"):
        await owner.decide(decide_request(2, key="c"))
    with pytest.raises(LimitError, match="max_keys_per_table"):
        await owner.import_table(table_import(state_keys(3), table="other"))

    assert (await owner.served())["tables"] == before
    await owner.decide(decide_request(3, key="a"))
    await owner.outcomes([outcome_request(first, 1.0)])
    assert owner.metrics().conflicts == 2
    await owner.close()


async def test_a_table_of_too_many_arms_is_refused_and_an_older_one_is_not(tmp_path: Path) -> None:
    options = OwnerOptions(limits=Limits(max_arms=8))
    owner = ShardOwner(tmp_path, shard=0, num_shards=1)
    await owner.open_table("older", SETTINGS)
    await owner.close()
    owner = ShardOwner(tmp_path, shard=0, num_shards=1, options=options)

    with pytest.raises(LimitError, match="'table': it has 9 arms, max_arms is 8"):
        await owner.open_table("table", SETTINGS)

    await owner.open_table("older", SETTINGS)
    assert list(await owner.tables()) == ["older"]
    await owner.close()


async def test_a_table_too_many_is_refused_and_known_ones_are_not(tmp_path: Path) -> None:
    owner = ShardOwner(tmp_path, shard=0, num_shards=1, options=OwnerOptions(limits=Limits(max_tables=1)))
    await owner.open_table("table", SETTINGS)

    with pytest.raises(LimitError, match="has 1 tables, max_tables is 1"):
        await owner.open_table("other", SETTINGS)

    await owner.open_table("table", SETTINGS)
    assert list(await owner.tables()) == ["table"]
    await owner.close()


async def test_a_key_of_another_shard_in_a_batch_is_moved_alone(tmp_path: Path) -> None:
    owner = ShardOwner(tmp_path, shard=0, num_shards=2)
    await owner.open_table("table", SETTINGS)
    keys = [next(key for key in map(str, range(100)) if shard_of_keys("table", (key,), 2) == n) for n in (0, 1)]

    replies = await owner.decide_batch([decide_request(n, key=key) for n, key in enumerate(keys)])

    assert replied(replies) == [None, MovedError]
    await owner.close()


# --- counts ------------------------------------------------------------------------------------------------------


async def test_an_owner_counts_what_it_did(owner: ShardOwner) -> None:
    decisions = [await owner.decide(decide_request(n, key=f"key {n % 2}")) for n in range(4)]
    await owner.decide(decide_request(0, key="key 0"))
    await owner.outcomes([outcome_request(decisions[0], 1.0)] * 2 + [outcome_request(decisions[0], 0.0)])
    await owner.cancel(CancelRequest(decision_id=decisions[1].decision_id, token=decisions[1].token))

    metrics = owner.metrics()

    assert (metrics.decisions, metrics.cancelled, metrics.conflicts) == (4, 1, 1)
    assert metrics.outcomes == {"credited": 1, "duplicate": 1}
    assert (metrics.tables, metrics.keys, metrics.open_decisions) == (1, 2, 2)
    assert (metrics.events, metrics.last_seq, metrics.pending) == (7, 7, 0)
    assert metrics.commit_seconds.count == metrics.commits > 0
    assert (metrics.up, metrics.epoch) == (1, 1)


async def test_the_tables_are_listed_with_their_sizes(owner: ShardOwner) -> None:
    await owner.outcomes([outcome_request(await owner.decide(decide_request(0)), 1.0)])
    await owner.decide(decide_request(1))

    listed = json.loads(json.dumps(await owner.tables()))["table"]

    assert listed.pop("settings")["rule"] == "ucb"
    assert listed == {"keys": 1, "taken": 2, "credited": 1, "open": 1, "closed": 1, "version": 4}


async def test_one_table_is_given_whole_or_at_some_keys(owner: ShardOwner) -> None:
    await owner.open_table("other", SETTINGS)
    for number, key in enumerate(("a", "ab", "c")):
        await owner.decide(decide_request(number, key=key))
    whole = (await owner.served())["tables"]

    assert (await owner.served("table"))["tables"] == {"table": whole["table"]}
    numbers = whole["table"]["numbers"]["keys"]
    for text, keys in (("a", ["a"]), ("ab", ["ab"]), ("b", ["ab"]), ("none", [])):
        at_some = (await owner.served("table", text))["tables"]["table"]
        assert at_some["numbers"]["keys"] == {key: numbers[key] for key in keys}
        assert at_some.keys() == {"schema_version", "table", "settings", "numbers"}
    with pytest.raises(NotFoundError, match="nowhere"):
        await owner.served("nowhere")
