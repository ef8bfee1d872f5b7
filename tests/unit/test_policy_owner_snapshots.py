"""An owner writes snapshots beside its work; a restart from one is the same as from the whole journal."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from memcon.errors import InvariantError, StorageError
from memcon.learning.exploration import UcbConfig
from memcon.policy_types import DecideReply
from memcon.testing.policy import decide_request, outcome_request
from memcon_policy_server.journal.fold import folded, unsigned_shard
from memcon_policy_server.journal.snapshot import read_snapshot, write_snapshot
from memcon_policy_server.options import OwnerOptions
from memcon_policy_server.owner import snapshot_writer
from memcon_policy_server.owner.shard_owner import ShardOwner
from memcon_policy_server.sharding import snapshot_path
from support.owners import HandClock, RecordedCommits, eventually, ticks

SETTINGS = UcbConfig().learning_settings()


def new_owner(directory: Path, *, every: int = 10, **options: Any) -> ShardOwner:
    given = OwnerOptions(snapshot_every=every, **options)
    # No lease lapses under a clock that stands.
    return ShardOwner(directory, shard=0, num_shards=1, options=given, clock=HandClock())


async def decided(owner: ShardOwner, numbers: range) -> list[DecideReply]:
    """One decide after the other, each its own commit, of few keys; every second one is credited."""
    replies = []
    for number in numbers:
        replies.append(await owner.decide(decide_request(number, key=f"key {number % 3}", draw=number * 2**50)))
        if number % 2:
            await owner.outcomes([outcome_request(replies[-1], 0.25 * number)])
    return replies


async def test_a_snapshot_is_written_after_so_many_events(tmp_path: Path) -> None:
    owner = new_owner(tmp_path)
    await owner.open_table("table", SETTINGS)
    await decided(owner, range(4))
    await ticks()
    assert not snapshot_path(tmp_path, 0).exists()

    await decided(owner, range(4, 8))
    await eventually(lambda: owner.metrics().snapshots)

    metrics = owner.metrics()
    snapshot = read_snapshot(snapshot_path(tmp_path, 0))
    assert snapshot is not None
    assert 10 <= snapshot.seq == metrics.snapshot_seq < metrics.last_seq
    assert metrics.snapshot_age_s >= 0
    await owner.close()


async def test_a_snapshot_holds_the_events_up_to_its_own_and_nothing_more(tmp_path: Path) -> None:
    owner = new_owner(tmp_path, every=5, durable_decides=False, flush_every_s=60.0)
    await owner.open_table("table", SETTINGS)
    commits = RecordedCommits(owner)
    commits.may_go.clear()
    first, *_ = [owner.decide_now(decide_request(number)) for number in range(6)]
    credited = asyncio.create_task(owner.outcomes([outcome_request(first, 1.0)]))
    await ticks()
    # Applied in memory while the writer has the batch whose end the snapshot stands for.
    owner.decide_now(decide_request(99))
    commits.may_go.set()
    await credited
    await eventually(lambda: owner.metrics().snapshots)

    snapshot = read_snapshot(snapshot_path(tmp_path, 0))
    assert snapshot is not None
    assert snapshot.seq == 8
    core = unsigned_shard(0, 1)
    core.load(snapshot.state)
    assert core.open_ids("table") == [f"decision-{number}" for number in range(1, 6)]
    await owner.close()


async def test_a_restart_from_a_snapshot_gives_the_same_bits_and_answers(tmp_path: Path) -> None:
    owner = new_owner(tmp_path)
    await owner.open_table("table", SETTINGS)
    replies = await decided(owner, range(20))
    await eventually(lambda: owner.metrics().snapshots)
    await decided(owner, range(20, 23))
    before = await owner.served()
    # As a kill would: no last snapshot.
    owner.release()

    again = new_owner(tmp_path)
    assert again._snapshots.seq > 0
    assert json.dumps(await again.served()) == json.dumps(before)
    assert await again.decide(decide_request(18, key="key 0", draw=18 * 2**50)) == replies[18]
    await again.close()
    core, last_seq = folded(tmp_path, 0, 1)
    assert (core.dump("table"), last_seq) == (before["tables"]["table"], before["last_seq"])


async def test_closing_writes_a_last_snapshot_and_only_if_there_is_something_new(tmp_path: Path) -> None:
    owner = new_owner(tmp_path, every=1000)
    await owner.open_table("table", SETTINGS)
    await decided(owner, range(3))
    await owner.close()
    snapshot = read_snapshot(snapshot_path(tmp_path, 0))
    assert snapshot is not None
    assert snapshot.seq == 5

    again = new_owner(tmp_path, every=1000)
    written = snapshot_path(tmp_path, 0).stat().st_mtime_ns
    await again.close()
    assert snapshot_path(tmp_path, 0).stat().st_mtime_ns == written


@pytest.mark.parametrize("durable", [True, False])
async def test_who_still_asks_while_it_closes_is_answered_durably_or_refused(tmp_path: Path, durable: bool) -> None:
    owner = new_owner(tmp_path, every=1_000_000, durable_decides=durable)
    await owner.open_table("table", SETTINGS)
    replied: list[str] = []

    async def asks_on(client: int) -> None:
        for number in range(client, 1_000_000, 8):
            reply = await owner.decide(decide_request(number, key=f"key {number % 3}", draw=number))
            replied.append(reply.decision_id)

    clients = [asyncio.create_task(asks_on(client)) for client in range(8)]
    await eventually(lambda: len(replied) > 20)
    await owner.close()

    ends = await asyncio.wait_for(asyncio.gather(*clients, return_exceptions=True), 10)
    assert [type(end) for end in ends] == [StorageError] * 8
    whole, last_seq = folded(tmp_path, 0, 1)
    # The last snapshot is of the journal's last event and of nothing beyond it.
    core, from_snapshot = folded(tmp_path, 0, 1, from_snapshot=True)
    assert (core.dump("table"), from_snapshot) == (whole.dump("table"), last_seq)
    assert set(replied) <= set(whole.open_ids("table"))


async def test_a_replaced_owner_leaves_the_snapshot_to_the_newer_one(tmp_path: Path) -> None:
    old = new_owner(tmp_path, every=1_000_000)
    await old.open_table("table", SETTINGS)
    await decided(old, range(3))
    newer = new_owner(tmp_path, every=1)
    await decided(newer, range(3, 9))
    await eventually(lambda: newer.metrics().snapshots)
    await newer.close()
    written = snapshot_path(tmp_path, 0).read_bytes()

    # As a process that was stopped for a moment and has not looked at its journal since.
    old._commits.fault = old._commits.refusal = None
    await old.close()

    assert snapshot_path(tmp_path, 0).read_bytes() == written
    assert old.metrics().snapshot_failures == 1


async def test_a_snapshot_that_the_journal_does_not_follow_is_named_and_can_be_moved_away(tmp_path: Path) -> None:
    owner = new_owner(tmp_path)
    await owner.open_table("table", SETTINGS)
    await decided(owner, range(4))
    before = await owner.served()
    head = owner._journal.head_at(2)
    assert head is not None
    ahead = owner._core.state()
    owner.release()
    place = snapshot_path(tmp_path, 0)
    write_snapshot(place, shard=0, num_shards=1, seq=2, head=head, state=ahead)

    with pytest.raises(InvariantError, match=r"snapshot after event 2: move .*shard-0\.snapshot away"):
        new_owner(tmp_path)
    place.unlink()
    again = new_owner(tmp_path)
    assert await again.served() == before
    await again.close()


async def test_a_large_shard_is_copied_less_often(tmp_path: Path) -> None:
    owner = new_owner(tmp_path, every=4)
    await owner.open_table("table", SETTINGS)
    await owner.decide_batch([decide_request(n, key=f"key {n}") for n in range(40)])
    await eventually(lambda: owner.metrics().snapshots == 1)

    # 40 keys and 40 open decisions: the next one is due 120 events later.
    await owner.decide_batch([decide_request(n, key=f"key {n % 40}") for n in range(40, 155)])
    await ticks()
    assert owner.metrics().snapshots == 1
    await owner.decide_batch([decide_request(n, key=f"key {n % 40}") for n in range(155, 175)])
    await eventually(lambda: owner.metrics().snapshots == 2)
    await owner.close()


async def test_commands_go_on_and_no_second_one_begins_while_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go, begun = threading.Event(), []

    def held(path: Path, **given: Any) -> int:
        begun.append(given["seq"])
        may_go.wait(10)
        return write_snapshot(path, **given)

    monkeypatch.setattr(snapshot_writer, "write_snapshot", held)
    owner = new_owner(tmp_path, every=4)
    await owner.open_table("table", SETTINGS)

    await decided(owner, range(20))
    assert len(begun) == 1
    may_go.set()
    await owner.close()

    assert begun[-1] == owner.metrics().last_seq == owner.metrics().snapshot_seq


async def test_a_snapshot_that_cannot_be_written_is_counted_and_the_owner_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, **_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshot_writer, "write_snapshot", full)
    owner = new_owner(tmp_path, every=4)
    await owner.open_table("table", SETTINGS)

    with caplog.at_level(logging.ERROR, logger=snapshot_writer.__name__):
        await decided(owner, range(6))
        await eventually(lambda: owner.metrics().snapshot_failures)

    assert (owner.fault, owner.metrics().snapshots) == (None, 0)
    assert "policy.snapshot_failed" in caplog.messages
    await owner.decide(decide_request(50))
    await owner.close()
