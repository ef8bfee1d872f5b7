"""The signed text that names a decision. Owns its form and its check; holds no state.

It lets an owner credit a decision that died with its process: whoever shows a valid token did get that decision from
an owner with the same secret. Clients read the place (table, keys) from it to find the owner; only the owner verifies.

A coarser key of a chain is written as its label and the places of its components in the finest key: it repeats them,
and a goal type may be long.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from dataclasses import dataclass

from memcon.errors import ConfigError, NotFoundError

__all__ = ["MIN_SECRET_BYTES", "Claims", "check_secret", "read", "sign", "verify"]

MIN_SECRET_BYTES = 16
# 1: one key; 2: a chain.
_VERSIONS = (1, 2)
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_SIGNATURE_CHARS = 43  # 32 bytes in base64 without padding


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a token says about its decision."""

    table: str
    keys: tuple[str, ...]
    action_id: str
    position: int
    decision_id: str
    episode_id: str


def check_secret(secret: bytes) -> None:
    """Refuse a secret that can be guessed.

    Raises:
        ConfigError: fewer than `MIN_SECRET_BYTES` bytes.
    """
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigError(
            f"signing decision tokens: the secret has {len(secret)} bytes, expected at least {MIN_SECRET_BYTES}; "
            "remove the secret file of this run to have a new one made"
        )


def sign(secret: bytes, claims: Claims) -> str:
    """The token of `claims`: URL-safe ASCII, the same for the same secret and claims."""
    chained = len(claims.keys) > 1
    fields = (
        _VERSIONS[chained],
        claims.table,
        _packed(claims.keys) if chained else claims.keys,
        claims.action_id,
        claims.position,
        claims.decision_id,
        claims.episode_id,
    )
    body = base64.urlsafe_b64encode(_ENCODER.encode(fields).encode()).rstrip(b"=")
    return (_signature(secret, body) + body).decode("ascii")


def read(token: str) -> Claims:
    """What `token` claims, *unverified*: good for routing only.

    Raises:
        NotFoundError: the text does not have the form of a token.
    """
    try:
        body = token[_SIGNATURE_CHARS:]
        fields = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        version, table, packed, action_id, position, decision_id, episode_id = fields
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise NotFoundError("reading a decision token: the text is no token; send the one that `decide` gave") from None
    texts = (table, action_id, decision_id, episode_id)
    if version not in _VERSIONS or not all(isinstance(text, str) for text in texts) or type(position) is not int:
        raise NotFoundError(f"reading a decision token: form {version!r} is unknown, expected {_VERSIONS}")
    keys = _unpacked(packed)
    if not keys:
        raise NotFoundError("reading a decision token: it names no state key; send the one that `decide` gave")
    return Claims(
        table=table,
        keys=keys,
        action_id=action_id,
        position=position,
        decision_id=decision_id,
        episode_id=episode_id,
    )


def verify(secret: bytes, token: str) -> Claims:
    """What `token` claims, after its signature was checked in constant time.

    Raises:
        NotFoundError: malformed, altered, or signed with another secret.
    """
    claims = read(token)
    given, body = token[:_SIGNATURE_CHARS].encode("ascii", "replace"), token[_SIGNATURE_CHARS:].encode("ascii")
    if not hmac.compare_digest(given, _signature(secret, body)):
        raise NotFoundError(
            f"decision '{claims.decision_id}': its token is not signed by this owner; send the token that `decide` gave"
        )
    return claims


def _packed(keys: tuple[str, ...]) -> list[str | list[str | int]]:
    """The finest key, then each coarser one as [label, place of a component, ...]; as text where it does not nest."""
    finest = keys[0].split("|")
    packed: list[str | list[str | int]] = [keys[0]]
    for key in keys[1:]:
        label, *parts = key.split("|")
        nests = all(part in finest for part in parts)
        packed.append([label, *[finest.index(part) for part in parts]] if nests else key)
    return packed


def _unpacked(packed: object) -> tuple[str, ...]:
    """The keys that were packed; none when the value has another form."""
    if not isinstance(packed, list) or not packed or not isinstance(packed[0], str):
        return ()
    finest = packed[0].split("|")
    keys = [packed[0], *[_coarser(item, finest) for item in packed[1:]]]
    return tuple([key for key in keys if key is not None]) if None not in keys else ()


def _coarser(item: object, finest: list[str]) -> str | None:
    if isinstance(item, str):
        return item
    if not isinstance(item, list) or not item or not isinstance(item[0], str):
        return None
    places = item[1:]
    if not all(type(place) is int and 0 <= place < len(finest) for place in places):
        return None
    return "|".join([item[0], *[finest[place] for place in places]])


def _signature(secret: bytes, body: bytes) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(secret, body, "sha256")).rstrip(b"=")
