"""Two owners of one shard in two processes: the older one is refused, falls silent, and ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memcon.testing.policy import decide_request
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.options import OwnerOptions
from memcon_policy_server.owner.lease import LEASE_S
from memcon_policy_server.owner.shard_owner import ShardOwner
from memcon_policy_server.sharding import journal_path
from support.owners import eventually
from support.waiting import wait_until

EXIT_FAULT = 70
# Answers each line of its input: "now N" decides without the disk; "durable N" waits for its commit, and before that
# for a look at the journal where the last one is too old.
PROGRAM = """
import asyncio, json, os, pathlib, sys, time
from memcon.errors import MemconError
from memcon.learning.exploration import UcbConfig
from memcon.testing.policy import decide_request
from memcon_policy_server.options import OwnerOptions
from memcon_policy_server.owner.shard_owner import ShardOwner

def say(**what):
    print(json.dumps(what), flush=True)

def fault(error):
    say(fault=type(error).__name__)
    if sys.argv[2] == "ends":
        os._exit(70)

async def main():
    options = OwnerOptions(durable_decides=False, flush_every_s=60.0)
    owner = ShardOwner(pathlib.Path(sys.argv[1]), shard=0, num_shards=1, options=options, on_fault=fault)
    await owner.open_table("table", UcbConfig().learning_settings())
    say(epoch=owner.epoch)
    for line in iter(lambda: None, 0):
        kind, number = (await asyncio.to_thread(sys.stdin.readline)).split()
        try:
            asked = time.monotonic()
            if kind == "now":
                reply = owner.decide_now(decide_request(int(number)))
            else:
                reply = await owner.decide(decide_request(int(number)))
                await owner.served()
            say(reply=reply.action_id, asked=asked)
        except MemconError as error:
            say(refused=type(error).__name__)

asyncio.run(main())
"""


class OtherOwner:
    """An owner in a process of its own."""

    def __init__(self, directory: Path, on_fault: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(directory), on_fault],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.told() == {"epoch": 1}

    def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def ask(self, kind: str, number: int) -> dict[str, Any]:
        """Its answer; what it says of its fault stands before it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{kind} {number}\n")
        self.process.stdin.flush()
        answer = self.told()
        return self.told() if "fault" in answer else answer

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def living(tmp_path: Path) -> Iterator[OtherOwner]:
    other = OtherOwner(tmp_path, "stays")
    yield other
    other.end()


def decisions(directory: Path) -> set[str]:
    journal = SqliteJournal(journal_path(directory, 0), shard=0, num_shards=1, read_only=True)
    try:
        return {row.decision_id for row, _ in journal.read()} - {""}
    finally:
        journal.close()


async def test_an_owner_whose_shard_was_claimed_answers_for_a_second_at_most(
    living: OtherOwner, tmp_path: Path
) -> None:
    assert "reply" in living.ask("durable", 0)
    owner = ShardOwner(tmp_path, shard=0, num_shards=1)
    # The clock is the machine's: both processes read the same.
    claimed, last_reply = time.monotonic(), 0.0

    for number in range(1, 10**6):
        answer = living.ask("now", number)
        if "refused" in answer:
            break
        last_reply = answer["asked"]

    assert answer == {"refused": "MovedError"}
    assert last_reply - claimed <= LEASE_S
    # The claim could come while a commit was on its way; none came after it.
    assert (await owner.decide(decide_request(10**6))).decision_id == "decision-1000000"
    assert decisions(tmp_path) == {"decision-0", "decision-1000000"}
    await owner.close()


async def test_an_owner_that_was_stopped_and_goes_on_answers_nothing(living: OtherOwner, tmp_path: Path) -> None:
    assert "reply" in living.ask("durable", 0)
    living.process.send_signal(signal.SIGSTOP)
    owner = ShardOwner(tmp_path, shard=0, num_shards=1)
    decided = await owner.decide(decide_request(1))
    stopped_at = time.monotonic()
    wait_until(lambda: time.monotonic() - stopped_at > LEASE_S, within_s=5, what="the lease to lapse")

    living.process.send_signal(signal.SIGCONT)

    # Asked before its lease's thread had to wake: it knows by its own clock that it must look first.
    assert [living.ask(kind, 2) for kind in ("now", "durable", "now")] == [{"refused": "MovedError"}] * 3
    assert decisions(tmp_path) == {"decision-0", decided.decision_id}
    await owner.close()


async def test_a_served_owner_ends_its_process_when_its_shard_is_claimed(tmp_path: Path) -> None:
    orphan = OtherOwner(tmp_path, "ends")
    owner = ShardOwner(tmp_path, shard=0, num_shards=1, options=OwnerOptions(durable_decides=False))
    claimed = time.monotonic()

    await eventually(lambda: orphan.process.poll() is not None)

    assert orphan.process.returncode == EXIT_FAULT
    # Nobody asked it for anything; without a lease an orphan lived for 28 s.
    assert time.monotonic() - claimed < 10 * LEASE_S
    await owner.close()
    orphan.end()
