"""kill -9 of an owner while it answers: everything that it acknowledged is in the journal, exactly once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.owner.shard_owner import ShardOwner
from memcon_policy_server.sharding import journal_path

pytestmark = pytest.mark.fault

# Eight streams decide and credit without end; each acknowledgement is one line.
PROGRAM = """
import asyncio, pathlib, sys
from memcon.learning.exploration import UcbConfig
from memcon.testing.policy import decide_request, outcome_request
from memcon_policy_server.client.local import LocalPolicyClient

async def stream(client, place):
    for number in range(place * 10**6, (place + 1) * 10**6):
        decision = await client.decide(decide_request(number, key=f"key {number % 5}"))
        await client.outcomes([outcome_request(decision, 1.0)])
        print(decision.decision_id, flush=True)

async def main():
    client = LocalPolicyClient(pathlib.Path(sys.argv[1]), 1)
    await client.open_table("table", UcbConfig().learning_settings())
    await asyncio.gather(*(stream(client, place) for place in range(8)))

asyncio.run(main())
"""


def acknowledged_before_kill(directory: Path, at_least: int) -> list[str]:
    """Decisions that the program had reported when it was killed, some time after `at_least` of them."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(directory)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seen = [process.stdout.readline().strip() for _ in range(at_least)]
    process.kill()
    # The last line may be cut.
    seen += process.stdout.read().split("\n")[:-1]
    process.wait()
    process.stdout.close()
    return seen


@pytest.mark.parametrize("at_least", [1, 40, 150])
async def test_what_was_acknowledged_before_a_kill_is_in_the_journal_once(tmp_path: Path, at_least: int) -> None:
    seen = await asyncio.to_thread(acknowledged_before_kill, tmp_path, at_least)

    owner = ShardOwner(tmp_path, shard=0, num_shards=1)
    tables = await owner.served()
    await owner.close()
    journal = SqliteJournal(journal_path(tmp_path, 0), shard=0, num_shards=1, read_only=True)
    credited = Counter(row.decision_id for row, _ in journal.read() if row.kind == "credited")
    journal.close()

    assert set(seen) <= set(credited)
    assert set(credited.values()) == {1}
    # At most one acknowledgement a stream was on its way, and one line may have been cut.
    assert len(credited) <= len(seen) + 9
    assert set(tables["tables"]["table"]["closed"]) == set(credited)
