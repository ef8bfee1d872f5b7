"""A fake policy client over pure shards, and requests for it; its contract is `memcon.testing.policy_contract`."""

from __future__ import annotations

from collections.abc import Sequence

from memcon import ids
from memcon.errors import UnavailableError
from memcon.learning import decision_token, state_key
from memcon.learning.events import Event
from memcon.learning.shard import Handled, PolicyShard
from memcon.policy_types import (
    CancelRequest,
    DecideReply,
    DecideRequest,
    LearningSettings,
    OutcomeReply,
    OutcomeRequest,
    TableImport,
)
from memcon.types import StateFeatures

__all__ = [
    "FakePolicyClient",
    "cancel_request",
    "decide_request",
    "outcome_request",
    "state_keys",
    "table_import",
]


def decide_request(
    number: int, *, table: str = "table", key: str = "key", episode_id: str = "", position: int = 0, draw: int = 0
) -> DecideRequest:
    """A request with the id "decision-<number>"; by default each is the first decision of its own episode."""
    return DecideRequest(
        table=table,
        decision_id=f"decision-{number}",
        episode_id=episode_id or f"episode-{number}",
        position=position,
        keys=(key,),
        draw=draw,
        explain=True,
    )


def outcome_request(
    reply: DecideReply, reward: float, *, position: int = 0, num_decisions: int = 1, cost: float = 0.0
) -> OutcomeRequest:
    """The outcome of the decision that `reply` answered."""
    return OutcomeRequest(
        decision_id=reply.decision_id,
        token=reply.token,
        reward=reward,
        position=position,
        num_decisions=num_decisions,
        cost=cost,
    )


def cancel_request(reply: DecideReply) -> CancelRequest:
    """The cancel of the decision that `reply` answered."""
    return CancelRequest(decision_id=reply.decision_id, token=reply.token)


def state_keys(count: int) -> list[str]:
    """`count` different keys of the paper's schema."""
    return [
        state_key.key_text(
            "paper",
            StateFeatures(
                goal_type=f"type {number}",
                step=0,
                is_stuck=False,
                objects_held=0,
                locations_visited=0,
                memory_size=0,
                plan_available=False,
                task_number=1,
            ),
        )
        for number in range(count)
    ]


def table_import(keys: Sequence[str], *, table: str = "table", source: str = "an earlier run") -> TableImport:
    """Numbers at `keys`: "noop" is known to be good, from four outcomes; the other arms were never taken."""
    known: dict[str, str | int] = {"q": (0.75).hex(), "taken": 4, "credited": 4, "squares": (2.5).hex()}
    return TableImport(table=table, source=source, numbers={key: {"noop": known} for key in keys})


class FakePolicyClient:
    """PolicyClient over in-memory shards: real decisions, no journal file, no network.

    `events[i]` is what shard i would have journaled. While `down` is set every call is refused as by an owner that
    does not answer.
    """

    def __init__(self, num_shards: int = 1, *, secret: bytes = b"secret of a fake policy client") -> None:
        self.shards = tuple(PolicyShard(shard, num_shards, secret) for shard in range(num_shards))
        self.events: tuple[list[Event], ...] = tuple([] for _ in self.shards)
        self.down = False
        self.closed = False

    async def open_table(self, table: str, settings: LearningSettings) -> None:
        self._check_up()
        for shard, owner in enumerate(self.shards):
            self._keep(shard, owner.open_table(table, settings))

    async def import_table(self, request: TableImport) -> None:
        self._check_up()
        for shard, owner in enumerate(self.shards):
            self._keep(shard, owner.import_table(request))

    async def decide(self, request: DecideRequest) -> DecideReply:
        self._check_up()
        shard = self._shard_of(request.table, request.keys)
        handled = self.shards[shard].decide(request)
        self._keep(shard, handled)
        return handled.reply

    async def outcomes(self, requests: Sequence[OutcomeRequest]) -> Sequence[OutcomeReply]:
        self._check_up()
        replies = []
        for request in requests:
            claims = decision_token.read(request.token)
            shard = self._shard_of(claims.table, claims.keys)
            handled = self.shards[shard].outcome(request)
            self._keep(shard, handled)
            replies.append(handled.reply)
        return replies

    async def cancel(self, request: CancelRequest) -> bool:
        self._check_up()
        claims = decision_token.read(request.token)
        shard = self._shard_of(claims.table, claims.keys)
        handled = self.shards[shard].cancel(request)
        self._keep(shard, handled)
        return handled.reply

    async def cancel_episode(self, table: str, episode_id: str) -> int:
        self._check_up()
        cancelled = 0
        for shard, owner in enumerate(self.shards):
            handled = owner.cancel_episode(table, episode_id)
            self._keep(shard, handled)
            cancelled += handled.reply
        return cancelled

    async def close(self) -> None:
        self.closed = True

    def _shard_of(self, table: str, keys: tuple[str, ...]) -> int:
        # Without a key there is no owner; any shard says so.
        return ids.shard_of(table, keys[-1], len(self.shards)) if keys else 0

    def _keep(
        self,
        shard: int,
        handled: Handled[None] | Handled[DecideReply] | Handled[OutcomeReply] | Handled[bool] | Handled[int],
    ) -> None:
        self.events[shard].extend(handled.events)

    def _check_up(self) -> None:
        if self.down or self.closed:
            raise UnavailableError("the fake policy client is " + ("closed" if self.closed else "down"))
