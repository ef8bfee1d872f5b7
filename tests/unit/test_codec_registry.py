"""Strict decoding, and plug-ins by entry point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Any, Literal

import pytest

from memcon import codec, registry
from memcon.control.memory.metagpt import MetaGPTConfig
from memcon.errors import ConfigError, MissingExtraError, UnknownNameError
from memcon.testing.memory import episode_of
from memcon.types import Episode, Operation


@dataclass(frozen=True, kw_only=True)
class Inner:
    number: int = 1


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    ratio: float = 0.5
    inner: Inner = Inner()
    several: tuple[Inner, ...] = ()
    pair: tuple[str, int] = ("a", 1)
    kinds: Mapping[str, Operation] = field(default_factory=dict)
    limit: int | Literal["all"] | None = None
    flag: bool = False


def test_a_value_survives_the_round_trip() -> None:
    value = Outer(
        name="ü",
        ratio=1.0,
        several=(Inner(), Inner(number=2)),
        pair=("b", 2),
        kinds={"x": Operation.FORGET},
        limit="all",
        flag=True,
    )
    assert codec.decode_json(Outer, codec.encode_json(value)) == value
    assert codec.decode_json(Episode, codec.encode_json(episode_of(3))) == episode_of(3)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, r"Outer: missing fields \['name'\]"),
        ({"name": "x", "nam": 1}, r"Outer: unknown fields \['nam'\]"),
        ({"name": "x", 7: 1}, r"Outer: unknown fields \['7'\]"),
        ({"name": 1}, r"Outer\.name: expected str, got 1"),
        ({"name": "x", "ratio": "0.5"}, r"Outer\.ratio: expected float, got '0.5'"),
        ({"name": "x", "ratio": True}, r"Outer\.ratio: expected float, got True"),
        ({"name": "x", "inner": {"number": 1.5}}, r"Outer\.inner\.number: expected int, got 1.5"),
        ({"name": "x", "inner": {"number": True}}, r"Outer\.inner\.number: expected int, got True"),
        ({"name": "x", "inner": 3}, r"Outer\.inner: expected a mapping, got 3"),
        ({"name": "x", "several": {"number": 1}}, r"Outer\.several: expected a list"),
        ({"name": "x", "several": [{}, {"numbr": 1}]}, r"Outer\.several\[1\]: unknown fields"),
        ({"name": "x", "pair": ["a"]}, r"Outer\.pair: expected 2 values"),
        ({"name": "x", "pair": ["a", "b"]}, r"Outer\.pair\[1\]: expected int"),
        ({"name": "x", "kinds": {"y": "dance"}}, r"Outer\.kinds\.y: 'dance' is none of \['retrieve'"),
        ({"name": "x", "kinds": []}, r"Outer\.kinds: expected a mapping"),
        ({"name": "x", "limit": "none"}, r"Outer\.limit: expected int or 'all', got 'none'"),
        ({"name": "x", "flag": 1}, r"Outer\.flag: expected bool, got 1"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_path(record: dict[Any, Any], message: str) -> None:
    with pytest.raises(codec.CodecError, match=message):
        codec.decode(Outer, record)


def test_an_integer_may_stand_for_a_float() -> None:
    value = codec.decode(Outer, {"name": "x", "ratio": 1})
    assert type(value.ratio) is float


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(codec.CodecError, match="Outer: not JSON"):
        codec.decode_json(Outer, "{")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_lacks_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        codec.encode_json(Outer(name="x", ratio=number))


# --- registry ---------------------------------------------------------------------------------------------------------


def test_registered_memories_and_embedders() -> None:
    assert {"empty", "metagpt"} <= set(registry.names("memory"))
    assert {"hashing", "wordllama"} <= set(registry.names("embedder"))


def test_unknown_names_list_what_there_is_and_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown memory 'metagtp'; allowed: .*did you mean 'metagpt'"):
        registry.plugin("memory", "metagtp")
    with pytest.raises(UnknownNameError, match="unknown plug-in kind 'memories'"):
        registry.names("memories")


def test_parameters_become_the_config() -> None:
    assert registry.configure("memory", "metagpt", {"top_k": 3}) == MetaGPTConfig(top_k=3)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"topk": 3}, r"axes\.memory: unknown key 'topk'; allowed: top_k, failed_top_k, .* \(did you mean 'top_k'\?\)"),
        ({1: 3}, r"axes\.memory: unknown key '1'"),
        ({"top_k": "3"}, r"axes\.memory\.top_k: expected int, got '3'"),
        ({"top_k": -1}, r"axes\.memory: top_k = -1: expected a finite number in \[0, 1000\]"),
    ],
)
def test_wrong_parameters_are_refused_by_their_path(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.configure("memory", "metagpt", parameters, where="axes.memory")


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("no_such_module_at_all:PLUGIN", ConfigError, "cannot be imported: ModuleNotFoundError"),
        ("memcon.ids:stable_hash", ConfigError, r"is a function, not a memcon\.registry\.Plugin"),
        ("support.broken_plugin:PLUGIN", MissingExtraError, r"memcon\[graph\]"),
    ],
)
def test_a_broken_plugin_is_told_in_one_line(
    value: str, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"broken": EntryPoint(name="broken", value=value, group="memcon.memory")}
    monkeypatch.setattr(registry, "_entry_points", lambda kind: points)
    with pytest.raises(error, match=message):
        registry.plugin("memory", "broken")
