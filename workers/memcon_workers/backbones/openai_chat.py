"""Backbone `openai`: a language model behind any OpenAI-compatible endpoint, through the official SDK.

Each call is stateless: the messages of one prompt, one reply. Token counts and the model's id are the provider's own; a
reply without them is an error, never an estimate. Retries are the SDK's. The key is read from the environment in the
process that builds the model, and stands nowhere else. Settings are `openai_config`, how failures are classed is
`openai_errors`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from memcon.errors import ConfigError, MemconError, MissingExtraError, ProviderError
from memcon.protocols import Completion, Message
from memcon.registry import Plugin
from memcon_workers.backbones.openai_config import MODEL_PROFILES, OpenAIConfig, checked_url, same_model
from memcon_workers.backbones.openai_errors import Endpoint, EndpointFailure, classify, task_error

__all__ = ["PLUGIN", "OpenAIChat"]

BASE_URL_VARIABLE = "OPENAI_BASE_URL"
# The SDK's own endpoint.
DEFAULT_HOST = "api.openai.com"
DEFAULT_URL = f"https://{DEFAULT_HOST}/v1"
# Seeds are sent modulo this: they fit a signed integer of 32 bits, the smallest that servers read them into.
SEEDS = 2**31
CONNECT_S = 10.0
# No reply has as many, and sums over a run stay within 64 bits.
MOST_TOKENS = 2**31
# A request that fails is its task's failure; as many in a row, of all streams of a process, are the endpoint's.
FAILURES_IN_A_ROW = 3
# Tries of the check before a run after the first: whoever waits at a terminal wants to know.
CHECK_RETRIES = 2

# Statuses of the list of models that say nothing of the chat: no list here, not for this key, not now.
_NO_LIST = frozenset({400, 403, 404, 405, 410, 422, 429, 501})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The client of one event loop: connections and semaphores belong to the loop that first waits on them."""

    loop: asyncio.AbstractEventLoop
    client: Any
    gate: asyncio.Semaphore


class OpenAIChat:
    """The endpoint as a `memcon.protocols.ChatModel`. Pickles as its config: another process reads the key anew.

    Raises:
        ConfigError: no model is named, or the environment lacks key or base URL.
        MissingExtraError: the SDK is not installed.
    """

    token_source = "provider"

    def __init__(self, config: OpenAIConfig) -> None:
        self._sdk = _sdk()
        self._config = config
        profile = None if config.profile is None else MODEL_PROFILES[config.profile]
        model = config.model or (profile.model if profile else None)
        if model is None:
            names = ", ".join(MODEL_PROFILES)
            raise ConfigError(f"backbone 'openai' names no model; set model: ID, or profile: one of {names}")
        self.model_id = model
        self._reported = config.reported or (profile.reported if profile else same_model(model))
        self._base_url = _base_url(config)
        self._key = _key(config.api_key_env)
        self._endpoint = Endpoint(
            host=urlsplit(self._base_url).netloc if self._base_url else DEFAULT_HOST,
            model=model,
            key_variable=config.api_key_env,
            secrets=(self._key, *_custom_headers()),
            timeout_s=config.timeout_s,
        )
        self._line: _Line | None = None
        # Requests that failed since the last one that was answered.
        self._failures = 0

    def __reduce__(self) -> tuple[object, ...]:
        return OpenAIChat, (self._config,)

    async def complete(self, messages: Sequence[Message], *, seed: int) -> Completion:
        """Ask for one reply; waits while `concurrency` requests of this process are open.

        Raises:
            BoundaryError: this request failed for good.
            ProviderError: the endpoint cannot be reached, refuses us, is not the model that was asked for, or answers
                no request any more.
        """
        line = self._on_this_loop()
        async with line.gate:
            try:
                reply = await line.client.chat.completions.create(**self._request(messages, seed))
            except self._sdk.OpenAIError as error:
                # Not chained: the SDK's errors hold the request, with the key in its headers.
                raise self._failed(classify(error, self._endpoint)) from None
            except ValueError:
                raise self._unanswered("answers 200 with a body that is no JSON") from None
        completion = self._completion(reply)
        self._failures = 0
        return completion

    async def check(self) -> None:
        """Ask for the list of models: no tokens, and the answer whether the endpoint is there and takes the key.

        An endpoint that has no list, or shows it to no one, passes, and so does a list without the model (it may be an
        alias): which model answers is seen at the first reply.

        Raises:
            ProviderError: no connection, a refused key, or an endpoint that is not ready.
        """
        client = self._on_this_loop().client
        try:
            quick = client.with_options(max_retries=min(self._config.max_retries, CHECK_RETRIES))
            await quick.models.with_raw_response.list()
        except self._sdk.OpenAIError as error:
            if getattr(error, "status_code", None) in _NO_LIST:
                return
            found = classify(error, self._endpoint)
            if isinstance(found, ProviderError):
                raise found from None
            raise ProviderError(f"{found}; wait until it is ready, and run the same command again") from None

    async def close(self) -> None:
        """Free the connections of this event loop; a later call opens new ones."""
        line, self._line = self._line, None
        if line is not None and line.loop is asyncio.get_running_loop():
            await line.client.close()

    # --- asking ------------------------------------------------------------------------------------------------------

    def _on_this_loop(self) -> _Line:
        loop = asyncio.get_running_loop()
        if self._line is None or self._line.loop is not loop:
            gate = asyncio.Semaphore(self._config.concurrency)
            self._line = _Line(loop=loop, client=self._client(), gate=gate)
        return self._line

    def _client(self) -> Any:
        config = self._config
        try:
            return self._sdk.AsyncOpenAI(
                api_key=self._key,
                base_url=self._base_url,
                timeout=self._sdk.Timeout(config.timeout_s, connect=min(config.timeout_s, CONNECT_S)),
                max_retries=config.max_retries,
            )
        except (ValueError, ImportError):
            # Its text may hold a proxy's password.
            raise ConfigError(
                "the SDK takes the environment's proxy settings not as they are; mend HTTP_PROXY, HTTPS_PROXY, "
                "ALL_PROXY and NO_PROXY"
            ) from None

    def _request(self, messages: Sequence[Message], seed: int) -> dict[str, Any]:
        config = self._config
        request: dict[str, Any] = {
            "model": self.model_id,
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            config.max_tokens_field: config.max_tokens,
        }
        if config.temperature is not None:
            request["temperature"] = config.temperature
        if config.send_seed:
            request["seed"] = seed % SEEDS
        if config.extra_body:
            request["extra_body"] = dict(config.extra_body)
        return request

    # --- reading the reply -------------------------------------------------------------------------------------------

    def _completion(self, reply: Any) -> Completion:
        # The SDK checks no types: a reply of another form is text, or an object that lacks what it should have.
        if error := getattr(reply, "error", None):
            # Gateways say so when the provider behind them fails.
            said = error.get("message") if isinstance(error, dict) else error
            raise self._unanswered(f"answers 200 with an error: {self._endpoint.redacted(str(said))}")
        reported = self._reported_id(reply)
        usage = getattr(reply, "usage", None)
        prompt_tokens, completion_tokens = (_count(usage, name) for name in ("prompt_tokens", "completion_tokens"))
        if prompt_tokens is None or completion_tokens is None:
            raise ProviderError(
                f"{self._endpoint.host} reports no usage for model '{self.model_id}', and tokens are never guessed; "
                "switch usage on there, or take an endpoint that reports it"
            )
        return Completion(
            text=self._text(reply, completion_tokens),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            model_id=reported,
        )

    def _reported_id(self, reply: Any) -> str:
        """The id that the reply names, where it may answer for the model that was asked for (HX-3, D50)."""
        host, reported = self._endpoint.host, getattr(reply, "model", None)
        if not isinstance(reported, str) or not reported:
            raise ProviderError(
                f"{host} answers without the id of a model, so it is no OpenAI-compatible chat endpoint; check "
                "base_url, which most often ends in /v1"
            )
        if not re.fullmatch(self._reported, reported):
            raise ProviderError(
                f"{host} was asked for model '{self.model_id}' and reports '{self._endpoint.redacted(reported)}'; "
                f"expected an id that matches '{self._reported}'; ask for the right id (model:), or, if the reported "
                "model is meant, set reported: to a regular expression that matches it"
            )
        return reported

    def _text(self, reply: Any, completion_tokens: int) -> str:
        choices = getattr(reply, "choices", None)
        choice = choices[0] if isinstance(choices, list) and choices else None
        ended, message = getattr(choice, "finish_reason", None), getattr(choice, "message", None)
        if not hasattr(message, "content"):
            raise self._unanswered("answers with no choice")
        if ended == "content_filter":
            raise self._unanswered("cut the reply off by its content filter")
        text = getattr(message, "content", None) or getattr(message, "refusal", None) or ""
        if not isinstance(text, str) or (not text and getattr(message, "tool_calls", None)):
            raise self._unanswered("answers with parts or a tool's call in the place of a text, which nobody asked for")
        if ended == "length" and not text:
            raise self._unanswered(
                f"spent all {completion_tokens} tokens of a reply before its first word; raise max_tokens "
                f"(= {self._config.max_tokens})"
            )
        return text

    # --- failures ----------------------------------------------------------------------------------------------------

    def _unanswered(self, what: str) -> MemconError:
        return self._failed(EndpointFailure(f"{self._endpoint.host} {what}"))

    def _failed(self, found: ProviderError | EndpointFailure) -> MemconError:
        """`found` as the task's failure, or as the endpoint's where it has answered nobody for some requests."""
        if isinstance(found, EndpointFailure):
            self._failures += 1
            if self._failures >= FAILURES_IN_A_ROW:
                found = ProviderError(
                    f"{found}; {FAILURES_IN_A_ROW} requests in a row failed, so that no task is to blame; mend the "
                    "cause or wait until it is over, and run the same command again"
                )
        return task_error(found)


def _count(usage: Any, name: str) -> int | None:
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS else None


# --- the environment ----------------------------------------------------------------------------------------------


def _sdk() -> Any:
    try:
        import openai
    except ImportError as error:
        raise MissingExtraError("openai", "openai") from error
    # It tells every request at INFO, which some libraries switch on for all. Whoever wants that sets its level.
    log = logging.getLogger("httpx2")
    if log.level == logging.NOTSET:
        log.setLevel(logging.WARNING)
    return openai


def _base_url(config: OpenAIConfig) -> str | None:
    if config.base_url is not None:
        return config.base_url
    named = os.environ.get(BASE_URL_VARIABLE)  # noqa: TID251 - an adapter's factory; the SDK's own variable
    if named:
        return checked_url(BASE_URL_VARIABLE, named)
    if config.profile is not None and not MODEL_PROFILES[config.profile].at_default_endpoint:
        raise ConfigError(
            f"profile '{config.profile}' is not served by {DEFAULT_HOST}; set base_url (or {BASE_URL_VARIABLE}) to the "
            "endpoint that serves it, and api_key_env to the variable of that endpoint's key"
        )
    return None


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()  # noqa: TID251 - keys come from the environment, and from nowhere else
    if not key:
        raise ConfigError(
            f"backbone 'openai' takes its key from the environment variable {variable}, which is not set; export it "
            "(any word for a server that asks for none), and run the same command again"
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(f"{variable} holds blanks or characters that no key has; set it to the key alone")
    return key


def _custom_headers() -> list[str]:
    """Values of headers that the SDK adds to each request by its own variable."""
    lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines()  # noqa: TID251 - what the SDK sends is not told
    return [value for value in (line.partition(":")[2].strip() for line in lines) if value]


def _build(config: OpenAIConfig) -> OpenAIChat:
    return OpenAIChat(config)


def _endpoint(config: OpenAIConfig) -> str:
    return (_base_url(config) or DEFAULT_URL).rstrip("/")


async def _check(config: OpenAIConfig) -> None:
    model = OpenAIChat(config)
    try:
        await model.check()
    finally:
        await model.close()


PLUGIN = Plugin(
    config=OpenAIConfig,
    build=_build,
    summary="a language model behind any OpenAI-compatible endpoint; tokens and model id are the provider's own",
    check=_check,
    endpoint=_endpoint,
)
