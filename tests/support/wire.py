"""What tests say on the wire: a client without any retry, the smallest good bodies, and bad ones with what is named.

The cases hold for an owner's listener and for the gateway alike: everything here needs a base URL only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from typing import Any

import httpx2
import msgspec

from memcon import codec
from memcon.learning.exploration import UcbConfig
from memcon.testing.policy import state_keys
from memcon_policy_server import wire

__all__ = ["BAD_JSON", "BAD_MSGPACK", "DECIDE", "IMPORT", "KEY", "OPEN", "OUTCOME", "ROW", "TABLE", "Wire", "said"]

TABLE = "table"
(KEY,) = state_keys(1)
OPEN: dict[str, Any] = {"table": TABLE, "settings": codec.encode(UcbConfig().learning_settings())}
DECIDE: dict[str, Any] = {
    "table": TABLE,
    "decision_id": "d",
    "episode_id": "e",
    "position": 0,
    "keys": ["key"],
    "draw": 2**64 - 1,
}
OUTCOME: dict[str, Any] = {"decision_id": "d", "token": "", "reward": 1.0, "position": 0, "num_decisions": 1}
ROW: dict[str, Any] = {"q": (0.75).hex(), "taken": 2, "credited": 2, "squares": (1.0).hex()}
IMPORT: dict[str, Any] = {"table": TABLE, "source": "an earlier run", "numbers": {KEY: {"noop": ROW}}}
_SETTINGS: dict[str, Any] = OPEN["settings"]

# (path, body, what the message names)
BAD_JSON: list[tuple[str, Any, str]] = [
    (wire.DECIDE, b"", "truncated"),
    (wire.DECIDE, b"{", "truncated"),
    (wire.DECIDE, b"\xff", "malformed"),
    (wire.DECIDE, b"[]", "Expected `object`"),
    (wire.DECIDE, json.dumps(DECIDE).encode() + b"x", "trailing"),
    (wire.DECIDE, {**DECIDE, "tabel": "x"}, "tabel"),
    (wire.DECIDE, {key: DECIDE[key] for key in DECIDE if key != "keys"}, "keys"),
    (wire.DECIDE, {**DECIDE, "position": -1}, "$.position"),
    (wire.DECIDE, {**DECIDE, "position": 1.5}, "$.position"),
    (wire.DECIDE, {**DECIDE, "position": True}, "$.position"),
    (wire.DECIDE, {**DECIDE, "position": 2**53}, "$.position"),
    (wire.DECIDE, {**DECIDE, "draw": 2**64}, "draw"),
    (wire.DECIDE, {**DECIDE, "draw": -1}, "$.draw"),
    (wire.DECIDE, {**DECIDE, "draw": None}, "$.draw"),
    (wire.DECIDE, {**DECIDE, "keys": []}, "$.keys"),
    (wire.DECIDE, {**DECIDE, "keys": [1]}, "$.keys[0]"),
    (wire.DECIDE, {**DECIDE, "keys": ["fine", "coarse"]}, "key"),
    (wire.DECIDE, {**DECIDE, "keys": ["x" * 1025]}, "$.keys[0]"),
    (wire.DECIDE, {**DECIDE, "decision_id": "x" * 1025}, "$.decision_id"),
    (wire.DECIDE, {**DECIDE, "allowed": ["sing"]}, "sing"),
    (wire.DECIDE, {**DECIDE, "allowed": []}, "allowed"),
    (wire.DECIDE, {**DECIDE, "episode_id": ""}, "$.episode_id"),
    (wire.DECIDE, {**DECIDE, "decision_id": ""}, "$.decision_id"),
    (wire.DECIDE_BATCH, {"decides": [DECIDE, {**DECIDE, "keys": []}]}, "$.decides[1].keys"),
    (wire.DECIDE_BATCH, {"replies": []}, "replies"),
    (wire.OUTCOME, {**OUTCOME, "reward": "1"}, "$.reward"),
    (wire.OUTCOME, {**OUTCOME, "reward": None}, "$.reward"),
    (wire.OUTCOME, {**OUTCOME, "num_decisions": 0}, "$.num_decisions"),
    (wire.OUTCOME, {**OUTCOME, "cost": -1e300}, "$.cost"),
    (wire.OUTCOMES, {"outcomes": [OUTCOME, {**OUTCOME, "reward": 1e300}]}, "$.outcomes[1].reward"),
    (wire.OUTCOMES, b'{"outcomes":[{"decision_id":"d","token":"","reward":NaN}]}', "invalid character"),
    (wire.OUTCOMES, b'{"outcomes":[{"decision_id":"d","token":"","reward":-Infinity}]}', "invalid"),
    (wire.OUTCOMES, b'{"outcomes":[{"decision_id":"d","token":"","reward":1e999}]}', "$.outcomes[0].reward"),
    (wire.CANCEL, {"decision_id": "d"}, "token"),
    (wire.CANCEL_EPISODE, {"table": TABLE}, "episode_id"),
    (wire.FREEZE_TABLE, {"table": TABLE, "frozen": "yes"}, "$.frozen"),
    (wire.OPEN_TABLE, {"table": "t", "settings": {}}, "rule"),
    (wire.OPEN_TABLE, {"table": "", "settings": _SETTINGS}, "$.table"),
    (wire.OPEN_TABLE, {"table": "t", "settings": {**_SETTINGS, "rule": "ubc"}}, "ubc"),
    (wire.OPEN_TABLE, {"table": "t", "settings": {**_SETTINGS, "alpha": 2.0}}, "alpha"),
    (wire.IMPORT_TABLE, {**IMPORT, "cap": 20}, "cap"),
    (wire.IMPORT_TABLE, {**IMPORT, "source": ""}, "source"),
    (wire.IMPORT_TABLE, {**IMPORT, "numbers": {KEY: {"noop": {**ROW, "credited": -1}}}}, "$.numbers[...]"),
    (wire.IMPORT_TABLE, {**IMPORT, "numbers": {KEY: {"noop": {**ROW, "q": 0.5}}}}, "$.numbers[...]"),
    (wire.IMPORT_TABLE, {**IMPORT, "numbers": {KEY: {"noop": {**ROW, "q": "inf"}}}}, "finite"),
    (wire.IMPORT_TABLE, {**IMPORT, "numbers": {"": {"noop": ROW}}}, "key"),
]
# What JSON cannot say.
BAD_MSGPACK: list[tuple[str, Any, str]] = [
    (wire.OUTCOME, {**OUTCOME, "reward": math.nan}, "$.reward"),
    (wire.OUTCOME, {**OUTCOME, "reward": math.inf}, "$.reward"),
    (wire.OUTCOME, {**OUTCOME, "cost": -math.inf}, "$.cost"),
    (wire.OUTCOME, {**OUTCOME, "decision_id": b"d"}, "$.decision_id"),
    (wire.OUTCOME, {**OUTCOME, "token": msgspec.msgpack.Ext(1, b"x")}, "$.token"),
    (wire.OPEN_TABLE, {"table": "t", "settings": {**_SETTINGS, "alpha": math.nan}}, "$.settings.alpha"),
    (wire.OPEN_TABLE, {"table": "t", "settings": {**_SETTINGS, "priors": [math.nan] * 9}}, "$.settings.priors[0]"),
    (wire.OPEN_TABLE, {"table": "t", "settings": {**_SETTINGS, "rule_parameters": {"c": math.inf}}}, "$.settings"),
    (wire.DECIDE, {**DECIDE, 1: 2}, "$"),
    (wire.DECIDE, b"\xc1", "malformed"),
    (wire.DECIDE, b"\xdf\xff\xff\xff\xff", "truncated"),
    (wire.DECIDE, msgspec.msgpack.encode(DECIDE) + b"\x00", "trailing"),
]


class Wire:
    """Plain requests to one base URL; nothing is sent twice."""

    def __init__(self, base_url: str, *, token: str | None = None) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self.http = httpx2.AsyncClient(trust_env=False, base_url=base_url, headers=headers, timeout=50.0)

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        """Status and reply; `body` is bytes, or what is sent as JSON, or as msgpack if the content-type says so."""
        kind = headers.pop("content_type", "application/json")
        packed = kind == "application/msgpack"
        if not isinstance(body, bytes):
            body = msgspec.msgpack.encode(body) if packed else json.dumps(body).encode()
        response = await self.http.post(path, content=body, headers={"content-type": kind, **headers})
        return response.status_code, read(response)

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and reply."""
        response = await self.http.get(path)
        return response.status_code, read(response)

    async def close(self) -> None:
        """Free the connections."""
        await self.http.aclose()


def read(response: httpx2.Response) -> Any:
    """The body in the form that its content-type says."""
    kind = response.headers["content-type"]
    if kind == "application/msgpack":
        return msgspec.msgpack.decode(response.content)
    return json.loads(response.content) if kind == "application/json" else response.text


async def said(base_url: str, data: bytes, *, until_closed: bool = False) -> bytes:
    """What the server answers to the bytes `data`: its first piece, or all until it closes the connection.

    A server that closes before it has read all may reset the connection: b"" then.
    """
    parts = base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(parts[0], int(parts[1]))
    answer = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        writer.write(data)
        await writer.drain()
        answer = await (reader.read() if until_closed else reader.read(1 << 16))
    writer.close()
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        await writer.wait_closed()
    return answer
