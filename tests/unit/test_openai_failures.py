"""The backbone `openai` when something goes wrong: whose failure it is, what is said of it, and what never is."""

from __future__ import annotations

import json
import pickle
import re
import socket
import ssl
import traceback
from typing import Any

import pytest

from memcon import registry
from memcon.errors import Boundary, BoundaryError, ProviderError
from memcon_workers.backbones.openai_config import MODEL_PROFILES
from memcon_workers.backbones.openai_errors import Endpoint, classify, task_error
from support.openai_calls import HELLO, Models, assert_no_secret, refused
from support.openai_server import KEY, Fault, ScriptedOpenAI

openai = pytest.importorskip("openai", reason="the extra `openai` is not installed; EXTRAS=all make test")
pytestmark = pytest.mark.usefixtures("openai_key")


# --- failures ----------------------------------------------------------------------------------------------------

NOTHING_CAN_BE_PLAYED: list[tuple[Fault, tuple[str, ...]]] = [
    (Fault(status=401), ("refuses the key in OPENAI_API_KEY (401)", "run the same command again")),
    (Fault(status=403, message="no access"), ("OPENAI_API_KEY", "model 'm-1'", "403: no access")),
    (Fault(status=402, message="Insufficient Balance"), ("no credit", "402: Insufficient Balance")),
    (Fault(status=429, code="insufficient_quota", message="quota"), ("no credit", "429: quota")),
    (Fault(status=404, message="no such model"), ("model 'm-1'", "404: no such model", "/v1")),
    (Fault(status=404, body=b"<html>nothing</html>", content_type="text/html"), ("(404)", "base_url")),
    (Fault(status=405), ("405", "base_url")),
    (Fault(status=400, code="model_not_found"), ("model 'm-1'",)),
    (
        Fault(status=400, code="invalid_request_error", message="Model Not Exist"),
        ("set model:", "400: Model Not Exist"),
    ),
    (Fault(status=400, message="m-1 is not a valid model ID"), ("set model:",)),
    (
        Fault(status=400, code="unsupported_parameter", param="max_tokens", message="use the other"),
        ("does not take max_tokens", "set max_tokens_field: max_completion_tokens", "400: use the other"),
    ),
    (Fault(status=400, code="unsupported_value", param="temperature"), ("set temperature: null",)),
    (Fault(drop=True), ("cannot be reached", "breaks before the reply is whole")),
    (Fault(usage=False), ("reports no usage", "never guessed")),
    (Fault(body=b"<html>hello</html>", content_type="text/html"), ("no OpenAI-compatible chat endpoint", "/v1")),
    (Fault(body=b'{"detail": "moved"}'), ("no OpenAI-compatible chat endpoint",)),
    (Fault(body=b'{"model": "m-1", "choices": [], "usage": {"prompt_tokens": "9"}}'), ("reports no usage",)),
    # More than any file of a run could hold.
    (
        Fault(body=b'{"model": "m-1", "usage": {"prompt_tokens": 1000000000000000000000, "completion_tokens": 1}}'),
        ("reports no usage",),
    ),
]


def reply_with(message: dict[str, Any] | None, *, choices: Any = None) -> Fault:
    choice = {"index": 0, "finish_reason": "stop", "message": message and {"role": "assistant", **message}}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    body = {"id": "c-1", "model": "m-1", "choices": choices or [choice], "usage": usage}
    return Fault(body=json.dumps(body).encode())


TOOL_CALL = {"id": "t-1", "type": "function", "function": {"name": "go", "arguments": "{}"}}

ONE_REQUEST_FAILED: list[tuple[Fault, str]] = [
    (Fault(status=400, message="maximum context length is 8192"), "answers 400: maximum context length is 8192"),
    (Fault(status=400, code="unsupported_parameter", param="tools"), "answers 400"),
    (Fault(status=422, message="bad"), "answers 422: bad"),
    (Fault(status=429, message="slow down"), "answers 429: slow down"),
    (Fault(status=500, message="oops"), "answers 500: oops"),
    (Fault(status=503, body=b"<html>"), "answers 503"),
    (Fault(choices=False), "answers with no choice"),
    (reply_with(None), "answers with no choice"),
    (reply_with(None, choices={"a": 1}), "answers with no choice"),
    (reply_with(None, choices=[{"index": 0, "finish_reason": "stop", "message": "look"}]), "answers with no choice"),
    (Fault(finish_reason="content_filter"), "content filter"),
    (Fault(text="", finish_reason="length"), "raise max_tokens (= 256)"),
    (Fault(body=b'{"id": '), "no JSON"),
    (reply_with({"content": [{"type": "text", "text": "look"}]}), "in the place of a text"),
    (
        Fault(body=json.dumps({"error": {"message": f"upstream 502 for {KEY}"}}).encode()),
        "an error: upstream 502 for ***",
    ),
    (reply_with({"content": None, "tool_calls": [TOOL_CALL]}), "in the place of a text"),
]


@pytest.mark.parametrize(("fault", "named"), NOTHING_CAN_BE_PLAYED)
async def test_what_no_task_can_be_played_with_ends_the_stream(
    fault: Fault, named: tuple[str, ...], endpoint: ScriptedOpenAI, models: Models
) -> None:
    endpoint.faults = {1: fault}
    model = models()
    error = await refused(model)
    assert isinstance(error, ProviderError)
    assert all(text in str(error) for text in named), error
    assert endpoint.base_url.split("/")[2] in str(error)
    # And after it was mended, the same model answers.
    assert (await model.complete(HELLO, seed=1)).text == "look at shelf 1"


@pytest.mark.parametrize(("fault", "named"), ONE_REQUEST_FAILED)
async def test_what_is_one_requests_own_failure_is_the_tasks(
    fault: Fault, named: str, endpoint: ScriptedOpenAI, models: Models
) -> None:
    endpoint.faults = {1: fault}
    error = await refused(models())
    assert isinstance(error, BoundaryError)
    assert error.boundary is Boundary.BACKBONE
    assert named in str(error)


async def test_a_reply_that_does_not_come_in_time_is_the_tasks(endpoint: ScriptedOpenAI, models: Models) -> None:
    endpoint.faults = {1: Fault(hang=True)}
    error = await refused(models(timeout_s=0.2))
    assert isinstance(error, BoundaryError)
    assert "timeout_s = 0.2 s" in str(error)


@pytest.mark.parametrize("fault", [Fault(status=503, message="overloaded"), Fault(status=400), Fault(choices=False)])
async def test_an_endpoint_that_answers_nobody_is_no_tasks_failure(
    fault: Fault, endpoint: ScriptedOpenAI, models: Models
) -> None:
    endpoint.faults = dict.fromkeys((1, 2, 4, 5, 6, 7), fault)
    model = models()
    assert [type(await refused(model)) for _ in range(2)] == [BoundaryError] * 2
    # One that is answered shows that the others had failures of their own.
    await model.complete(HELLO, seed=1)
    assert [type(await refused(model)) for _ in range(4)] == [
        BoundaryError,
        BoundaryError,
        ProviderError,
        ProviderError,
    ]
    await model.complete(HELLO, seed=1)
    endpoint.faults = {9: fault}
    assert isinstance(await refused(model), BoundaryError)


async def test_what_answers_nobody_is_said_with_what_it_said(endpoint: ScriptedOpenAI, models: Models) -> None:
    endpoint.faults = lambda _asked: Fault(status=503, message="overloaded")
    model = models()
    *_, error = [await refused(model) for _ in range(3)]
    named = ("answers 503: overloaded", "3 requests in a row failed", "run the same command again")
    assert all(text in str(error) for text in named), error


async def test_a_refusal_is_the_models_reply(endpoint: ScriptedOpenAI, models: Models) -> None:
    endpoint.faults = {1: reply_with({"content": None, "refusal": "I cannot."})}
    assert (await models().complete(HELLO, seed=1)).text == "I cannot."


async def test_the_sdk_tries_again_and_only_replies_are_counted(endpoint: ScriptedOpenAI, models: Models) -> None:
    endpoint.faults = {1: Fault(status=500)}
    completion = await models(max_retries=1).complete(HELLO, seed=1)
    assert [call.status for call in endpoint.log] == [500, 200]
    assert completion.prompt_tokens == endpoint.log[1].prompt_tokens


async def test_nobody_listens_is_said_as_it_is(models: Models) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = await refused(models(base_url=f"http://127.0.0.1:{port}/v1"))
    assert isinstance(error, ProviderError)
    assert f"127.0.0.1:{port} cannot be reached: connection refused" in str(error)


def chained(outer: Exception, *causes: Exception) -> Exception:
    inner = outer
    for cause in causes:
        inner.__cause__ = cause
        inner = cause
    return outer


def test_no_name_no_route_and_no_certificate_are_told_apart() -> None:
    httpx2 = pytest.importorskip("httpx2")
    request = httpx2.Request("POST", "http://localhost/v1")
    endpoint = Endpoint(host="localhost", model="m-1", key_variable="K", secrets=(KEY,), timeout_s=3)
    lost = openai.APIConnectionError(request=request)
    found = [
        chained(lost, httpx2.ConnectError("x"), socket.gaierror(-2, "Name or service not known")),
        chained(openai.APIConnectionError(request=request), httpx2.ConnectError("x"), ssl.SSLError("bad certificate")),
        chained(openai.APITimeoutError(request=request), httpx2.ConnectTimeout("x")),
        chained(openai.APIConnectionError(request=request), httpx2.ConnectError("x"), OSError(113, "No route to host")),
    ]
    texts = [str(task_error(classify(error, endpoint))) for error in found]
    assert all(isinstance(classify(error, endpoint), ProviderError) for error in found)
    for text, named in zip(
        texts,
        ("there is no such host", "TLS fails (SSLError)", "no connection in time", "No route to host"),
        strict=True,
    ):
        assert f"localhost cannot be reached: {named}" in text


# --- who answers -------------------------------------------------------------------------------------------------


async def test_another_model_behind_the_name_is_refused_with_all_ids(endpoint: ScriptedOpenAI, models: Models) -> None:
    # D50: a proxy maps the name of one model to another one.
    endpoint.reports = "claude-sonnet-4-20250514"
    error = await refused(models(profile="gpt-4.1-mini", model=None))
    assert isinstance(error, ProviderError)
    host = endpoint.base_url.split("/")[2]
    pattern = MODEL_PROFILES["gpt-4.1-mini"].reported
    named = (host, "'gpt-4.1-mini'", "'claude-sonnet-4-20250514'", f"'{pattern}'", "reported:")
    assert all(text in str(error) for text in named), error


async def test_an_alias_that_is_sent_does_not_loosen_the_profile(endpoint: ScriptedOpenAI, models: Models) -> None:
    endpoint.reports = "gpt-4.1-mini-2025-04-14"
    completion = await models(profile="gpt-4.1-mini", model="our-alias").complete(HELLO, seed=1)
    assert (endpoint.log[0].model, completion.model_id) == ("our-alias", "gpt-4.1-mini-2025-04-14")
    endpoint.reports = None
    assert "reports 'our-alias'" in str(await refused(models(profile="gpt-4.1-mini", model="our-alias")))


async def test_without_a_profile_the_model_itself_or_its_dated_release_must_answer(
    endpoint: ScriptedOpenAI, models: Models
) -> None:
    for same in ("m-1", "m-1-20260101", "m-1-2026-01-01"):
        endpoint.reports = same
        assert (await models(model="m-1").complete(HELLO, seed=1)).model_id == same
    for other in ("m-1-mini", "m-11", "vendor/m-1"):
        endpoint.reports = other
        assert isinstance(await refused(models(model="m-1")), ProviderError)


async def test_reported_says_which_ids_are_meant(endpoint: ScriptedOpenAI, models: Models) -> None:
    endpoint.reports = "vendor/m-1:free"
    assert (await models(reported=".*").complete(HELLO, seed=1)).model_id == "vendor/m-1:free"
    model = models(profile="gpt-4.1-mini", reported=r"vendor/m-1(:free)?")
    assert (await model.complete(HELLO, seed=1)).model_id == "vendor/m-1:free"
    assert isinstance(await refused(models(reported="vendor/m")), ProviderError)


# --- secrets -----------------------------------------------------------------------------------------------------

ECHOES = [
    f"your key {KEY} is wrong",
    f"Bearer {KEY}",
    f"masked: {KEY[:8]}****{KEY[-4:]}",
    json.dumps({"headers": {"Authorization": f"Bearer {KEY}"}}),
    f"url-encoded%20{KEY}%20",
    "sk-another-key-that-looks-like-one",
]


@pytest.mark.parametrize("status", [400, 402, 403, 404, 429, 500])
async def test_a_key_that_a_provider_echoes_is_not_repeated(
    status: int, endpoint: ScriptedOpenAI, models: Models
) -> None:
    endpoint.faults = {number: Fault(status=status, message=echo) for number, echo in enumerate(ECHOES, start=1)}
    model = models()
    for _ in ECHOES:
        error = await refused(model)
        # Whatever a log would show of it, causes included.
        told = [str(error), repr(error), repr(vars(error)), pickle.dumps(error).decode("latin-1")]
        for text in (*told, "".join(traceback.format_exception(error))):
            assert_no_secret(text)
            assert "sk-another" not in text
        assert str(status) in str(error)


async def test_a_wrong_key_is_not_repeated(
    endpoint: ScriptedOpenAI, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = "another-secret-9876543210"
    monkeypatch.setenv("OPENAI_API_KEY", wrong)
    error = await refused(models())
    assert isinstance(error, ProviderError)
    assert_no_secret("".join(traceback.format_exception(error)), wrong)
    assert (endpoint.requests, endpoint.log) == (1, [])


async def test_a_page_in_the_place_of_a_sentence_is_cut_and_holds_nothing_up(
    endpoint: ScriptedOpenAI, models: Models
) -> None:
    # One word of a million signs, as of a page's script; the key stands where it is cut.
    page = "x" * 290 + KEY + "*x" * 500_000
    endpoint.faults = {1: Fault(status=500, message=f"see {page}")}

    error = await refused(models())

    assert len(str(error)) < 500
    assert_no_secret(str(error))


async def test_a_word_that_stands_in_for_a_key_cuts_no_message(
    endpoint: ScriptedOpenAI, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setattr(endpoint, "key", "x")
    endpoint.faults = {1: Fault(status=400, message="the maximum context, with key 'x'.")}
    assert "the maximum context, with key ***" in str(await refused(models()))


async def test_headers_of_the_environment_are_not_repeated(
    endpoint: ScriptedOpenAI, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Tenant: 9f8e7d6c5b4a")
    endpoint.faults = {1: Fault(status=400, message="got x-tenant: 9f8e7d6c5b4a")}
    error = await refused(models())
    assert "got x-tenant: ***" in str(error)


# --- the check before a run --------------------------------------------------------------------------------------


async def check(endpoint: ScriptedOpenAI, **parameters: Any) -> None:
    given = {"profile": "gpt-4.1-mini", "base_url": endpoint.base_url, "max_retries": 0, **parameters}
    plugin = registry.plugin("backbone", "openai")
    assert plugin.check is not None
    await plugin.check(registry.configure("backbone", "openai", given))


async def test_a_good_endpoint_passes_and_no_reply_is_asked_for(endpoint: ScriptedOpenAI) -> None:
    await check(endpoint)
    await check(endpoint, model="not-in-the-list")
    assert (endpoint.requests, endpoint.log) == (2, [])


@pytest.mark.parametrize("status", [403, 404, 405, 429, 501])
async def test_an_endpoint_without_a_list_passes(status: int, endpoint: ScriptedOpenAI) -> None:
    endpoint.list_fault = Fault(status=status)
    await check(endpoint)


@pytest.mark.parametrize(
    ("status", "named"), [(401, "refuses the key"), (402, "no credit"), (503, "answers 503: scripted fault; wait")]
)
async def test_an_endpoint_that_cannot_be_used_is_told_before_the_run(
    status: int, named: str, endpoint: ScriptedOpenAI
) -> None:
    endpoint.list_fault = Fault(status=status)
    with pytest.raises(ProviderError, match=re.escape(named)):
        await check(endpoint)


async def test_the_check_tries_less_often_than_a_run(endpoint: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memcon_workers.backbones.openai_chat.CHECK_RETRIES", 0)
    endpoint.list_fault = Fault(status=503)
    with pytest.raises(ProviderError):
        await check(endpoint, max_retries=8)
    assert endpoint.requests == 1


async def test_an_endpoint_that_is_away_is_told_before_the_run(endpoint: ScriptedOpenAI) -> None:
    with pytest.raises(ProviderError, match="connection refused"):
        await check(endpoint, base_url="http://127.0.0.1:9/v1")
