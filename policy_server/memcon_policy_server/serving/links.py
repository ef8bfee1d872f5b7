"""Kept connections from the gateway to the owners' listeners: one request at a time each, its bytes made here.

An HTTP library's own work was more than the rest of a forwarded request (measured: 0.35 against 0.05 ms). Only what our
listener sends is understood: HTTP/1.1 with a content-length.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from memcon.errors import UnavailableError
from memcon_policy_server import wire
from memcon_policy_server.client.transport import TRANSIENT, Transport, checked
from memcon_policy_server.shard_map import ShardMap, ShardMapSource

__all__ = ["LinkedTransport"]

# Between the head of an answer and its body.
_END = b"\r\n\r\n"


class LinkedTransport(Transport):
    """A `Transport` over connections of its own."""

    def __init__(self, shard_map: ShardMapSource, *, token: str, attempt_timeout_s: float) -> None:
        super().__init__(shard_map, token=token, attempt_timeout_s=attempt_timeout_s)
        self._authorization = f"authorization: Bearer {token}\r\n"
        # Idle connections by base URL, and the heads of requests by what they depend on.
        self._idle: dict[str, list[_Link]] = {}
        self._heads: dict[tuple[str, str, int], bytes] = {}

    async def post(self, shard: int, path: str, body: bytes) -> Any:
        """As `Transport.post`."""
        answer = await self._try(shard, "POST", path, body)
        try:
            return checked(path, msgspec.json.decode(answer))
        except (msgspec.DecodeError, UnavailableError) as error:
            # Another program has the port by now.
            self._map = None
            raise UnavailableError(f"what answered is no owner: {error}") from error

    async def get(self, shard: int, path: str) -> bytes:
        """Send once; the reply's body, whatever its form.

        Raises:
            MemconError, UnavailableError: as in `post`.
        """
        return await self._try(shard, "GET", path, b"")

    async def shard_map(self) -> ShardMap:
        """The map as it is now; read anew.

        Raises:
            UnavailableError: some shard is not up.
        """
        self._map = None
        return await self._read_map()

    async def close(self) -> None:
        """End waits and free connections; may be called twice."""
        await super().close()
        for links in self._idle.values():
            for link in links:
                link.close()
        self._idle.clear()

    async def _try(self, shard: int, method: str, path: str, body: bytes) -> bytes:
        used: ShardMap | None = None
        try:
            async with asyncio.timeout(self._attempt_timeout_s):
                used = self._map or await self._read_map()
                url = used.shards[shard].url
                head = self._head(f"{method} {path}", url, shard, len(used))
                status, answer = await self._exchange(url, b"%b%d\r\n\r\n%b" % (head, len(body), body))
            if status != 200:
                raise _refusal(status, answer)
        except TRANSIENT as error:
            # The owner may live elsewhere by now.
            if self._map is used:
                self._map = None
            self.last_failure = f"{type(error).__name__}: {error}"
            raise
        return answer

    async def _exchange(self, url: str, request: bytes) -> tuple[int, bytes]:
        idle = self._idle.setdefault(url, [])
        while idle and not idle[-1].open:
            # Its owner closes one that was idle for long: a try at each would cost the pause of a failure.
            idle.pop()
        link = idle.pop() if idle else await _connect(url)
        try:
            answer = await link.ask(request)
        except BaseException:
            # An answer that is still to come must not be taken for the next one.
            link.close()
            raise
        if link.open and not self.closed.is_set():
            idle.append(link)
        return answer

    def _head(self, call: str, url: str, shard: int, num_shards: int) -> bytes:
        """The request's head, up to the length of its body."""
        place = (call, url, shard)
        head = self._heads.get(place)
        if head is None:
            if len(self._heads) > 1000:
                # Every restart of an owner has a URL of its own.
                self._heads.clear()
                self._idle = {known: links for known, links in self._idle.items() if known == url}
            head = self._heads[place] = (
                f"{call} HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\ncontent-type: application/json\r\n"
                f"{self._authorization}{wire.SHARD_HEADER}: {wire.shard_mark(shard, num_shards)}\r\ncontent-length: "
            ).encode()
        return head


class _Link(asyncio.Protocol):
    """One connection with at most one request on its way."""

    def __init__(self) -> None:
        self.open = False
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._received = bytearray()
        # Status of the answer that arrives now, and where its body begins and ends.
        self._status, self._begin, self._end = 0, 0, -1

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to `request`.

        Raises:
            UnavailableError: the connection broke first, or what came is no answer of a listener.
        """
        if self._transport is None or not self.open:
            raise UnavailableError("the connection to the owner was closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self.open, self._transport = True, cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._fail(f"the connection to the owner broke ({exc or 'closed'})")

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._end < 0 and not self._read_head():
            return
        if len(self._received) < self._end:
            return
        answer = self._status, bytes(self._received[self._begin : self._end])
        del self._received[: self._end]
        self._end = -1
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _read_head(self) -> bool:
        """Take status and length from the head, once it is whole."""
        size = self._received.find(_END)
        if size < 0:
            return False
        lines = bytes(self._received[:size]).lower().split(b"\r\n")
        fields = dict(line.partition(b":")[::2] for line in lines[1:])
        try:
            self._status = int(lines[0].split(b" ", 2)[1])
            length = int(fields[b"content-length"])
        except (ValueError, KeyError, IndexError):
            self._fail("what answered is no listener of an owner")
            self.close()
            return False
        if fields.get(b"connection", b"").strip() == b"close":
            self.open = False
        self._begin = size + len(_END)
        self._end = self._begin + length
        return True

    def _fail(self, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(UnavailableError(reason))


async def _connect(url: str) -> _Link:
    place = urlsplit(url)
    try:
        _, link = await asyncio.get_running_loop().create_connection(_Link, place.hostname or "", place.port or 80)
    except OSError as error:
        raise UnavailableError(f"no connection to the owner at {url}: {error.strerror or error}") from error
    return link


def _refusal(status: int, answer: bytes) -> Exception:
    """What the owner raised; `UnavailableError` when the answer is not an owner's."""
    try:
        record = msgspec.json.decode(answer)
        return wire.error_of(str(record["error"]), str(record["message"]))
    except (ValueError, KeyError, TypeError):
        return UnavailableError(f"status {status} without the form of an owner's answer")
