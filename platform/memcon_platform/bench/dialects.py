"""What the load generator says to each server, as ready bytes: HTTP/1.1, JSON, one request a decision or a batch.

All of a request that can be known before is built before: the generator shares its machine with what it measures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from memcon.errors import ConfigError
from memcon.learning import actions
from memcon_platform.bench.contestants import reward_of
from memcon_policy_server import wire

__all__ = ["Dialect", "MemconDialect", "PeerDialect", "address_of"]

_ARMS = actions.action_set("default").action_ids
_INDEX = {arm.encode(): index for index, arm in enumerate(_ARMS)}
# Multiples of it are spread evenly over 64 bits (Weyl): a key that looks random and costs one multiplication.
_STRIDE = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
# Of a decision: its number in hex.
_ID_CHARS = 16


class Dialect(Protocol):
    """Requests of one server about one set of keys. `number` names a decision; no two decisions share one."""

    def decide(self, number: int) -> bytes:
        """The request for one decision."""
        ...

    def outcome(self, number: int, reply: bytes) -> bytes:
        """The request that tells the outcome of the decision that `reply`, the body of its answer, gave."""
        ...

    def batch(self, first: int, size: int) -> bytes:
        """One request for `size` decisions."""
        ...

    def is_good(self, reply: bytes) -> bool:
        """Whether the body of an answer with status 200 to a single request says that it was done."""
        ...

    def is_whole(self, reply: bytes, first: int, size: int) -> bool:
        """Whether such a body answers each decision of a batch, in order."""
        ...


class MemconDialect:
    """Our wire: every decide has an id of its own, every outcome the token of its decide.

    With `mark`, the shard's, all is sent that our client sends to a shard's listener; without one the least that the
    gateway takes, as from curl. A path of `url` stands before every path of the wire.
    """

    def __init__(
        self, url: str, *, table: str, keys: Sequence[str], token: str | None = None, mark: str | None = None
    ) -> None:
        if not keys:
            raise ConfigError(f"the load on {url} has no keys; give at least one")
        host, port = address_of(url)
        prefix = urlsplit(url).path
        fields = {"authorization": token and f"Bearer {token}", wire.SHARD_HEADER: mark}
        self._head = _Head(f"{host}:{port}", fields)
        self._outcome, self._batch = prefix + wire.OUTCOME, prefix + wire.DECIDE_BATCH
        self._sends_all = mark is not None
        self._rewards = _rewards(len(keys))
        self._ends = [f'"table":{json.dumps(table)},"keys":[{json.dumps(key)}]}}'.encode() for key in keys]
        # All decides about a key are equally long.
        self._heads = [self._head.of(prefix + wire.DECIDE, len(self._item(0, end))) for end in self._ends]

    def decide(self, number: int) -> bytes:
        """As `Dialect.decide`."""
        key = _spread(number, len(self._ends))
        return self._heads[key] + self._item(number, self._ends[key])

    def _item(self, number: int, end: bytes) -> bytes:
        if not self._sends_all:
            return b'{"decision_id":"%016x",%b' % (number, end)
        # 19 digits and below 2^64, whatever the number.
        draw = number * _STRIDE % 9_000_000_000_000_000_000 + 1_000_000_000_000_000_000
        before = b'{"decision_id":"%016x","episode_id":"%016x","position":0,"draw":%d,' % (number, number, draw)
        return before + end

    def outcome(self, number: int, reply: bytes) -> bytes:
        """As `Dialect.outcome`."""
        reward = self._rewards[_spread(number, len(self._ends))][_INDEX[_text(reply, b'"action_id":"')]]
        body = b'{"decision_id":"%016x","token":"%b","reward":%b,"position":0,"num_decisions":1}' % (
            number,
            _text(reply, b'"token":"'),
            reward,
        )
        return self._head.of(self._outcome, len(body)) + body

    def batch(self, first: int, size: int) -> bytes:
        """As `Dialect.batch`."""
        ends, count = self._ends, len(self._ends)
        parts = [self._item(number, ends[_spread(number, count)]) for number in range(first, first + size)]
        body = b'{"decides":[%b]}' % b",".join(parts)
        return self._head.of(self._batch, len(body)) + body

    def is_good(self, reply: bytes) -> bool:
        """As `Dialect.is_good`."""
        return b'"error"' not in reply

    def is_whole(self, reply: bytes, first: int, size: int) -> bool:
        """As `Dialect.is_whole`; an error that stands in the place of a decision has no id."""
        answered = [part[:_ID_CHARS] for part in reply.split(b'"decision_id":"')]
        return answered[1:] == [b"%016x" % number for number in range(first, first + size)]


class PeerDialect:
    """The wire of `peers.fastapi_redis`: a context, an arm and a reward; no ids, no token."""

    def __init__(self, url: str, *, contexts: int) -> None:
        host, port = address_of(url)
        self._head = _Head(f"{host}:{port}", {})
        self._rewards = _rewards(contexts)
        bodies = [f'{{"context":"{number}"}}'.encode() for number in range(contexts)]
        self._decides = [self._head.of("/decide", len(body)) + body for body in bodies]

    def decide(self, number: int) -> bytes:
        """As `Dialect.decide`."""
        return self._decides[_spread(number, len(self._decides))]

    def outcome(self, number: int, reply: bytes) -> bytes:
        """As `Dialect.outcome`."""
        context, arm = _spread(number, len(self._decides)), _text(reply, b'"arm":"')
        body = b'{"context":"%d","arm":"%b","reward":%b}' % (context, arm, self._rewards[context][_INDEX[arm]])
        return self._head.of("/outcome", len(body)) + body

    def batch(self, first: int, size: int) -> bytes:
        """Raises ConfigError: it has none."""
        raise ConfigError(f"a batch of {size} from decision {first}: the peer takes none; measure decides or pairs")

    def is_good(self, reply: bytes) -> bool:
        """Its status says all."""
        return bool(reply)

    def is_whole(self, reply: bytes, first: int, size: int) -> bool:
        """As `batch`: it has none."""
        return False


class _Head:
    """Lines of a request before its body."""

    def __init__(self, host: str, fields: Mapping[str, str | None]) -> None:
        lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
        self._fields = "\r\n".join([f"host: {host}", "content-type: application/json", *lines])

    def of(self, path: str, length: int) -> bytes:
        return f"POST {path} HTTP/1.1\r\n{self._fields}\r\ncontent-length: {length}\r\n\r\n".encode()


def address_of(url: str) -> tuple[str, int]:
    """Host and port of an http URL.

    Raises:
        ConfigError: it is none, or has no port.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or parts.scheme != "http":
        raise ConfigError(f"the load needs an address such as http://127.0.0.1:8000, not '{url}'")
    return host, port


def _spread(number: int, count: int) -> int:
    return (((number * _STRIDE) & _MASK) * count) >> 64


def _text(reply: bytes, name: bytes) -> bytes:
    """The text after `name`; ids of arms and tokens need no escapes."""
    begin = reply.index(name) + len(name)
    return reply[begin : reply.index(b'"', begin)]


def _rewards(contexts: int) -> list[list[bytes]]:
    return [[repr(reward_of(context, arm)).encode() for arm in range(len(_ARMS))] for context in range(contexts)]
