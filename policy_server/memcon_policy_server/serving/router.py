"""All shards behind one face: each message goes to the owner of its key, and the answers are put together.

Owns no state of a table. Single decisions and outcomes of one shard that come while one is on its way go together as
the next (`client.batching`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from memcon.errors import MemconError, UnavailableError
from memcon_policy_server import messages, wire
from memcon_policy_server.client.batching import DECIDES, OUTCOMES, Batcher
from memcon_policy_server.client.transport import TRANSIENT
from memcon_policy_server.http.metrics import RouterCounts
from memcon_policy_server.serving.links import LinkedTransport
from memcon_policy_server.shard_map import ShardMap
from memcon_policy_server.sharding import shard_of_keys, shard_of_token

__all__ = ["Reply", "ShardRouter"]

# An owner's reply, or {"error", "message"} in its place, as plain data.
Reply: TypeAlias = Mapping[str, Any]
Keyed: TypeAlias = messages.Decide | messages.Outcome | messages.Cancel


# A batch for several shards does not wait longer for one of them: the others' answers are there. Shorter than a
# client's own try, which would otherwise be lost whole for as long as one owner is away.
PART_PATIENCE_S = 1.0


class ShardRouter:
    """Sends each message to the owner of its key; belongs to one event loop.

    A request is repeated while its owner is away, until its caller gives up; every one may be, since owners know
    decisions by their ids.
    """

    def __init__(self, transport: LinkedTransport, num_shards: int) -> None:
        self.num_shards = num_shards
        self.counts = RouterCounts()
        self._transport = transport
        self._decides = [Batcher(transport, shard, DECIDES) for shard in range(num_shards)]
        self._outcomes = [Batcher(transport, shard, OUTCOMES) for shard in range(num_shards)]

    async def decide(self, message: messages.Decide) -> Reply:
        """The owner's reply.

        Raises:
            MemconError: what the owner raised.
        """
        self.counts.decisions += 1
        reply: Reply = await self._decides[self._shard_of(message)].ask(msgspec.json.encode(message))
        return reply

    async def outcome(self, message: messages.Outcome) -> Reply:
        """As `decide`."""
        self.counts.outcomes += 1
        reply: Reply = await self._outcomes[self._shard_of(message)].ask(msgspec.json.encode(message))
        return reply

    async def decides(self, items: Sequence[messages.Decide]) -> list[Reply]:
        """Replies in order, each an owner's or its own error; those of one shard are decided in order."""
        self.counts.decisions += len(items)
        return await self._together(wire.DECIDE_BATCH, DECIDES.field, items)

    async def outcomes(self, items: Sequence[messages.Outcome]) -> list[Reply]:
        """Replies in order, each an owner's or its own error."""
        self.counts.outcomes += len(items)
        return await self._together(wire.OUTCOMES, OUTCOMES.field, items)

    async def cancel(self, message: messages.Cancel) -> Reply:
        """The owner's reply."""
        reply: Reply = await self._ask(self._shard_of(message), wire.CANCEL, message)
        return reply

    async def everywhere(self, path: str, message: messages.Message) -> list[Reply]:
        """Post `message` to all shards, one after the other: two callers then meet at shard 0 and not half-way."""
        return [await self._ask(shard, path, message) for shard in range(self.num_shards)]

    async def get(self, path: str) -> list[bytes]:
        """The shards' answers to GET `path`, in order of shard.

        Raises:
            MemconError: what an owner raised.
        """
        return await asyncio.gather(*(self._get(shard, path) for shard in range(self.num_shards)))

    async def now(self, shard: int, path: str) -> bytes:
        """One shard's answer to GET `path`, asked once.

        Raises:
            UnavailableError: it does not answer now.
        """
        try:
            return await self._transport.get(shard, path)
        except TRANSIENT as error:
            raise UnavailableError(f"shard {shard} does not answer now: {type(error).__name__}: {error}") from error

    async def shard_map(self) -> ShardMap:
        """Where the owners are now, once all are there."""
        return await self._transport.patiently(self._transport.shard_map)

    async def close(self) -> None:
        """Give up what waits and free the connections."""
        await self._transport.close()
        await asyncio.gather(*(batcher.close() for batcher in (*self._decides, *self._outcomes)))

    # --- one request -------------------------------------------------------------------------------------------------

    def _shard_of(self, message: Keyed) -> int:
        if isinstance(message, messages.Decide):
            return shard_of_keys(message.table, message.keys, self.num_shards)
        return shard_of_token(message.token, self.num_shards)

    async def _get(self, shard: int, path: str) -> bytes:
        return await self._transport.patiently(lambda: self._transport.get(shard, path))

    async def _ask(self, shard: int, path: str, message: object) -> Any:
        body = msgspec.json.encode(message)
        return await self._transport.patiently(lambda: self._transport.post(shard, path, body))

    async def _together(self, path: str, field: str, items: Sequence[Keyed]) -> list[Reply]:
        places: dict[int, list[int]] = {}
        for index, item in enumerate(items):
            places.setdefault(self._shard_of(item), []).append(index)
        patience_s = PART_PATIENCE_S if len(places) > 1 else None
        parts = await asyncio.gather(
            *(
                self._part(shard, path, {field: [items[i] for i in indices]}, patience_s=patience_s)
                for shard, indices in places.items()
            )
        )
        replies: dict[int, Reply] = {}
        for indices, part in zip(places.values(), parts, strict=True):
            replies.update(zip(indices, part, strict=True))
        return [replies[index] for index in range(len(items))]

    async def _part(
        self, shard: int, path: str, message: Mapping[str, Sequence[Keyed]], *, patience_s: float | None
    ) -> Sequence[Reply]:
        """The replies of one shard; when it refuses them together, or not at all, that is the answer of each."""
        try:
            async with asyncio.timeout(patience_s):
                replies: Sequence[Reply] = (await self._ask(shard, path, message))["replies"]
        except (MemconError, TimeoutError) as problem:
            error = problem if isinstance(problem, MemconError) else _away(shard, patience_s)
            _, code = wire.status_of(error)
            [items] = message.values()
            return [{"error": code, "message": str(error)}] * len(items)
        return replies


def _away(shard: int, patience_s: float | None) -> UnavailableError:
    return UnavailableError(f"the owner of shard {shard} did not answer within {patience_s} s; ask for these again")
