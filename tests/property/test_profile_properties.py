"""The profile of a cell's policy, for every way to write it beside every backbone (MC-30)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcon.learning.exploration.learned import PROFILES
from memcon_platform.config.entries import Choice, beside, parse_entry
from memcon_platform.config.policies import policy_learning
from support.config_plugins import toy_plugins

FIRST = "gpt-4.1-mini"
PROFILE = st.sampled_from([None, *PROFILES])
# The values of all profiles among others: those are what a config leaves out again.
VALUES = {
    name: st.sampled_from([*(getattr(profile, name) for profile in PROFILES.values()), 0.5])
    for name in ("alpha", "gamma", "c")
}
WRITTEN = st.fixed_dictionaries({"name": st.just("ucb")}, optional={"profile": PROFILE, **VALUES})


@pytest.fixture(scope="module", autouse=True)
def _plugins() -> Iterator[None]:
    with toy_plugins():
        yield


def backbone(profile: str | None) -> Choice:
    return parse_entry("backbone", {"name": "tuned", "profile": profile}, "axes.backbone")


def settled(written: dict[str, Any], profile: str | None) -> Choice:
    return beside(parse_entry("policy", written, "axes.policy"), backbone(profile))


@given(WRITTEN, PROFILE)
def test_a_given_value_wins_then_a_given_profile_then_the_backbones_then_the_first(
    written: dict[str, Any], of_backbone: str | None
) -> None:
    choice = settled(written, of_backbone)

    profile = written.get("profile") or of_backbone or FIRST
    expected = {name: written.get(name, getattr(PROFILES[profile], name)) for name in VALUES}
    assert {name: choice.resolved[name] for name in VALUES} == expected
    assert choice.resolved["profile"] == profile
    # Read back from the entry alone, as workers and later launches do.
    learning = policy_learning(choice.entry)
    assert learning is not None
    assert {"alpha": learning.alpha, "gamma": learning.gamma, "c": learning.rule_parameters["c"]} == expected


@given(WRITTEN, PROFILE)
def test_an_entry_is_the_same_whether_its_profile_is_spelled_out(
    written: dict[str, Any], of_backbone: str | None
) -> None:
    profile = written.get("profile") or of_backbone or FIRST

    assert settled({**written, "profile": profile}, of_backbone).same_as(settled(written, of_backbone))


@given(WRITTEN)
def test_beside_a_backbone_of_the_first_profile_nothing_changes(written: dict[str, Any]) -> None:
    plain = parse_entry("policy", written, "axes.policy")

    for of_backbone in (None, FIRST):
        found = settled(written, of_backbone)
        assert (found.entry, found.resolved) == (plain.entry, plain.resolved)
