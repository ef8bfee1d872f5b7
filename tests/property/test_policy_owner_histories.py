"""Whatever commands meet at an owner: the tables that it served are the fold of its journal, from any snapshot."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from memcon.errors import ConflictError, MemconError, StorageError
from memcon.learning.exploration import UcbConfig
from memcon.policy_types import CancelRequest, DecideReply
from memcon.testing.policy import decide_request, outcome_request
from memcon_policy_server.journal.fold import folded
from memcon_policy_server.options import OwnerOptions
from memcon_policy_server.owner.shard_owner import ShardOwner
from memcon_policy_server.sharding import snapshot_path
from support.owners import HandClock, ticks

SETTINGS = UcbConfig().learning_settings()

# What to do, with which decision, and whether to let what is running go on first.
Step: TypeAlias = tuple[str, int, bool]
STEPS = st.lists(
    st.tuples(st.sampled_from(["now", "decide", "batch", "outcome", "cancel", "episode", "expire", "freeze"]),
              st.integers(0, 11), st.booleans()),
    max_size=60,
)  # fmt: skip


class History:
    """Plays steps at an owner, without waiting for one before the next begins."""

    def __init__(self, owner: ShardOwner) -> None:
        self.owner = owner
        self.replies: dict[int, DecideReply] = {}
        self.running: list[asyncio.Task[None]] = []

    async def play(self, steps: list[Step]) -> None:
        for kind, number, pause in steps:
            self.running.append(asyncio.create_task(self._tolerant(kind, number)))
            if pause:
                await ticks(1)
        await asyncio.gather(*self.running)

    async def _tolerant(self, kind: str, number: int) -> None:
        try:
            await self._do(kind, number)
        except ConflictError:
            return

    async def _do(self, kind: str, number: int) -> None:
        request = decide_request(number, key=f"key {number % 3}", draw=number * 2**59)
        reply = self.replies.get(number)
        if kind == "now" and self.owner.decides_at_once:
            self.replies[number] = self.owner.decide_now(request)
        elif kind in {"now", "decide"}:
            self.replies[number] = await self.owner.decide(request)
        elif kind == "batch":
            answers = await self.owner.decide_batch([request, request])
            if not isinstance(answers[0], MemconError):
                assert answers[1] == answers[0]
                self.replies[number] = answers[0]
        elif kind == "episode":
            await self.owner.cancel_episode("table", f"episode-{number}")
        elif kind == "expire":
            self.owner._expire("table", f"decision-{number}")
        elif kind == "freeze":
            await self.owner.freeze_table("table", number % 2 == 0)
        elif reply is not None and kind == "outcome":
            await self.owner.outcomes([outcome_request(reply, 0.125 * number)])
        elif reply is not None:
            await self.owner.cancel(CancelRequest(decision_id=reply.decision_id, token=reply.token))


async def check(directory: Path, steps: list[Step], *, durable: bool) -> None:
    options = OwnerOptions(
        durable_decides=durable, flush_every_s=0.0, snapshot_every=3, expire_after_s=1e6, default_reward=-0.25
    )
    owner = ShardOwner(directory, shard=0, num_shards=1, options=options, clock=HandClock())
    await owner.open_table("table", SETTINGS)
    await History(owner).play(steps)
    served = await owner.served()
    # As a kill would: the last snapshot is some way behind.
    await owner._commits.drain(StorageError("the owner was killed"))
    owner.release()

    whole, last_seq = folded(directory, 0, 1)
    assert json.dumps(whole.dump("table")) == json.dumps(served["tables"]["table"])
    assert last_seq == served["last_seq"]

    again = ShardOwner(directory, shard=0, num_shards=1, options=options, clock=HandClock())
    assert json.dumps(await again.served()) == json.dumps(served)
    await again.close()
    assert snapshot_path(directory, 0).exists()
    core, _ = folded(directory, 0, 1, from_snapshot=True)
    assert json.dumps(core.dump("table")) == json.dumps(served["tables"]["table"])


@settings(max_examples=15, deadline=None)
@given(steps=STEPS, durable=st.booleans())
def test_the_served_tables_are_the_fold_of_the_journal(steps: list[Step], durable: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(check(Path(directory), steps, durable=durable))
