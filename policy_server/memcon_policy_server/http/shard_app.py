"""What an owner answers to each route. Every decision is the owner's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

import msgspec

from memcon.errors import MemconError
from memcon.policy_types import CancelRequest, DecideRequest, OutcomeRequest
from memcon_policy_server import messages, wire
from memcon_policy_server.http import metrics, openapi
from memcon_policy_server.http.app import HttpApp
from memcon_policy_server.http.routes import Cancelled, CancelledEpisode, Changed, Done, Failure
from memcon_policy_server.options import Limits
from memcon_policy_server.owner.shard_owner import ShardOwner

__all__ = ["PolicyApp", "build_app"]

ReplyT = TypeVar("ReplyT")


def build_app(owner: ShardOwner, *, token: str | None = None, limits: Limits | None = None) -> PolicyApp:
    """The ASGI application of one owner; without a token whoever reaches its port may ask."""
    return PolicyApp(owner, token=token, limits=limits or Limits())


class PolicyApp(HttpApp):
    """The routes of one owner."""

    def __init__(self, owner: ShardOwner, *, token: str | None, limits: Limits) -> None:
        self._owner = owner
        self._document = openapi.document(gateway=False)
        super().__init__(
            {
                wire.OPEN_TABLE: self._open_table,
                wire.IMPORT_TABLE: self._import_table,
                wire.FREEZE_TABLE: self._freeze_table,
                wire.DECIDE: self._decide,
                wire.DECIDE_BATCH: self._decide_batch,
                wire.OUTCOME: self._outcome,
                wire.OUTCOMES: self._outcomes,
                wire.CANCEL: self._cancel,
                wire.CANCEL_EPISODE: self._cancel_episode,
                wire.TABLES: self._tables,
                wire.HEALTH: self._health,
                wire.METRICS: self._metrics,
                wire.OPENAPI: self._openapi,
            },
            token=token,
            limits=limits,
            mark=wire.shard_mark(owner.shard, owner.num_shards),
            busy_poll_us=owner.options.busy_poll_us,
        )
        for path in (wire.DECIDE, wire.DECIDE_BATCH, wire.OUTCOME, wire.OUTCOMES):
            self.quick_later(path)
        if not owner.options.durable_decides:
            self.quick_at_once(wire.DECIDE, owner.decide_now)
            self.quick_at_once(wire.DECIDE_BATCH, self._decide_batch_now)

    async def _open_table(self, message: messages.OpenTable) -> object:
        await self._owner.open_table(message.table, message.learning_settings())
        return Done()

    async def _import_table(self, message: messages.ImportTable) -> object:
        await self._owner.import_table(message.request())
        return Done()

    async def _freeze_table(self, message: messages.FreezeTable) -> object:
        return Changed(changed=await self._owner.freeze_table(message.table, frozen=message.frozen))

    # The messages have the fields of the requests, and no copy of them is made: see `messages`.

    async def _decide(self, message: messages.Decide) -> object:
        return await self._owner.decide(cast(DecideRequest, message))

    def _decide_batch_now(self, message: messages.DecideBatch) -> object:
        self.check_batch(message.decides)
        return _each(self._owner.decide_batch_now(cast(Sequence[DecideRequest], message.decides)))

    async def _decide_batch(self, message: messages.DecideBatch) -> object:
        self.check_batch(message.decides)
        return _each(await self._owner.decide_batch(cast(Sequence[DecideRequest], message.decides)))

    async def _outcome(self, message: messages.Outcome) -> object:
        (reply,) = await self._owner.outcomes([cast(OutcomeRequest, message)])
        if isinstance(reply, MemconError):
            raise reply
        return reply

    async def _outcomes(self, message: messages.Outcomes) -> object:
        self.check_batch(message.outcomes)
        return _each(await self._owner.outcomes(cast(Sequence[OutcomeRequest], message.outcomes)))

    async def _cancel(self, message: messages.Cancel) -> object:
        return Cancelled(cancelled=await self._owner.cancel(cast(CancelRequest, message)))

    async def _cancel_episode(self, message: messages.CancelEpisode) -> object:
        return CancelledEpisode(cancelled=await self._owner.cancel_episode(message.table, message.episode_id))

    async def _tables(self, message: messages.TablesQuery) -> object:
        place = {"shard": self._owner.shard, "num_shards": self._owner.num_shards}
        if message.table is msgspec.UNSET:
            return {**place, "tables": await self._owner.tables()}
        key = None if message.key is msgspec.UNSET else message.key
        served = await self._owner.served(message.table, key)
        return {**place, "last_seq": served["last_seq"], "tables": served["tables"]}

    async def _health(self, _: messages.Nothing) -> object:
        return self._owner.health()

    async def _metrics(self, _: messages.Nothing) -> object:
        shard = {"shard": str(self._owner.shard)}
        return metrics.owner_text(self._owner.metrics()) + metrics.requests_text(self.answered, shard)

    async def _openapi(self, _: messages.Nothing) -> object:
        return self._document


def _each(replies: Sequence[ReplyT | MemconError]) -> dict[str, list[ReplyT | Failure]]:
    return {"replies": [_failure(reply) if isinstance(reply, MemconError) else reply for reply in replies]}


def _failure(error: MemconError) -> Failure:
    return Failure(error=wire.status_of(error)[1], message=wire.message_of(error))
