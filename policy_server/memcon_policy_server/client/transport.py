"""One try at a request to the owner of a shard: where it is, what is sent, what the answer means.

Owns the connections and the shard map. When to try again is its callers' business; that it is safe is the owner's,
which knows decisions by their ids.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import httpx2

from memcon.errors import UnavailableError
from memcon_policy_server import wire
from memcon_policy_server.shard_map import ShardMap, ShardMapSource

__all__ = ["KEEP_ALIVE_S", "NOT_SENT", "TRANSIENT", "Pauses", "Transport", "authorization", "checked", "reply_of"]

T = TypeVar("T")

# What a later try may not meet: no connection, no answer in time, or an owner that says so.
TRANSIENT = (httpx2.TransportError, TimeoutError, UnavailableError)
# Of those, what tells that the request was not sent: nothing can have come of it.
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
# Less than the listener keeps an idle connection.
KEEP_ALIVE_S = 240.0
# What each good answer has, by path. A program that got the port of an owner, or one in front of a server that is away,
# may answer 200 as well.
_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        wire.DECIDE: "decision_id",
        wire.DECIDE_BATCH: "replies",
        wire.OUTCOME: "decision_id",
        wire.OUTCOMES: "replies",
        wire.CANCEL: "cancelled",
        wire.CANCEL_EPISODE: "cancelled",
        wire.TABLES: "tables",
        wire.SHARD_MAP: "shards",
        wire.HEALTH: "status",
    }
)


class Pauses:
    """Growing waits between tries, cut short when the client is closed."""

    def __init__(self, closed: asyncio.Event, longest_s: float = LONGEST_PAUSE_S) -> None:
        self._closed, self._longest_s = closed, longest_s
        self._next_s = FIRST_PAUSE_S

    def start_over(self) -> None:
        """Something worked: the next wait is short again."""
        self._next_s = FIRST_PAUSE_S

    async def wait(self) -> None:
        """Wait, longer each time."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        try:
            async with asyncio.timeout(pause_s):
                await self._closed.wait()
        except TimeoutError:
            return


class Transport:
    """Connections to all shards of one policy; belongs to one event loop."""

    def __init__(self, shard_map: ShardMapSource, *, token: str | None, attempt_timeout_s: float) -> None:
        self._source = shard_map
        self._attempt_timeout_s = attempt_timeout_s
        self._headers = {"content-type": "application/json", **authorization(token)}
        self._map: ShardMap | None = None
        self._num_shards: int | None = None
        self._asking = asyncio.Lock()
        self.closed = asyncio.Event()
        # Why the last try failed, for the error of whoever loses patience.
        self.last_failure = "no try was made"
        # Proxies of the environment must not see the loopback.
        self._http = httpx2.AsyncClient(
            trust_env=False,
            timeout=attempt_timeout_s,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_ALIVE_S),
        )

    async def num_shards(self) -> int:
        """Number of shards: fixed for the life of a policy, so the first map that was read is enough."""
        if self._num_shards is None:
            self._num_shards = len(await self.patiently(self._read_map))
        return self._num_shards

    @property
    def known_shards(self) -> int | None:
        """Number of shards, once some map was read."""
        return self._num_shards

    async def post(self, shard: int, path: str, body: bytes) -> Any:
        """Send once; the reply's JSON.

        Raises:
            MemconError: what the owner raised.
            TransportError, TimeoutError, UnavailableError: one of `TRANSIENT`; the map will be read anew.
        """
        used: ShardMap | None = None
        try:
            async with asyncio.timeout(self._attempt_timeout_s):
                used = self._map or await self._read_map()
                headers = {**self._headers, wire.SHARD_HEADER: wire.shard_mark(shard, len(used))}
                url = used.shards[shard].url + path
                return checked(path, reply_of(await self._http.post(url, content=body, headers=headers)))
        except TRANSIENT as error:
            # The owner may live elsewhere by now.
            if self._map is used:
                self._map = None
            self.last_failure = f"{type(error).__name__}: {error}"
            raise

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` with growing pauses until it answers; the caller bounds how long that may take.

        Raises:
            MemconError: what the owner raised; `UnavailableError` when the client was closed.
        """
        pauses = Pauses(self.closed)
        while not self.closed.is_set():
            try:
                return await attempt()
            except TRANSIENT as error:
                self.last_failure = f"{type(error).__name__}: {error}"
            await pauses.wait()
        raise self.closed_error()

    @staticmethod
    def closed_error() -> UnavailableError:
        """What waits when the client is closed ends with this."""
        return UnavailableError("the policy client is closed; make a new one")

    async def close(self) -> None:
        """End waits and free connections; may be called twice."""
        self.closed.set()
        await self._http.aclose()

    async def _read_map(self) -> ShardMap:
        async with self._asking:
            if self._map is None:
                found = await self._source()
                if self._num_shards not in {None, len(found)}:
                    raise UnavailableError(
                        f"the policy server has {len(found)} shards now, it had {self._num_shards}: it serves another "
                        "folder; start it on the old one, or make a new client"
                    )
                self._map = found
            return self._map


def authorization(token: str | None) -> Mapping[str, str]:
    """The header that bears `token`; none without one."""
    return {} if token is None else {"authorization": f"Bearer {token}"}


def checked(path: str, reply: Any) -> Any:
    """`reply`, if it has the form of a good answer to `path`.

    Raises:
        UnavailableError: no owner gave it.
    """
    if not isinstance(reply, dict) or (path in _FIELDS and _FIELDS[path] not in reply):
        raise UnavailableError(f"{path}: this is no answer of a policy server: {str(reply)[:100]}")
    return reply


def reply_of(response: httpx2.Response) -> Any:
    """The JSON of a good answer.

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
    raise wire.error_of(str(code), str(message))
