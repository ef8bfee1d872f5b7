"""Signed tokens of decisions: what is read, what is refused."""

from __future__ import annotations

import base64
import dataclasses
import json

import pytest

from memcon.errors import ConfigError, NotFoundError
from memcon.learning.decision_token import Claims, check_secret, read, sign, verify

SECRET = b"0123456789abcdef"
CLAIMS = Claims(
    table="t|able",
    keys=("paper/1|goal_type=%7C",),
    action_id="noop",
    position=3,
    decision_id='d"1',
    episode_id="é\ud800",
)


def test_token_gives_back_what_was_signed() -> None:
    token = sign(SECRET, CLAIMS)

    assert verify(SECRET, token) == read(token) == CLAIMS
    assert token == sign(SECRET, CLAIMS)
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
        verify(SECRET, first[:43] + second[43:])


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
