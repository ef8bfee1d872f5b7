"""The imitator as a chat model: its plug-in, its settings, its usage, and that it keeps nothing between calls."""

from __future__ import annotations

import pytest

from memcon import registry
from memcon.errors import ConfigError
from memcon.tokens import estimate_tokens
from memcon.types import MemoryContext
from memcon_workers.backbones.imitator import Imitator, ImitatorConfig
from memcon_workers.frameworks.prompt import Prompt

PLACES = ["go to bed 1", "go to bed 2", "go to desk 1", "go to desk 2"]


def a_prompt() -> Prompt:
    return Prompt(goal="put a mug in shelf.", first_observation="A room.", window="all", list_actions=True)


def test_plugin_loads_by_entry_point_and_says_that_it_is_no_language_model() -> None:
    plugin = registry.plugin("backbone", "imitator")
    model = plugin.build(registry.configure("backbone", "imitator", {"beta": 2.0}))
    assert isinstance(model, Imitator)
    assert model.model_id == "imitator-1"
    assert "not a language model" in plugin.summary


@pytest.mark.parametrize("wrong", [{"beta": float("nan")}, {"failure_factor": 1.5}, {"noise": -0.1}, {"bta": 3.0}])
def test_wrong_settings_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        registry.configure("backbone", "imitator", wrong)


async def test_usage_is_estimated_over_all_messages_and_the_answer() -> None:
    messages = a_prompt().messages(MemoryContext(), actions=PLACES)
    completion = await Imitator(ImitatorConfig()).complete(messages, seed=1)
    assert completion.prompt_tokens == sum(estimate_tokens(message.content) for message in messages)
    assert completion.completion_tokens == estimate_tokens(completion.text)


async def test_only_the_seed_separates_equal_actions_and_noise_zero_takes_the_first() -> None:
    messages = a_prompt().messages(MemoryContext(), actions=PLACES)
    noisy, plain = Imitator(ImitatorConfig()), Imitator(ImitatorConfig(noise=0.0))
    assert {(await noisy.complete(messages, seed=seed)).text for seed in range(60)} == set(PLACES)
    assert {(await plain.complete(messages, seed=seed)).text for seed in range(60)} == {PLACES[0]}


async def test_nothing_admissible_is_answered_with_look() -> None:
    completion = await Imitator(ImitatorConfig()).complete(a_prompt().messages(MemoryContext()), seed=1)
    assert completion.text == "look"
