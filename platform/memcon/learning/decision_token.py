"""The signed text that names a decision. Owns its form and its check; holds no state.

It lets an owner credit a decision that died with its process: whoever shows a valid token did get that decision from
an owner with the same secret. Clients read the place (table, keys) from it to find the owner; only the owner verifies.

A coarser key of a chain is written as its label and the places of its components in the finest key: it repeats them,
and a goal type may be long.

Form 3, what `sign` gives: "3.", 32 hex digits of a keyed blake2b, and the body that they sign: the fields as they are,
each behind a "~". A body with a field that this cannot hold (a "~", a letter beyond ASCII) is base64 of JSON.
Forms 1 (one key) and 2 (a chain) are a SHA-256 HMAC and such a JSON body; stopped runs have them in their outboxes.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Protocol

from memcon.errors import ConfigError, NotFoundError

__all__ = ["MIN_SECRET_BYTES", "Claims", "check_secret", "read", "same", "sign", "table_of", "verify"]

MIN_SECRET_BYTES = 16
# Of a JSON body. 1: one key; 2: a chain.
_VERSIONS = (1, 2)
_ENCODER = json.JSONEncoder(separators=(",", ":"))
# Of forms 1 and 2: 32 bytes in base64 without padding.
_HMAC_CHARS = 43
# No text in base64 has a point, so that neither form can be taken for the other.
_MARK = "3."
_MAC_BYTES = 16
_BODY = len(_MARK) + 2 * _MAC_BYTES
_SEPARATOR = "~"
# Of a plain body up to its position; a server has some tables with some arms each.
_MOST_BEGINNINGS = 4096
_PLACE_SEPARATOR = ","
_MOST_KEY_BYTES = 64
_NO_TOKEN = "reading a decision token: the text is no token; send the one that `decide` gave"


# Not frozen: each outcome makes one.
@dataclass(slots=True, kw_only=True)
class Claims:
    """What a token says about its decision."""

    table: str
    keys: tuple[str, ...]
    action_id: str
    position: int
    decision_id: str
    episode_id: str


class Signed(Protocol):
    """Whatever has the fields of `Claims`: an event has, and is signed without a copy."""

    @property
    def table(self) -> str: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def action_id(self) -> str: ...
    @property
    def position(self) -> int: ...
    @property
    def decision_id(self) -> str: ...
    @property
    def episode_id(self) -> str: ...


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


def sign(secret: bytes, claims: Signed) -> str:
    """The token of `claims`: ASCII, the same for the same secret and claims."""
    keys = claims.keys
    beginning, state = _begun(secret, claims.table, claims.action_id)
    # Joined by hand: this is in each decide.
    joined = keys[0] if len(keys) == 1 else _joined(keys)
    rest = f"{claims.position}~{claims.decision_id}~{claims.episode_id}~{joined}"
    # One before each key, one behind the position, one behind the decision's id.
    if not beginning or not joined or not rest.isascii() or rest.count(_SEPARATOR) != 2 + len(keys):
        body = _json_body(claims)
        return _MARK + _mac(secret, body) + body
    state = state.copy()
    state.update(rest.encode())
    return f"{_MARK}{state.hexdigest()}{beginning}{rest}"


def _json_body(claims: Signed) -> str:
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
    return base64.urlsafe_b64encode(_ENCODER.encode(fields).encode()).rstrip(b"=").decode("ascii")


def read(token: str) -> Claims:
    """What `token` claims, *unverified*: good for routing only.

    Raises:
        NotFoundError: the text does not have the form of a token.
    """
    if not token.startswith(_MARK):
        return _read_json(token[_HMAC_CHARS:])
    body = token[_BODY:]
    return _read_plain(body) if body.startswith(_SEPARATOR) else _read_json(body)


def _read_plain(body: str) -> Claims:
    if not body.isascii():
        raise NotFoundError(_NO_TOKEN)
    try:
        _, table, action_id, position, decision_id, episode_id, finest, *coarser = body.split(_SEPARATOR)
        return Claims(
            table=table,
            keys=(finest, *_unjoined(finest, coarser)) if coarser else (finest,),
            action_id=action_id,
            position=int(position),
            decision_id=decision_id,
            episode_id=episode_id,
        )
    except (ValueError, IndexError):
        raise NotFoundError(_NO_TOKEN) from None


def _read_json(body: str) -> Claims:
    try:
        fields = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        version, table, packed, action_id, position, decision_id, episode_id = fields
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise NotFoundError(_NO_TOKEN) from None
    texts = (table, action_id, decision_id, episode_id)
    if version not in _VERSIONS or not all(isinstance(text, str) for text in texts) or type(position) is not int:
        raise NotFoundError(f"reading a decision token: form {version!r} is unknown, expected {_VERSIONS}")
    keys = _unpacked(packed)
    if not keys:
        raise NotFoundError("reading a decision token: it names no state key; send the one that `decide` gave")
    # JSON can escape half a character; no owner signs one, and neither a hash nor an answer could hold it.
    if not all(_is_text(text) for text in (*texts, *keys)):
        raise NotFoundError(_NO_TOKEN)
    return Claims(
        table=table,
        keys=keys,
        action_id=action_id,
        position=position,
        decision_id=decision_id,
        episode_id=episode_id,
    )


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def verify(secret: bytes, token: str) -> Claims:
    """What `token` claims, after its signature was checked in constant time.

    Raises:
        NotFoundError: malformed, altered, or signed with another secret.
    """
    claims = read(token)
    if token.startswith(_MARK):
        given, right = token[len(_MARK) : _BODY], _mac(secret, token[_BODY:])
    else:
        given, right = token[:_HMAC_CHARS], _hmac(secret, token[_HMAC_CHARS:])
    if not same(given, right):
        raise NotFoundError(
            f"decision '{claims.decision_id}': its token is not signed by this owner; send the token that `decide` gave"
        )
    return claims


def same(given: str, right: str) -> bool:
    """The texts are equal, compared in constant time; `right` is ASCII."""
    # compare_digest refuses other texts.
    return given.isascii() and hmac.compare_digest(given, right)


def table_of(token: str) -> str:
    """The table that a token of form 3 claims, *unverified*; "" when only `read` can tell."""
    return token[_BODY + 1 : token.find(_SEPARATOR, _BODY + 1)] if token.startswith(_SEPARATOR, _BODY) else ""


def _mac(secret: bytes, body: str) -> str:
    state = _keyed(secret).copy()
    # A forged body may hold anything; "replace" cannot make it equal to one that was signed, which is ASCII.
    state.update(body.encode("utf-8", "replace"))
    return state.hexdigest()


@functools.lru_cache(maxsize=_MOST_BEGINNINGS)
def _begun(secret: bytes, table: str, action_id: str) -> tuple[str, hashlib.blake2b]:
    """How the plain bodies of an arm begin, "" if they cannot, and blake2b that has taken it in.

    With it goes the block of the key, which blake2b works off once more is to come: a third of a token.
    """
    beginning = f"~{table}~{action_id}~"
    if not beginning.isascii() or beginning.count(_SEPARATOR) != 3:
        return "", _keyed(secret)
    state = _keyed(secret).copy()
    state.update(beginning.encode())
    return beginning, state


@functools.lru_cache(maxsize=64)
def _keyed(secret: bytes) -> hashlib.blake2b:
    """Blake2b with the key taken in."""
    key = secret if len(secret) <= _MOST_KEY_BYTES else hashlib.blake2b(secret).digest()
    return hashlib.blake2b(key=key, digest_size=_MAC_BYTES, person=b"memcon token 3")


def _hmac(secret: bytes, body: str) -> str:
    digest = hmac.digest(secret, body.encode("utf-8", "replace"), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def _joined(keys: tuple[str, ...]) -> str:
    """The finest key, then each coarser one as its label and the places of its components; "" where one has none."""
    finest = keys[0].split("|")
    joined = [keys[0]]
    for key in keys[1:]:
        label, *parts = key.split("|")
        if _PLACE_SEPARATOR in label or not all(part in finest for part in parts):
            return ""
        joined.append(_PLACE_SEPARATOR.join([label, *[str(finest.index(part)) for part in parts]]))
    return _SEPARATOR.join(joined)


def _unjoined(finest: str, coarser: list[str]) -> list[str]:
    """Raises ValueError or IndexError where a coarser key is none."""
    parts, keys = finest.split("|"), []
    for text in coarser:
        label, *places = text.split(_PLACE_SEPARATOR)
        keys.append("|".join([label, *[parts[int(place)] for place in places]]))
    return keys


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
