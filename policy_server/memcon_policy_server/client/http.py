"""The policy over HTTP: finds the owner of each key, keeps connections alive, retries until its patience ends.

Every request may be repeated: the owner knows decisions by their ids. Needs one HTTP library; neither Ray nor numpy.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx2

from memcon import codec
from memcon.errors import ConfigError, MemconError, UnavailableError
from memcon.learning.credit import check_outcome
from memcon.policy_types import (
    DecideReply,
    DecideRequest,
    LearningSettings,
    OutcomeReply,
    OutcomeRequest,
    TableImport,
)
from memcon_policy_server import wire
from memcon_policy_server.sharding import by_shard, shard_of_keys

__all__ = ["HttpPolicyClient", "ServedClientFactory", "ShardMapSource"]

# Gives the base URL of each shard, in order of shard, as it is now; raises UnavailableError when it cannot tell.
ShardMapSource: TypeAlias = Callable[[], Awaitable[Sequence[str]]]

DEFAULT_PATIENCE_S = 120.0
# One attempt, connection included: an owner that hangs is asked anew.
ATTEMPT_TIMEOUT_S = 10.0
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
# Less than the listener keeps an idle connection.
KEEP_ALIVE_S = 240.0


class HttpPolicyClient:
    """A `PolicyClient` of served shards; belongs to one event loop."""

    def __init__(self, shard_map: ShardMapSource, *, patience_s: float = DEFAULT_PATIENCE_S) -> None:
        self._shard_map = shard_map
        self._patience_s = patience_s
        self._urls: tuple[str, ...] | None = None
        self._asking = asyncio.Lock()
        self._closed = asyncio.Event()
        # Proxies of the environment must not see the loopback.
        self._http = httpx2.AsyncClient(
            trust_env=False,
            timeout=ATTEMPT_TIMEOUT_S,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_ALIVE_S),
        )

    async def open_table(self, table: str, settings: LearningSettings) -> None:
        """Create `table` at every shard, or check that it exists with equal settings."""
        body = _body({"table": table, "settings": settings})
        for shard in range(await self._num_shards()):
            await self._post(shard, wire.OPEN_TABLE, body)

    async def import_table(self, request: TableImport) -> None:
        """Let the open table start from another one's numbers at every shard; safe to repeat."""
        body = _body(request)
        for shard in range(await self._num_shards()):
            await self._post(shard, wire.IMPORT_TABLE, body)

    async def decide(self, request: DecideRequest) -> DecideReply:
        """Choose and count, once a decision id."""
        shard = shard_of_keys(request.table, request.keys, await self._num_shards())
        return codec.decode(DecideReply, await self._post(shard, wire.DECIDE, _body(request)))

    async def outcomes(self, requests: Sequence[OutcomeRequest]) -> Sequence[OutcomeReply]:
        """Credit decisions; all that can be credited are, before the first error is raised."""
        for request in requests:
            # NaN has no JSON form: refused here as the owner would.
            check_outcome(
                request.reward, position=request.position, num_decisions=request.num_decisions, cost=request.cost
            )
        replies: dict[int, OutcomeReply] = {}
        failed: MemconError | None = None
        for shard, indices in by_shard(requests, await self._num_shards()).items():
            body = _body({"outcomes": [requests[index] for index in indices]})
            try:
                answer = await self._post(shard, wire.OUTCOMES, body)
            except MemconError as error:
                failed = failed or error
            else:
                decoded = [codec.decode(OutcomeReply, record) for record in answer["replies"]]
                replies.update(zip(indices, decoded, strict=True))
        if failed is not None:
            raise failed
        return [replies[index] for index in range(len(requests))]

    async def cancel_episode(self, table: str, episode_id: str) -> int:
        """Cancel the episode's open decisions at every shard and refuse later ones; returns how many were open."""
        body = _body({"table": table, "episode_id": episode_id})
        answers = [await self._post(shard, wire.CANCEL_EPISODE, body) for shard in range(await self._num_shards())]
        return sum(int(answer["cancelled"]) for answer in answers)

    async def close(self) -> None:
        """End waiting requests and free connections; may be called twice."""
        self._closed.set()
        await self._http.aclose()

    # --- one request -------------------------------------------------------------------------------------------------

    async def _num_shards(self) -> int:
        """Number of shards: fixed for a run, so the first map that was read is enough."""
        return len(self._urls or await self._patiently(self._read_map))

    async def _post(self, shard: int, path: str, body: bytes) -> Any:
        async def _attempt() -> Any:
            urls = self._urls or await self._read_map()
            headers = {"content-type": "application/json", wire.SHARD_HEADER: wire.shard_mark(shard, len(urls))}
            try:
                return _reply(await self._http.post(urls[shard] + path, content=body, headers=headers))
            except (httpx2.TransportError, TimeoutError, UnavailableError, asyncio.CancelledError):
                # The owner may live elsewhere by now.
                if self._urls is urls:
                    self._urls = None
                raise

        return await self._patiently(_attempt)

    async def _read_map(self) -> tuple[str, ...]:
        async with self._asking:
            if self._urls is None:
                self._urls = tuple(await self._shard_map())
            return self._urls

    async def _patiently(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat `attempt` with growing pauses until it answers.

        Raises:
            UnavailableError: it did not within the client's patience, or the client was closed.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._patience_s
        pause_s = FIRST_PAUSE_S
        while not self._closed.is_set():
            try:
                async with asyncio.timeout(min(ATTEMPT_TIMEOUT_S, max(deadline - clock(), FIRST_PAUSE_S))):
                    return await attempt()
            except (httpx2.TransportError, TimeoutError, UnavailableError) as error:
                if clock() + pause_s >= deadline:
                    raise UnavailableError(
                        f"the policy server did not answer within {self._patience_s:g} s "
                        f"(last: {type(error).__name__}: {error}); see its log and run the same command again"
                    ) from error
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise UnavailableError("the policy client is closed; make a new one")

    async def _pause(self, seconds: float) -> None:
        """Wait `seconds`, less if the client is closed."""
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedClientFactory:
    """Makes the client inside a worker process; picklable when its shard map is."""

    shard_map: ShardMapSource
    patience_s: float = DEFAULT_PATIENCE_S

    def __call__(self) -> HttpPolicyClient:
        """A client of the event loop that runs now."""
        return HttpPolicyClient(self.shard_map, patience_s=self.patience_s)


def _body(message: object) -> bytes:
    try:
        return codec.encode_json(message).encode()
    except ValueError as error:
        raise ConfigError(f"a request to the policy server holds a number that is not finite: {error}") from error


def _reply(response: httpx2.Response) -> Any:
    """The body of a good answer.

    Raises:
        MemconError: what the owner raised; `UnavailableError` when the answer is not an owner's.
    """
    try:
        record = json.loads(response.content)
        if response.status_code == 200:
            return record
        code, message = record["error"], record["message"]
    except (ValueError, KeyError, TypeError) as error:
        raise UnavailableError(f"status {response.status_code} without the form of an owner's answer") from error
    raise wire.error_of(code, message)
