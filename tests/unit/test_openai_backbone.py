"""The backbone `openai`: its settings, how it is built, and what it sends."""

from __future__ import annotations

import asyncio
import logging
import pickle
import re
import sys
import traceback
from typing import Any

import pytest

from memcon import codec, registry
from memcon.errors import ConfigError, MissingExtraError
from memcon.learning.exploration.learned import PROFILES
from memcon_workers.backbones.openai_chat import SEEDS, OpenAIChat
from memcon_workers.backbones.openai_config import MODEL_PROFILES, OpenAIConfig
from support.openai_calls import HELLO, Models, assert_no_secret, say_look
from support.openai_server import KEY, Fault, ScriptedOpenAI
from support.waiting import wait_until

pytest.importorskip("openai", reason="the extra `openai` is not installed; EXTRAS=all make test")
pytestmark = pytest.mark.usefixtures("openai_key")


# --- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"profile": "gpt-4.1"}, ("profile", "did you mean 'gpt-4.1-mini'?")),
        ({"model": " "}, ("model = ''",)),
        ({"reported": "gpt-(4"}, ("reported = 'gpt-(4'", "regular expression")),
        ({"base_url": "localhost:8000"}, ("base_url = 'localhost:8000'", "http://HOST")),
        ({"base_url": "http://localhost:port/v1"}, ("base_url = 'http://localhost:port/v1'", "[:PORT]")),
        ({"temperature": 2.5}, ("temperature", "[0, 2]")),
        ({"profile": "claude-sonnet-4", "temperature": 1.5}, ("temperature", "[0, 1]")),
        ({"temperature": float("nan")}, ("temperature", "finite")),
        ({"max_tokens": 0}, ("max_tokens",)),
        ({"max_tokens_field": "tokens"}, ("max_tokens_field", "max_completion_tokens")),
        ({"timeout_s": 0}, ("timeout_s",)),
        ({"max_retries": -1}, ("max_retries",)),
        ({"concurrency": 0}, ("concurrency",)),
        ({"extra_body": {"top_p": 0.5, "model": "x", "stream": True}}, ("extra_body", "model, stream")),
    ],
)
def test_a_wrong_setting_is_refused_by_name(parameters: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.configure("backbone", "openai", parameters)
    assert all(text in str(caught.value) for text in named), caught.value


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"api_key_env": KEY}, "api_key_env"),
        ({"api_key_env": KEY.replace("-", "")}, "api_key_env"),
        ({"api_key": KEY}, "did you mean 'api_key_env'?"),
        ({"base_url": f"http://ann:{KEY}@localhost/v1"}, "base_url"),
        ({"base_url": f"http://localhost/v1?key={KEY}"}, "base_url"),
        ({"base_url": f"user:{KEY}@localhost"}, "base_url"),
    ],
)
def test_a_key_in_the_config_is_refused_and_not_repeated(parameters: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.configure("backbone", "openai", parameters)
    assert named in str(caught.value)
    assert_no_secret(str(caught.value))


@pytest.mark.parametrize(
    ("profile", "same", "other"),
    [
        (
            "gpt-4.1-mini",
            ["gpt-4.1-mini", "gpt-4.1-mini-2025-04-14", "openai/gpt-4.1-mini"],
            ["gpt-4.1", "gpt-4.1-nano", "gpt-4.1-mini-high", "gpt-4o-mini", "claude-sonnet-4", "my/gpt-4.1-mini", ""],
        ),
        (
            "claude-sonnet-4",
            ["claude-sonnet-4", "claude-sonnet-4-0", "claude-sonnet-4-20250514", "anthropic/claude-sonnet-4"],
            ["claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "claude-opus-4-20250514", "gpt-4.1-mini"],
        ),
        (
            "deepseek-v3.2",
            ["deepseek-v3.2", "deepseek/deepseek-v3.2", "deepseek-ai/DeepSeek-V3.2", "deepseek-v3-2"],
            ["deepseek-chat", "deepseek-v3.2-exp", "DeepSeek-V3.2-Speciale", "deepseek-v3", "deepseek-v3.1"],
        ),
    ],
)
def test_a_profile_takes_its_model_under_its_names_and_no_neighbour(
    profile: str, same: list[str], other: list[str]
) -> None:
    pattern = MODEL_PROFILES[profile].reported
    assert [name for name in same if not re.fullmatch(pattern, name)] == []
    assert [name for name in other if re.fullmatch(pattern, name)] == []
    assert re.fullmatch(pattern, MODEL_PROFILES[profile].model)


def test_profiles_are_the_backbones_of_table_6() -> None:
    assert set(MODEL_PROFILES) == set(PROFILES)


# --- building ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({}, ("names no model", "gpt-4.1-mini, claude-sonnet-4, deepseek-v3.2")),
        ({"profile": "claude-sonnet-4"}, ("claude-sonnet-4", "api.openai.com", "base_url", "api_key_env")),
        ({"model": "m-1", "api_key_env": "NOT_SET_ANYWHERE"}, ("NOT_SET_ANYWHERE", "not set", "export it")),
    ],
)
def test_what_the_model_lacks_is_said_when_it_is_built(parameters: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.build("backbone", "openai", parameters)
    assert all(text in str(caught.value) for text in named), caught.value


@pytest.mark.parametrize("wrong", ["two words", "caf\u00e9-0123456789", "tab\tinside"])
def test_a_variable_that_holds_no_key_is_refused_without_its_text(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", wrong)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY holds blanks") as caught:
        registry.build("backbone", "openai", {"model": "m-1"})
    assert wrong not in str(caught.value)


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'memcon[openai]'")):
        registry.build("backbone", "openai", {"model": "m-1"})


async def test_proxy_settings_that_cannot_be_used_are_told_without_their_text(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://user:proxy-password@localhost")
    with pytest.raises(ConfigError, match="ALL_PROXY") as caught:
        await models().complete(HELLO, seed=1)
    assert "proxy-password" not in "".join(traceback.format_exception(caught.value))


def test_neither_model_nor_config_shows_or_pickles_the_key(endpoint: ScriptedOpenAI) -> None:
    config = OpenAIConfig(model="m-1", base_url=endpoint.base_url)
    model = OpenAIChat(config)
    told = [repr(config), codec.encode_json(config), pickle.dumps(config).decode("latin-1")]
    told += [repr(model), pickle.dumps(model).decode("latin-1"), repr(model._endpoint)]
    for text in told:
        assert_no_secret(text)
    again = pickle.loads(pickle.dumps(model))
    assert (again.model_id, again._key) == ("m-1", KEY)


def test_the_endpoint_on_record_is_the_one_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def endpoint_of(**parameters: str) -> str:
        plugin = registry.plugin("backbone", "openai")
        assert plugin.endpoint is not None
        return plugin.endpoint(plugin.config(model="m-1", **parameters))

    assert endpoint_of().removeprefix("https://") == "api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8000/v1/")
    assert endpoint_of() == "http://localhost:8000/v1"
    assert endpoint_of(base_url="https://localhost/v1") == "https://localhost/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://ann:{KEY}@localhost:8000/v1")
    with pytest.raises(ConfigError) as caught:
        endpoint_of()
    assert_no_secret(str(caught.value))


async def test_the_base_url_is_the_configs_then_the_environments(
    endpoint: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Models(endpoint.base_url)
    with ScriptedOpenAI(rule=say_look) as other:
        monkeypatch.setenv("OPENAI_BASE_URL", other.base_url)
        await models().complete(HELLO, seed=1)
        assert (len(endpoint.log), len(other.log)) == (1, 0)
        # The profile's maker is elsewhere, so that the variable is what lets it be built.
        await models(base_url=None, model=None, profile="claude-sonnet-4").complete(HELLO, seed=1)
        assert (len(endpoint.log), len(other.log)) == (1, 1)
        await models.close()


# --- asking ------------------------------------------------------------------------------------------------------


async def test_a_request_holds_messages_model_and_the_settings(endpoint: ScriptedOpenAI, models: Models) -> None:
    await models(profile="deepseek-v3.2", model=None).complete(HELLO, seed=2**63 + 12345)
    (call,) = endpoint.log
    assert call.messages == HELLO
    assert (call.model, call.temperature, call.max_tokens, call.seed) == ("deepseek-v3.2", 0.0, 256, 12345)
    assert dict(call.extra) == {}


async def test_what_is_not_to_be_sent_is_not_sent(endpoint: ScriptedOpenAI, models: Models) -> None:
    settings = {"temperature": None, "send_seed": False, "max_tokens_field": "max_completion_tokens", "max_tokens": 9}
    await models(**settings, extra_body={"top_p": 0.5}).complete(HELLO, seed=1)
    (call,) = endpoint.log
    assert (call.temperature, call.seed, call.max_tokens) == (None, None, 9)
    assert dict(call.extra) == {"top_p": 0.5, "max_completion_tokens": 9}


async def test_requests_are_no_lines_of_a_log(models: Models, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await models().complete(HELLO, seed=1)
    assert [record for record in caplog.records if not record.name.startswith("uvicorn")] == []


async def test_every_seed_of_the_tree_fits_the_smallest_servers(endpoint: ScriptedOpenAI, models: Models) -> None:
    model = models()
    for seed in (0, SEEDS - 1, SEEDS, 2**64 - 1):
        await model.complete(HELLO, seed=seed)
    assert [call.seed for call in endpoint.log] == [0, SEEDS - 1, 0, SEEDS - 1]


async def test_text_usage_and_model_id_are_the_providers(endpoint: ScriptedOpenAI, models: Models) -> None:
    endpoint.reports = "m-1-2025-04-14"
    completion = await models().complete(HELLO, seed=1)
    (call,) = endpoint.log
    assert completion.text == "look at shelf 1"
    assert (completion.prompt_tokens, completion.completion_tokens) == (call.prompt_tokens, call.completion_tokens)
    assert (call.prompt_tokens, call.completion_tokens) == (17, 4)
    assert completion.model_id == "m-1-2025-04-14"


async def test_open_requests_of_a_model_are_bounded(endpoint: ScriptedOpenAI, models: Models) -> None:
    endpoint.faults = lambda _asked: Fault(hang=True)
    model = models(concurrency=2)
    calls = asyncio.gather(*(model.complete(HELLO, seed=seed) for seed in range(6)))
    both = asyncio.to_thread(wait_until, lambda: endpoint.open_now == 2, within_s=10, what="two open requests")
    await both
    endpoint.release()
    assert len(await calls) == 6
    assert endpoint.most_open == 2


def test_a_model_goes_on_in_another_event_loop(endpoint: ScriptedOpenAI) -> None:
    model = Models(endpoint.base_url)()

    async def once() -> str:
        text = (await model.complete(HELLO, seed=1)).text
        await model.close()
        await model.close()
        # Closed is not broken: a later call opens connections again.
        return text + (await model.complete(HELLO, seed=1)).text

    async def and_close() -> str:
        text = await once()
        await model.close()
        return text

    assert asyncio.run(and_close()) == asyncio.run(and_close()) == "look at shelf 1" * 2
