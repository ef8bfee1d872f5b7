"""What an endpoint's failure means for the task that met it. Owns the classes and the words; sends nothing.

`ProviderError`: no task can be played until the user mends something, so the task is not used up. `BoundaryError`: this
one request failed for good, the task is `unevaluable` and the next one may do better (HX-5); that none does better is
seen in `openai_chat`. No message holds a key.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from memcon.errors import Boundary, BoundaryError, MemconError, ProviderError

__all__ = ["Endpoint", "EndpointFailure", "classify", "task_error"]

_AGAIN = "and run the same command again"
# Long enough for a provider's sentence.
_MOST_CHARACTERS = 300
# Read of what a provider says; more than enough for the above when words of it are blotted out.
_MOST_READ = 4_000
# A word with as long a part of a secret is taken for a part of it: some providers answer with a masked key.
_TELLING_PART = 6
_KEY_LIKE = re.compile(r"\bsk-[\w*.-]+")
# Codes under which a status that is mostly one request's own failure fails every request of an account, or of a run.
_NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
# Some providers say so under 400, without a code.
_NO_SUCH_MODEL = re.compile(r"model .{0,80}?(not exist|not found)|not a valid model|(invalid|unknown) model\b", re.I)
_REFUSED_PARAMETER = frozenset({"unsupported_parameter", "unsupported_value"})
# Parameter of ours -> the setting that no longer sends it so.
_REMEDIES = {
    "max_tokens": "max_tokens_field: max_completion_tokens",
    "max_completion_tokens": "max_tokens_field: max_tokens",
    "temperature": "temperature: null",
    "seed": "send_seed: false",
}


class EndpointFailure(Exception):  # noqa: N818 - the word that a task's record shows as the cause
    """Why one request failed, in words that may be stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Who is asked for what."""

    # Host, with its port where one is given.
    host: str
    # The id that is sent.
    model: str
    # The environment variable of the key.
    key_variable: str
    # What no message may hold: the key, and values of headers that the environment adds.
    secrets: tuple[str, ...] = field(repr=False)
    timeout_s: float

    def redacted(self, text: str) -> str:
        """`text` as one short line without any secret, a telling part of one, or what looks like a key."""
        # Some answer with a whole page: what is left out was never to be shown.
        text = " ".join(text.split())[:_MOST_READ]
        for secret in self.secrets:
            if len(secret) >= _TELLING_PART:
                text = text.replace(secret, "***")
        words = [
            "***" if "***" in word or any(_shares_a_part(word, secret) for secret in self.secrets) else word
            for word in text.split()
        ]
        line = _KEY_LIKE.sub("***", " ".join(words))
        return line if len(line) <= _MOST_CHARACTERS else line[:_MOST_CHARACTERS] + " ..."


def classify(error: Exception, endpoint: Endpoint) -> ProviderError | EndpointFailure:
    """What an error of the SDK means, in one line: nothing can be played, or this one request failed."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return _of_status(error, status, endpoint)
    if reason := _no_connection(error):
        return ProviderError(f"{endpoint.host} cannot be reached: {reason}; check base_url and the network, {_AGAIN}")
    if _is_timeout(error):
        return EndpointFailure(f"{endpoint.host} gave no whole reply within timeout_s = {endpoint.timeout_s:g} s")
    return EndpointFailure(endpoint.redacted(f"{endpoint.host}: {type(error).__name__}: {error}"))


def task_error(found: ProviderError | EndpointFailure) -> MemconError:
    """`found` as a model raises it."""
    return found if isinstance(found, ProviderError) else BoundaryError(Boundary.BACKBONE, "complete", found)


def _of_status(error: Any, status: int, endpoint: Endpoint) -> ProviderError | EndpointFailure:
    host, variable, model = endpoint.host, endpoint.key_variable, endpoint.model
    code = str(error.code or "")
    said = endpoint.redacted(error.message.removeprefix(f"Error code: {status}").removeprefix(" - "))
    told = f"{status}: {said}" if said else str(status)
    if status == 401:
        # What it says may hold a part of the key, and says no more than the status.
        return ProviderError(f"{host} refuses the key in {variable} (401); put a key of this endpoint there, {_AGAIN}")
    if status == 402 or code in _NO_CREDIT:
        return ProviderError(f"{host} gives the key in {variable} no credit ({told}); mend the account, {_AGAIN}")
    if status == 403:
        return ProviderError(
            f"{host} does not let the key in {variable} use model '{model}' ({told}); "
            f"allow it there or set another key, {_AGAIN}"
        )
    if status in {404, 405} or code == "model_not_found" or (status == 400 and _NO_SUCH_MODEL.search(said)):
        return ProviderError(
            f"{host} has no model '{model}' at this base_url ({told}); set model: to an id of its list of models, and "
            "base_url: as its documentation says, most often ending in /v1"
        )
    remedy = _REMEDIES.get(str(error.param)) if code in _REFUSED_PARAMETER else None
    if remedy is not None:
        return ProviderError(f"{host} does not take {error.param} for model '{model}' ({told}); set {remedy}")
    return EndpointFailure(f"{host} answers {told}")


def _no_connection(error: Exception) -> str:
    """Why no connection carried a reply, or "" where one did, or where time ran out on it."""
    import httpx2

    causes = list(_causes(error))
    if _is_timeout(error):
        tried = any(isinstance(cause, httpx2.ConnectTimeout) for cause in causes)
        return "no connection in time" if tried else ""
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return "there is no such host"
        if isinstance(cause, ssl.SSLError):
            return f"TLS fails ({getattr(cause, 'reason', None) or type(cause).__name__})"
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, httpx2.ReadError | httpx2.WriteError | httpx2.RemoteProtocolError):
            return "the connection breaks before the reply is whole"
    if not any(isinstance(cause, httpx2.RequestError) for cause in causes):
        return ""
    # The innermost is the system's own.
    return getattr(causes[-1], "strerror", None) or f"the connection fails ({type(causes[-1]).__name__})"


def _is_timeout(error: Exception) -> bool:
    import openai

    return isinstance(error, openai.APITimeoutError)


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _shares_a_part(word: str, secret: str) -> bool:
    if len(secret) < _TELLING_PART:
        # Of a server that asks for none: a word such as "none", which must not cut others.
        return word.strip(".,:;'\"") == secret
    return any(secret[at : at + _TELLING_PART] in word for at in range(len(secret) - _TELLING_PART + 1))
