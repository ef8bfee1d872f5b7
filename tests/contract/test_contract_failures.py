"""How a contract body fails: what it wants, what it met, and where long values differ."""

from __future__ import annotations

import re

import pytest

from memcon.errors import ConfigError, NotFoundError
from memcon.protocols import ChatModel, Observation, Retrieval
from memcon.testing.chat_model import ScriptedModel
from memcon.testing.contract import accepts, expect, expect_equal, expect_kind, expect_port, refuses
from memcon.types import MemoryItem


def retrieval(*texts: str) -> Retrieval:
    return Retrieval(items=tuple(MemoryItem(item_id="1", source="s", score=1.0, text=text) for text in texts))


def end_with(error: Exception | None) -> None:
    if error is not None:
        raise error


@pytest.mark.parametrize(
    ("met", "wanted", "said"),
    [
        ("b", "a", "wanted: 'a'\n  met:    'b'"),
        ([1, 2, 3], [1, 2, 4], "wanted at [2]: 4\n  met at [2]:    3"),
        ([1, 2], [1, 2, 4], "wanted: [1, 2, 4]\n  met:    [1, 2]"),
        ({"size()": 3}, {"size()": 4}, "wanted at size(): 4\n  met at size():    3"),
        (
            retrieval("x" * 900, "b"),
            retrieval("x" * 900, "a"),
            "wanted at .items[1].text: 'a'\n  met at .items[1].text:",
        ),
        ((1, "a"), [1, "a"], "wanted: [1, 'a']\n  met:    (1, 'a')"),
    ],
)
def test_values_that_differ_are_shown_where_they_do(met: object, wanted: object, said: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(f"by contract, Port.ask gives equals\n  {said}")):
        expect_equal(met, wanted, "Port.ask", wants="gives equals")


def test_a_long_value_is_cut() -> None:
    with pytest.raises(AssertionError) as caught:
        expect(False, "Port.ask", "is short", met="x" * 10_000)

    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "met:    no error"),
        (KeyError("x"), "met:    KeyError: 'x'"),
        (NotFoundError("no table"), "met:    NotFoundError: no table"),
        (ConfigError("other"), "met:    ConfigError: other"),
    ],
)
def test_a_refusal_of_another_kind_is_no_refusal(error: Exception | None, said: str) -> None:
    wanted = "by contract, Port.ask refuses it\n  wanted: memcon.errors.ConfigError whose text holds 'key'\n  "

    with (
        pytest.raises(AssertionError, match=re.escape(wanted + said)) as caught,
        refuses(ConfigError, "Port.ask", wants="refuses it", naming="key"),
    ):
        end_with(error)

    assert caught.value.__cause__ is error


def test_a_refusal_as_wanted_passes_and_is_kept() -> None:
    given = ConfigError("this key is wrong")

    with refuses(ConfigError, "Port.ask", wants="refuses it", naming="key") as refusal:
        raise given

    assert refusal.error is given


def test_an_error_where_none_is_wanted_is_told_as_what_was_met() -> None:
    said = "by contract, Port.close may be called twice\n  met: OSError: closed"
    with (
        pytest.raises(AssertionError, match=re.escape(said)),
        accepts("Port.close", wants="may be called twice"),
    ):
        raise OSError("closed")


def test_what_lacks_a_part_of_its_port_is_told_which() -> None:
    expect_port(ScriptedModel([]), ChatModel)

    with pytest.raises(
        AssertionError, match=r"ChatModel has all of memcon\.protocols\.ChatModel\n  met: 'no model_id, token"
    ):
        expect_port(Observation(text=""), ChatModel)


@pytest.mark.parametrize(
    ("wrong", "met"),
    [
        (("a", "b"), r" gives a memcon\.protocols\.Retrieval\n  met: \('a', 'b'\)"),
        (Retrieval(items=list(retrieval("a").items)), r"whose fields have their types.*\n  wanted at \.items: \(Mem"),  # type: ignore[arg-type]
        (Retrieval(tokens=None), r"met: CodecError: Retrieval\.tokens: expected int, got None"),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_type_than_the_port_says_is_told_by_its_place(wrong: object, met: str) -> None:
    expect_kind(retrieval("a"), Retrieval, "MemoryBackend.retrieve")

    with pytest.raises(AssertionError, match=rf"(?s)by contract, MemoryBackend\.retrieve.*{met}"):
        expect_kind(wrong, Retrieval, "MemoryBackend.retrieve")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, pytest.skip.Exception])
def test_an_interrupt_and_a_skip_pass_through(kind: type[BaseException]) -> None:
    with pytest.raises(kind), accepts("Port.ask", wants="answers"), refuses(ConfigError, "Port.ask", wants="refuses"):
        raise kind
