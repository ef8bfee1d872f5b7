"""An owner answers only while it knows that the shard is still its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memcon.errors import LockedError, MemconError, StorageError
from memcon.learning.exploration import UcbConfig
from memcon.learning.shard import PolicyShard
from memcon.testing.policy import decide_request, outcome_request
from memcon_policy_server.client.local import LocalPolicyClient
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.options import OwnerOptions
from memcon_policy_server.owner import shard_owner
from memcon_policy_server.owner.lease import LEASE_S, Lease
from memcon_policy_server.owner.shard_owner import ShardOwner
from memcon_policy_server.sharding import journal_path
from memcon_policy_server.wire import MovedError
from support.owners import HandClock, eventually
from support.waiting import wait_until

SETTINGS = UcbConfig().learning_settings()
LAZY = OwnerOptions(durable_decides=False)


class Watched:
    """A lease over an epoch that the test sets, under a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.epoch = 1
        self.broken = self.waiting = False
        # Looks after this many are broken.
        self.broken_after = 10**9
        self.looks = 0
        self.lost: list[int] = []
        self.may_look = threading.Event()
        self.may_look.set()
        self.lease = Lease(
            self.read, epoch=1, clock=self.clock, claimed_at=self.clock.monotonic(), on_lost=self.lost.append
        )

    def read(self) -> int:
        self.waiting = not self.may_look.is_set()
        self.may_look.wait(10)
        self.looks += 1
        if self.broken or self.looks > self.broken_after:
            raise StorageError("the disk does not answer")
        return self.epoch

    def look_again(self) -> None:
        """Return after a look that began after this call."""
        asyncio.run(self.lease.renewal())


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.may_look.set()
    watched.lease.stop()


def test_a_lease_lapses_a_second_after_the_last_good_look(watched: Watched) -> None:
    watched.look_again()
    watched.broken = True
    watched.clock.now += LEASE_S
    assert watched.lease.held
    watched.clock.now += 0.01
    assert not watched.lease.held

    watched.look_again()
    assert not watched.lease.held
    watched.broken = False
    watched.look_again()
    assert (watched.lease.held, watched.lease.age_s) == (True, 0.0)
    assert watched.lost == []


def test_the_thread_looks_by_itself(watched: Watched) -> None:
    watched.clock.now += 60.0
    seen = watched.looks
    wait_until(lambda: watched.looks > seen + 1, within_s=30, what="two looks of the lease's thread")
    assert watched.lease.held


def test_a_look_counts_from_its_beginning(watched: Watched) -> None:
    watched.may_look.clear()
    watched.lease._wake.set()
    wait_until(lambda: watched.waiting, within_s=30, what="a look that hangs")
    # It began before this pause, and what it reads may be as old; the one after it fails.
    watched.clock.now += 5.0
    watched.broken_after = watched.looks + 1
    watched.may_look.set()
    watched.look_again()

    assert watched.looks > watched.broken_after
    assert (watched.lease.held, watched.lease.age_s) == (False, 5.0)


def test_a_newer_epoch_ends_the_lease_for_good(watched: Watched) -> None:
    watched.epoch = 2
    watched.look_again()
    wait_until(lambda: watched.lost, within_s=30, what="the loss to be told")

    watched.epoch = 1
    watched.look_again()

    assert (watched.lost, watched.lease.held, watched.lease.age_s) == ([2], False, float("inf"))


def test_stopping_twice_ends_the_thread(watched: Watched) -> None:
    watched.lease.stop()
    watched.lease.stop()
    assert not watched.lease._thread.is_alive()


# --- at an owner -------------------------------------------------------------------------------------------------


class HeldLooks:
    """Holds up the looks of an owner's lease."""

    def __init__(self, owner: ShardOwner) -> None:
        self.entered, self.may_go = threading.Event(), threading.Event()
        self._look = owner._lease._read_epoch
        owner._lease._read_epoch = self.look
        owner._lease._wake.set()

    def look(self) -> int:
        self.entered.set()
        self.may_go.wait(10)
        return self._look()


async def test_of_two_owners_the_stale_one_stops_answering_within_a_second(tmp_path: Path) -> None:
    faults: list[MemconError] = []
    stale = ShardOwner(tmp_path, shard=0, num_shards=1, options=LAZY, on_fault=faults.append)
    await stale.open_table("table", SETTINGS)
    await stale.decide(decide_request(0))
    await stale.served()

    owner = ShardOwner(tmp_path, shard=0, num_shards=1, options=LAZY)
    claimed = time.monotonic()
    answered_at = claimed
    number = 1

    def refused() -> bool:
        nonlocal answered_at, number
        asked = time.monotonic()
        try:
            # Nothing of these reaches the journal: no commit tells it that it is stale.
            stale.decide_now(decide_request(0))
        except MovedError:
            return True
        answered_at = asked
        return False

    await eventually(refused)
    await eventually(lambda: faults)

    assert answered_at - claimed <= LEASE_S
    assert isinstance(stale.fault, MovedError)
    assert "claimed by another process under epoch 2" in str(stale.fault)
    assert len(faults) == 1
    for command in (stale.decide(decide_request(0)), stale.outcomes([]), stale.served()):
        with pytest.raises(MovedError):
            await command
    assert stale.health()["status"] == "failed"
    assert (await owner.decide(decide_request(5))).action_id == "retrieve_medium"
    await stale.close()
    await owner.close()


async def test_commits_of_the_stale_owner_never_reach_the_journal(tmp_path: Path) -> None:
    stale = ShardOwner(tmp_path, shard=0, num_shards=1, options=LAZY)
    await stale.open_table("table", SETTINGS)
    decision = await stale.decide(decide_request(0))
    owner = ShardOwner(tmp_path, shard=0, num_shards=1)

    with pytest.raises((LockedError, MovedError)):
        await stale.outcomes([outcome_request(decision, 1.0)])
    await stale.close()
    await owner.close()

    journal = SqliteJournal(journal_path(tmp_path, 0), shard=0, num_shards=1, read_only=True)
    assert [type(event).__name__ for _, event in journal.read()] == ["Created"]
    journal.close()


async def test_an_owner_that_was_overtaken_while_it_started_has_its_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def _overtaken(journal: SqliteJournal, core: PolicyShard) -> int:
        other = SqliteJournal(journal_path(tmp_path, 0), shard=0, num_shards=1)
        other.claim()
        other.close()
        return 0

    class _LooksAtOnce(Lease):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            # Its thread ends with the look that finds the newer epoch.
            self._thread.join()

    monkeypatch.setattr(shard_owner, "restore", _overtaken)
    monkeypatch.setattr(shard_owner, "Lease", _LooksAtOnce)
    faults: list[MemconError] = []

    owner = ShardOwner(tmp_path, shard=0, num_shards=1, on_fault=faults.append)

    # Without one its process would live on and answer nothing.
    assert [type(fault) for fault in faults] == [MovedError]
    assert owner.fault is faults[0]
    owner.release()


async def test_after_a_pause_an_owner_answers_nothing_before_it_has_looked(tmp_path: Path) -> None:
    clock = HandClock()
    owner = ShardOwner(tmp_path, shard=0, num_shards=1, options=LAZY, clock=clock)
    await owner.open_table("table", SETTINGS)
    looks = HeldLooks(owner)
    await eventually(looks.entered.is_set)
    # As after SIGSTOP, or on a disk that hangs.
    clock.now += 30.0

    with pytest.raises(MovedError, match=r"has not seen its journal for 30\.0 s"):
        owner.decide_now(decide_request(0))
    assert (owner.health()["status"], owner.metrics().up) == ("stale", 0)
    asked = asyncio.create_task(owner.decide(decide_request(1)))
    looks.may_go.set()

    # The look that it asked for is good.
    assert (await asked).decision_id == "decision-1"
    assert (owner.fault, owner.health()["status"], owner.metrics().up) == (None, "ok", 1)
    await owner.close()


async def test_a_lapsed_lease_puts_off_an_expiry_and_loses_none(tmp_path: Path) -> None:
    clock = HandClock()
    options = OwnerOptions(expire_after_s=60.0)
    owner = ShardOwner(tmp_path, shard=0, num_shards=1, options=options, clock=clock)
    await owner.open_table("table", SETTINGS)
    await owner.decide(decide_request(0))
    looks = HeldLooks(owner)
    await eventually(looks.entered.is_set)
    clock.now += 61.0
    assert owner._expiry is not None
    owner._expiry.turn()
    assert owner.metrics().expired == 0

    looks.may_go.set()
    await owner._run.renewed()
    # Not as much later as it was to end at all.
    owner._expiry.turn()

    assert (owner.metrics().expired, owner.metrics().open_decisions) == (1, 0)
    await owner.close()


async def test_the_in_process_client_of_a_folder_that_was_taken_over_stops_for_good(tmp_path: Path) -> None:
    stale = LocalPolicyClient(tmp_path, 2)
    await stale.open_table("table", SETTINGS)
    owner = LocalPolicyClient(tmp_path, 2)
    await eventually(lambda: all(one.fault for one in stale._owners))

    # No pause of a server, after which a task would go on.
    for command in (stale.decide(decide_request(0)), stale.cancel_episode("table", "episode-0")):
        with pytest.raises(LockedError, match="has another owner"):
            await command
    await stale.close()
    await owner.close()
