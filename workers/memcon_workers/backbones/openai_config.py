"""Settings of the backbone `openai`, and the profiles of the paper's three backbones at any endpoint.

A name says little: a proxy may map it to another model (D50), and a maker's alias moves on. So a profile takes the id
that it asks for, that id with the date of a release, and the same behind the maker's name, as gateways write it;
nothing else (HX-3). Neighbours such as `claude-sonnet-4-5` or `DeepSeek-V3.2-Exp` are other models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from memcon.checks import choice, in_range
from memcon.errors import ConfigError

__all__ = ["MODEL_PROFILES", "ModelProfile", "OpenAIConfig", "checked_url", "same_model"]

# Names of shells' variables. Keys are not of this form, so that one which is put here by mistake is refused unread.
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_OURS = frozenset(
    {"model", "messages", "temperature", "seed", "max_tokens", "max_completion_tokens", "n", "stream", "stream_options"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """What one backbone of Table 6 asks of an endpoint. Its policy values are `memcon.learning.exploration`'s."""

    # The id that is sent.
    model: str
    # Regular expression that the whole reported id matches.
    reported: str
    # Highest temperature that is sampled as asked; above it the provider caps without a word, or refuses.
    max_temperature: float
    # The SDK's own endpoint serves it; the others need a base URL, so that no key goes to a provider it is not for.
    at_default_endpoint: bool


# Sources: the providers' API references, as far as they could be read; no provider was called (docs/endpoints.md).
MODEL_PROFILES: Mapping[str, ModelProfile] = MappingProxyType(
    {
        "gpt-4.1-mini": ModelProfile(
            model="gpt-4.1-mini",
            reported=r"(openai/)?gpt-4\.1-mini(-\d{4}-\d{2}-\d{2})?",
            max_temperature=2.0,
            at_default_endpoint=True,
        ),
        "claude-sonnet-4": ModelProfile(
            model="claude-sonnet-4-20250514",
            reported=r"(anthropic/)?claude-sonnet-4(-0|-\d{8})?",
            max_temperature=1.0,
            at_default_endpoint=False,
        ),
        "deepseek-v3.2": ModelProfile(
            model="deepseek-v3.2",
            reported=r"(?i:(deepseek(-ai)?/)?deepseek-v3[.-]2(-\d{4,8})?)",
            max_temperature=2.0,
            at_default_endpoint=False,
        ),
    }
)


@dataclass(slots=True, kw_only=True)
class OpenAIConfig:
    """Which model is asked where, and how it samples. Temperature 0 is the paper's (A-28), equal for all frameworks.

    Raises:
        ConfigError: a value is outside its range.
    """

    # A backbone of Table 6: the id that is sent, the ids that may answer, and the policy's values.
    profile: str | None = None
    # The id that is sent; None: the profile's.
    model: str | None = None
    # Regular expression that the whole reported id matches; None: the profile's, without a profile `same_model(model)`.
    reported: str | None = None
    # None: OPENAI_BASE_URL, else the SDK's own.
    base_url: str | None = None
    # The environment variable that holds the key; never the key.
    api_key_env: str = "OPENAI_API_KEY"
    # None: the provider's default.
    temperature: float | None = 0.0
    # Most tokens of one reply, and the field that the model takes them in.
    max_tokens: int = 256
    max_tokens_field: str = "max_tokens"
    send_seed: bool = True
    # Seconds without a byte before a request is given up, and tries after the first: 8 last half a minute and more.
    timeout_s: float = 60.0
    max_retries: int = 8
    # Requests of one process that are open at a time.
    concurrency: int = 16
    # Further fields of the request, as the endpoint names them.
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.profile is not None:
            choice("profile", self.profile, MODEL_PROFILES)
        choice("max_tokens_field", self.max_tokens_field, ("max_tokens", "max_completion_tokens"))
        in_range("max_tokens", self.max_tokens, 1, 1_000_000)
        in_range("timeout_s", self.timeout_s, 0.1, 86_400)
        in_range("max_retries", self.max_retries, 0, 100)
        in_range("concurrency", self.concurrency, 1, 1000)
        if self.temperature is not None:
            in_range("temperature", self.temperature, 0.0, self._max_temperature())
        self._check_texts()

    def _max_temperature(self) -> float:
        return 2.0 if self.profile is None else MODEL_PROFILES[self.profile].max_temperature

    def _check_texts(self) -> None:
        if self.model is not None and not self.model.strip():
            raise ConfigError("model = '': expected the id of a model, or null for the profile's")
        if self.reported is not None:
            try:
                re.compile(self.reported)
            except re.error as error:
                raise ConfigError(f"reported = '{self.reported}': not a regular expression ({error})") from error
        if self.base_url is not None:
            checked_url("base_url", self.base_url)
        if not _VARIABLE.fullmatch(self.api_key_env):
            raise ConfigError(
                "api_key_env: expected the NAME of an environment variable in capitals, such as OPENAI_API_KEY; what "
                "is there is none and is not repeated here, since it may be a key"
            )
        if taken := sorted(_OURS.intersection(self.extra_body)):
            raise ConfigError(f"extra_body: {', '.join(taken)}: set by keys of this entry, or by the platform")


def same_model(model: str) -> str:
    """Regular expression of the ids that stand for `model`: itself, and with the date of a release."""
    return rf"{re.escape(model)}(-\d{{4,8}}|-\d{{4}}-\d{{2}}-\d{{2}})?"


def checked_url(where: str, url: str) -> str:
    """`url`, where it can be the root of an API and holds no credentials.

    Raises:
        ConfigError: names `where` and what is expected; the value only when it cannot hold a secret.
    """
    if any(sign in url for sign in "@?#"):
        raise ConfigError(
            f"{where}: a URL with a user, a query or a fragment is not taken and not repeated here, since it may hold "
            "a key; put the key into the variable that api_key_env names"
        )
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"{where} = '{url}': expected http://HOST[:PORT]/PATH or https://HOST/PATH, most often ending in /v1"
        )
    return url
