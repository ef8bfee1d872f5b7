"""The policy over HTTP: finds the owner of each key, gathers what streams ask at once, retries until its patience ends.

Every request may be repeated: the owner knows decisions by their ids. Needs one HTTP library; neither Ray nor numpy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from memcon import codec
from memcon.errors import ConfigError, MemconError, UnavailableError
from memcon.learning.credit import check_outcome
from memcon.policy_types import (
    CancelRequest,
    DecideReply,
    DecideRequest,
    LearningSettings,
    OutcomeReply,
    OutcomeRequest,
    TableImport,
)
from memcon_policy_server import wire
from memcon_policy_server.client.batching import DECIDES, OUTCOMES, Batcher, BatchKind
from memcon_policy_server.client.transport import Transport
from memcon_policy_server.secret import load_token
from memcon_policy_server.shard_map import ShardMapSource
from memcon_policy_server.sharding import shard_of_keys, shard_of_token

__all__ = ["HttpPolicyClient", "ServedClientFactory"]

T = TypeVar("T")

DEFAULT_PATIENCE_S = 120.0
# One try, connection included: an owner that hangs is asked anew.
ATTEMPT_TIMEOUT_S = 10.0


class HttpPolicyClient:
    """A `PolicyClient` of served shards; belongs to one event loop.

    `abandoned` is told of each decision that was taken after its caller had lost patience: nobody plays it.
    """

    def __init__(
        self,
        shard_map: ShardMapSource,
        *,
        token: str | None = None,
        patience_s: float = DEFAULT_PATIENCE_S,
        attempt_timeout_s: float = ATTEMPT_TIMEOUT_S,
        abandoned: Callable[[DecideReply], None] | None = None,
    ) -> None:
        self._patience_s = patience_s
        self._abandoned = abandoned
        self._transport = Transport(shard_map, token=token, attempt_timeout_s=attempt_timeout_s)
        self._queues: dict[tuple[int, BatchKind], Batcher] = {}

    async def open_table(self, table: str, settings: LearningSettings) -> None:
        """Create `table` at every shard, or check that it exists with equal settings."""
        await self._ask_all(wire.OPEN_TABLE, _body({"table": table, "settings": settings}))

    async def import_table(self, request: TableImport) -> None:
        """Let the open table start from another one's numbers at every shard; safe to repeat."""
        await self._ask_all(wire.IMPORT_TABLE, _body(request))

    async def decide(self, request: DecideRequest) -> DecideReply:
        """Choose and count, once a decision id."""
        body = _body(request)

        async def _ask() -> Any:
            shard = shard_of_keys(request.table, request.keys, await self._transport.num_shards())
            return await self._queue(shard, DECIDES).ask(body)

        return codec.decode(DecideReply, await self._patiently(_ask))

    @property
    def last_failure(self) -> str:
        """Why the last try at a request failed."""
        return self._transport.last_failure

    @property
    def known_shards(self) -> int | None:
        """Number of shards; None until some shard map was read."""
        return self._transport.known_shards

    def shard_of(self, table: str, keys: tuple[str, ...]) -> int | None:
        """Index of the owner of `keys`; None until some shard map was read."""
        num_shards = self.known_shards
        return None if num_shards is None else shard_of_keys(table, keys, num_shards)

    async def outcomes(self, requests: Sequence[OutcomeRequest]) -> Sequence[OutcomeReply]:
        """Credit decisions; all that can be credited are, before the first error is raised."""
        replies = []
        for reply in await self.outcomes_each(requests):
            if isinstance(reply, MemconError):
                raise reply
            replies.append(reply)
        return replies

    async def outcomes_each(self, requests: Sequence[OutcomeRequest]) -> list[OutcomeReply | MemconError]:
        """Credit decisions; for each, in order, its reply or the error with which it was refused.

        Raises:
            ConfigError: a number that no outcome can have; nothing was sent.
        """
        for request in requests:
            # NaN has no JSON form: refused here as the owner would.
            check_outcome(
                request.reward, position=request.position, num_decisions=request.num_decisions, cost=request.cost
            )
        return list(await asyncio.gather(*(self._outcome(request) for request in requests)))

    async def cancel(self, request: CancelRequest) -> bool:
        """Take an open decision back; True if it was open."""
        body = _body(request)

        async def _ask() -> Any:
            shard = shard_of_token(request.token, await self._transport.num_shards())
            return await self._transport.patiently(lambda: self._transport.post(shard, wire.CANCEL, body))

        return bool((await self._patiently(_ask))["cancelled"])

    async def cancel_episode(self, table: str, episode_id: str) -> int:
        """Cancel the episode's open decisions at every shard and refuse later ones; returns how many were open."""
        answers = await self._ask_all(wire.CANCEL_EPISODE, _body({"table": table, "episode_id": episode_id}))
        return sum(int(answer["cancelled"]) for answer in answers)

    async def close(self) -> None:
        """End waiting requests and free connections; may be called twice."""
        self._transport.closed.set()
        for queue in self._queues.values():
            await queue.close()
        await self._transport.close()

    # --- asking ------------------------------------------------------------------------------------------------------

    async def _outcome(self, request: OutcomeRequest) -> OutcomeReply | MemconError:
        async def _ask() -> Any:
            shard = shard_of_token(request.token, await self._transport.num_shards())
            return await self._queue(shard, OUTCOMES).ask(_body(request))

        try:
            return codec.decode(OutcomeReply, await self._patiently(_ask))
        except MemconError as error:
            return error

    def _queue(self, shard: int, kind: BatchKind) -> Batcher:
        queue = self._queues.get((shard, kind))
        if queue is None:
            orphaned = self._on_abandoned if kind is DECIDES and self._abandoned is not None else None
            queue = self._queues[shard, kind] = Batcher(self._transport, shard, kind, orphaned=orphaned)
        return queue

    def _on_abandoned(self, reply: Any) -> None:
        if self._abandoned is not None:
            self._abandoned(codec.decode(DecideReply, reply))

    async def _ask_all(self, path: str, body: bytes) -> list[Any]:
        """Post the same to every shard, one after the other; their answers in order."""
        shards = range(await self._patiently(self._transport.num_shards))
        return [await self._ask_one(shard, path, body) for shard in shards]

    async def _ask_one(self, shard: int, path: str, body: bytes) -> Any:
        post = self._transport.post
        return await self._patiently(lambda: self._transport.patiently(lambda: post(shard, path, body)))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` gives, if it does so within the client's patience.

        Raises:
            UnavailableError: it did not, or the client was closed.
        """
        try:
            async with asyncio.timeout(self._patience_s):
                return await ask()
        except TimeoutError as error:
            raise UnavailableError(
                f"the policy server did not answer within {self._patience_s:g} s "
                f"(last: {self._transport.last_failure}); see its log and run the same command again"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedClientFactory:
    """Makes the client inside a worker process; picklable when its shard map is.

    The bearer token is read there, from the policy folder `directory`: it never travels with the factory.
    """

    shard_map: ShardMapSource
    directory: Path
    patience_s: float = DEFAULT_PATIENCE_S

    def __call__(self) -> HttpPolicyClient:
        """A client of the event loop that runs now.

        Raises:
            MemconError: the folder's token cannot be read.
        """
        return HttpPolicyClient(self.shard_map, token=load_token(self.directory), patience_s=self.patience_s)


def _body(message: object) -> bytes:
    try:
        return codec.encode_json(message).encode()
    except ValueError as error:
        raise ConfigError(f"a request to the policy server holds a number that is not finite: {error}") from error
