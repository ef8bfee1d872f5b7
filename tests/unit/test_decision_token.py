"""Signed tokens of decisions: what is read, what is refused."""

from __future__ import annotations

import base64
import dataclasses
import hmac
import json
from typing import Any

import pytest

from memcon.errors import ConfigError, NotFoundError
from memcon.learning.decision_token import Claims, check_secret, read, same, sign, table_of, verify

SECRET = b"0123456789abcdef"
CLAIMS = Claims(
    table="t|able",
    keys=("paper/1|goal_type=%7C",),
    action_id="noop",
    position=3,
    decision_id='d"1',
    episode_id="é\U0001f600",
)


def test_token_gives_back_what_was_signed() -> None:
    token = sign(SECRET, CLAIMS)

    assert verify(SECRET, token) == read(token) == CLAIMS
    assert token == sign(SECRET, CLAIMS)
    assert token.isascii()


@pytest.mark.parametrize("field", ["table", "action_id", "decision_id", "episode_id"])
@pytest.mark.parametrize("text", ["a~b", "~", "\u00e9"])
def test_what_a_plain_body_cannot_hold_is_signed_all_the_same(field: str, text: str) -> None:
    # The first key's coarser ones do not nest: a "~" must not make up for the one that they lack.
    for keys in (("k",), ("paper/1|a=1|b=2", "other/1|c=3")):
        changes: dict[str, Any] = {"episode_id": "e", "keys": keys, field: text}
        claims = dataclasses.replace(CLAIMS, **changes)
        token = sign(SECRET, claims)
        assert verify(SECRET, token) == claims
        assert token.isascii()


def test_token_of_another_secret_is_refused() -> None:
    with pytest.raises(NotFoundError, match="not signed by this owner"):
        verify(b"another secret...", sign(SECRET, CLAIMS))


def test_token_with_any_character_changed_is_refused() -> None:
    token = sign(SECRET, CLAIMS)

    for i, char in enumerate(token):
        altered = token[:i] + ("A" if char != "A" else "B") + token[i + 1 :]
        with pytest.raises(NotFoundError):
            verify(SECRET, altered)


def test_signature_does_not_carry_over_to_other_claims() -> None:
    first, second = sign(SECRET, CLAIMS), sign(SECRET, dataclasses.replace(CLAIMS, position=4))

    with pytest.raises(NotFoundError):
        verify(SECRET, first[:34] + second[34:])


def _unsigned(fields: object) -> str:
    return "s" * 43 + base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "not a token",
        "é" * 100,
        "[" * 5000,
        "3.",
        "3." + "0" * 32,
        "3." + "0" * 32 + "~",
        "3." + "0" * 32 + "~t~a~0~d~e",
        "3." + "0" * 32 + "~t~a~x~d~e~k",
        "3." + "0" * 32 + "~t~a~0~d~e~k|x~c,2",
        "3." + "0" * 32 + "~t~a~0~d~e~k|x~c,x",
        "3." + "0" * 32 + "~t~a~0~d~e~k|x~c,",
        "3." + "0" * 32 + "[1]",
        "3." + "é" * 100,
        "3." + "0" * 32 + "~t~a~0~d~e~k\ud800",
        _unsigned(None),
        _unsigned([1, 2]),
        _unsigned([3, "t", ["k"], "a", 0, "d", "e"]),
        _unsigned([2, "t", [], "a", 0, "d", "e"]),
        _unsigned([2, "t", [["c", 0]], "a", 0, "d", "e"]),
        _unsigned([2, "t", ["k|x", []], "a", 0, "d", "e"]),
        _unsigned([2, "t", ["k|x", ["c", 2]], "a", 0, "d", "e"]),
        _unsigned([2, "t", ["k|x", ["c", -1]], "a", 0, "d", "e"]),
        _unsigned([2, "t", ["k|x", ["c", True]], "a", 0, "d", "e"]),
        _unsigned([2, "t", ["k|x", ["c", "x"]], "a", 0, "d", "e"]),
        _unsigned([2, "t", ["k|x", [1, 1]], "a", 0, "d", "e"]),
        _unsigned([2, "t", ["k|x", 1], "a", 0, "d", "e"]),
        _unsigned([1, "t", [], "a", 0, "d", "e"]),
        _unsigned([1, "t", "k", "a", 0, "d", "e"]),
        _unsigned([1, "t", [1], "a", 0, "d", "e"]),
        _unsigned([1, None, ["k"], "a", 0, "d", "e"]),
        _unsigned([1, "t", ["k"], "a", "0", "d", "e"]),
        _unsigned([1, "t", ["k"], "a", True, "d", "e"]),
        # Half a character: what answers with such an id, or hashes such a key, would fail.
        _unsigned([1, "t", ["k"], "a", 0, "\ud800", "e"]),
        _unsigned([1, "t", ["\ud800"], "a", 0, "d", "e"]),
        _unsigned([2, "t", ["k|x", ["\ud800", 1]], "a", 0, "d", "e"]),
    ],
)
def test_text_that_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(NotFoundError, match="token"):
        read(token)


def test_short_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="15 bytes, expected at least 16"):
        check_secret(SECRET[:-1])


def test_coarser_keys_add_little_to_a_token() -> None:
    goal = "goal_type=" + "%C3%A9" * 100
    fine, middle, coarse = f"f/1|benchmark=b|setup=s|{goal}", f"m/1|benchmark=b|{goal}", "c/1|benchmark=b"
    alone = dataclasses.replace(CLAIMS, keys=(fine,))
    chain = dataclasses.replace(CLAIMS, keys=(fine, middle, coarse))

    added = len(sign(SECRET, chain)) - len(sign(SECRET, alone))

    assert verify(SECRET, sign(SECRET, chain)) == chain
    assert added < 40 < len(goal)


def test_keys_that_do_not_nest_are_given_back_too() -> None:
    apart = dataclasses.replace(CLAIMS, keys=("f|a=1", "c|b=2", "", "|"))

    assert verify(SECRET, sign(SECRET, apart)) == apart


PLAIN = Claims(
    table="sweep/cell-1",
    keys=("paper/1|goal_type=a%20b",),
    action_id="noop",
    position=0,
    decision_id="d",
    episode_id="e",
)


def test_plain_texts_stand_in_a_token_as_they_are() -> None:
    token = sign(SECRET, PLAIN)

    assert token[34:] == "~sweep/cell-1~noop~0~d~e~paper/1|goal_type=a%20b"
    assert verify(SECRET, token) == PLAIN
    assert table_of(token) == "sweep/cell-1"


@pytest.mark.parametrize("field", ["table", "action_id", "decision_id", "episode_id"])
@pytest.mark.parametrize("text", ["", "~", "a~b", "é", "\x00", '"', "\n"])
def test_any_text_of_any_field_comes_back(field: str, text: str) -> None:
    changed: dict[str, Any] = {field: text}
    claims = dataclasses.replace(PLAIN, **changed)
    token = sign(SECRET, claims)

    assert token.isascii()
    assert verify(SECRET, token) == claims
    # What routes by it without a check may not be misled by what another field holds.
    assert table_of(token) in {"", claims.table}


@pytest.mark.parametrize("keys", [("~",), ("a", "b"), ("a|b", "c|b"), ("a|b", "c,d|b"), ("a|b", "~|b"), ("a|b", "c")])
def test_any_chain_comes_back(keys: tuple[str, ...]) -> None:
    claims = dataclasses.replace(PLAIN, keys=keys)

    assert verify(SECRET, sign(SECRET, claims)) == claims


def test_a_field_cannot_pass_for_two() -> None:
    one = sign(SECRET, dataclasses.replace(PLAIN, decision_id="d~e", episode_id="f"))
    other = sign(SECRET, dataclasses.replace(PLAIN, decision_id="d", episode_id="e~f"))

    assert one != other
    assert verify(SECRET, one).decision_id == "d~e"
    assert verify(SECRET, other).decision_id == "d"


def test_tokens_of_earlier_forms_are_still_verified() -> None:
    # One key, and a chain: both stand in outboxes of stopped runs.
    for keys, packed, version in ((("k|x",), ["k|x"], 1), (("k|x=1", "c|x=1"), ["k|x=1", ["c", 1]], 2)):
        body = base64.urlsafe_b64encode(json.dumps([version, "t", packed, "a", 0, "d", "e"]).encode()).rstrip(b"=")
        signature = base64.urlsafe_b64encode(hmac.digest(SECRET, body, "sha256")).rstrip(b"=")
        token = (signature + body).decode()
        claims = Claims(table="t", keys=keys, action_id="a", position=0, decision_id="d", episode_id="e")

        assert verify(SECRET, token) == claims
        # Only the owner's look-up by table is for the new form; its verification is for all.
        assert table_of(token) == ""
        for altered in (token[:-1], "A" + token[1:], token[:43] + "A" + token[44:]):
            with pytest.raises(NotFoundError):
                verify(SECRET, altered)


def test_a_signature_of_one_form_is_none_of_the_other() -> None:
    body = base64.urlsafe_b64encode(b'[1,"t",["k"],"a",0,"d","e"]').rstrip(b"=")
    old = base64.urlsafe_b64encode(hmac.digest(SECRET, body, "sha256")).rstrip(b"=")

    for forged in (b"3." + old[:32] + body, b"3." + hmac.digest(SECRET, body, "sha256").hex().encode()[:32] + body):
        with pytest.raises(NotFoundError, match="not signed by this owner"):
            verify(SECRET, forged.decode())


def test_a_secret_of_any_length_counts_whole() -> None:
    long = b"0123456789abcdef" * 5
    token = sign(long, PLAIN)

    assert verify(long, token) == PLAIN
    for other in (long[:64], long[:-1], long[:-1] + b"x"):
        with pytest.raises(NotFoundError, match="not signed by this owner"):
            verify(other, token)


def test_texts_beyond_ascii_are_compared_and_never_equal() -> None:
    assert same("abc", "abc")
    assert not same("abd", "abc")
    assert not same("ab\u00e9", "abc")
