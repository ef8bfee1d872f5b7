"""Decision tokens that no owner signed: a signed one with a change, and forged ones of every form, by a seed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from memcon.seeds import Generator, SeedTree

__all__ = ["odd_tokens"]

_TEXTS: list[Any] = [
    "table", "", "none", "key", "d", "noop", "\ud800", "\x00", "é\u2028", "\U0001f600", "~", "|", "k|x", "x" * 3000,
    None, True, 0, -1, 2**63, 1e400, [], {}, [["key"]],
]  # fmt: skip
_KEYS: list[Any] = [
    ["key"], [], ["key", "key"], ["k|x", ["c", 1]], ["k|x", ["c", -1]], ["k|x", ["c", 10**30]], ["\udfff"], [["key"]],
    "key", None, {"key": 1}, ["key"] * 500,
]  # fmt: skip
_POSITIONS: list[Any] = [0, 1, -1, 2**63, 1.5, "0", None, True]
_VERSIONS: list[Any] = [1, 1, 2, 2, 0, 3, 1.0, "1", None, [], True]
_PLACES = ["0", "-1", "+1", " 1", "1_0", "\u0661", "9" * 5000, "1.5", ""]


def odd_tokens(seed: int, count: int, signed: str) -> Iterator[str]:
    """`count` tokens, none of them `signed`, which some are made from."""
    tree = SeedTree(("odd tokens", seed))
    for index in range(count):
        draw = tree.child(index).generator()
        made = draw.choice((_altered, _altered, _as_json, _as_json, _plain))(signed, draw)
        if made != signed:
            yield made


def _altered(signed: str, draw: Generator) -> str:
    at = draw.randrange(len(signed))
    what = draw.randrange(5)
    if what == 0:
        return signed[:at]
    if what == 1:
        return signed[:at] + draw.choice(("~", "A", "=", "\x00", "é", "\U0001f600", " ")) + signed[at:]
    if what == 2:
        return signed[:at] + signed[at + 1 :]
    if what == 3:
        return signed.swapcase()
    return signed[:at] + chr(ord(signed[at]) ^ 1) + signed[at + 1 :]


def _as_json(signed: str, draw: Generator) -> str:
    fields = [
        draw.choice(_VERSIONS),
        draw.choice(_TEXTS[:1] * 10 + _TEXTS),
        draw.choice(_KEYS),
        draw.choice(_TEXTS),
        draw.choice(_POSITIONS),
        draw.choice(_TEXTS),
        draw.choice(_TEXTS),
    ]
    if draw.random() < 0.1:
        del fields[draw.randrange(len(fields))]
    raw = b"[" * 5000 if draw.random() < 0.02 else json.dumps(fields).encode()
    body = base64.urlsafe_b64encode(raw).decode()
    # Form 3 with a JSON body, or forms 1 and 2.
    return (signed[:34] if draw.random() < 0.5 else "s" * 43) + body


def _plain(signed: str, draw: Generator) -> str:
    texts = [text for text in _TEXTS if isinstance(text, str) and "\ud800" not in text]
    fields = ["", *[draw.choice(texts) for _ in range(draw.randint(0, 7))]]
    if len(fields) > 3:
        fields[3] = draw.choice(_PLACES)
    return signed[:34] + "~".join(fields)
