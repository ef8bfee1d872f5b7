"""Bodies that no honest client sends, by a seed: good ones with a field changed, lost or added, or torn.

Some are still good. For an owner's listener and for the gateway alike.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import msgspec

from memcon.seeds import Generator, SeedTree
from memcon_policy_server import wire
from support.wire import DECIDE, IMPORT, OPEN, OUTCOME, TABLE

__all__ = ["mutants", "packed"]

_TOKENLESS = {"decision_id": "d", "token": "none"}
_GOOD: list[tuple[str, dict[str, Any]]] = [
    (wire.DECIDE, DECIDE),
    (wire.DECIDE, {"table": TABLE, "decision_id": "d2", "keys": ["key"], "allowed": ["noop"], "explain": True}),
    (wire.DECIDE_BATCH, {"decides": [DECIDE, {**DECIDE, "decision_id": "d3"}]}),
    (wire.OUTCOME, OUTCOME),
    (wire.OUTCOMES, {"outcomes": [OUTCOME, OUTCOME]}),
    (wire.CANCEL, _TOKENLESS),
    (wire.CANCEL_EPISODE, {"table": TABLE, "episode_id": "e9"}),
    (wire.FREEZE_TABLE, {"table": TABLE, "frozen": False}),
    (wire.OPEN_TABLE, OPEN),
    (wire.IMPORT_TABLE, IMPORT),
]
_ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 2**64 - 1, 2**64, 10**40, 0.5, -0.0, 1e-320, 1e308, math.nan,
    math.inf, -math.inf, "", " ", "0", "noop", "\x00", "é\u2028", "\U0001f600", "'; drop table", "../../etc", "{}",
    "x" * 1025, "x" * 5000, [], [None], [[]], ["key", "key"], {}, {"a": {}}, [0] * 300,
]  # fmt: skip
# Text that JSON alone can say, or must not.
_RAW = [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b'"\\ud800"', b'"\\u0000"', b"01", b"0x1", b"1" * 400]
_TEARS = [
    b"\x00",
    b"\xff",
    b"{",
    b"}",
    b"[",
    b'"',
    b"\\",
    b",",
    b"9",
    b"\xc1",
    b"\xdf\xff\xff\xff\xff",
    b"\xed\xa0\x80",
]
_MARK = "@@@@"


def mutants(seed: int, count: int) -> Iterator[tuple[str, bytes, str]]:
    """`count` times (path, body, content-type)."""
    tree = SeedTree(("wire fuzz", seed))
    for index in range(count):
        draw = tree.child(index).generator()
        path, good = draw.choice(_GOOD)
        record = copy.deepcopy(good)
        for _ in range(draw.randint(1, 2)):
            _change(record, draw)
        in_msgpack = draw.random() < 0.4
        body = packed(record) if in_msgpack else _json(record, draw)
        if draw.random() < 0.3:
            body = _torn(body, draw)
        yield path, body, "application/msgpack" if in_msgpack else "application/json"


def _change(record: Any, draw: Generator) -> None:
    """Change one place anywhere below `record`."""
    place = record
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = draw.choice(keys)
        inner = place[key]
        if not (isinstance(inner, dict | list) and inner and draw.random() < 0.8):
            break
        place = inner
    what = draw.randrange(6)
    if what == 0:
        del place[key]
    elif what == 1 and isinstance(place, dict):
        place[draw.choice(["tabel", "", "\x00", "token", "reward"])] = copy.deepcopy(draw.choice(_ODD))
    elif what == 2:
        place[key] = [inner]
    elif what == 3:
        place[key] = _MARK
    else:
        place[key] = copy.deepcopy(draw.choice(_ODD))


def _json(record: Any, draw: Generator) -> bytes:
    body = json.dumps(record).encode()
    return body.replace(f'"{_MARK}"'.encode(), draw.choice(_RAW))


def packed(record: Any) -> bytes:
    """`record` as msgpack; a whole number that has no form there is sent as text."""

    def _fits(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: _fits(item) for key, item in value.items()}
        if isinstance(value, list):
            return [_fits(item) for item in value]
        if value == _MARK:
            return msgspec.msgpack.Ext(5, b"odd")
        return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value

    return msgspec.msgpack.encode(_fits(record))


def _torn(body: bytes, draw: Generator) -> bytes:
    at = draw.randrange(len(body) + 1)
    what = draw.randrange(4)
    if what == 0:
        return body[:at]
    if what == 1:
        return body[:at] + draw.choice(_TEARS) + body[at:]
    if what == 2:
        return body[:at] + bytes([draw.randrange(256)]) + body[at + 1 :]
    return body + body
