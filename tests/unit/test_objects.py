"""Object stores without a store: what a URI may be, and what an unusable set-up says."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memcon.errors import ConfigError, ConflictError, MemconError, MissingExtraError, NotFoundError
from memcon_platform.object_errors import ObjectStoreError, explained
from memcon_platform.objects import is_uri, open_objects
from support.memory_objects import MemoryClient, memory_store

SECRET = "wJalrXUtnFEMI-never-printed"
NEEDS_BOTO3 = "no boto3; EXTRAS=all make test"


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith("AWS_")]:  # noqa: TID251 - takes the machine's away
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def refusal(call: Callable[[], object]) -> ObjectStoreError:
    with pytest.raises(ObjectStoreError) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)
    # Nor in what a traceback would print beside it.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [("s3://b/x", True), ("S3://b/x", True), ("runs/x", False), ("/s3://x", False), ("s3:", False)],
)
def test_a_place_in_a_store_is_told_from_a_path(text: str, expected: bool) -> None:
    assert is_uri(text) is expected


@pytest.mark.parametrize(
    "uri",
    [
        "s3://", "s3:///x", "s3://ab/x", "s3://Bucket/x", "s3://a_b_c/x", "runs/x", "s3://bucket/a//b",
        "s3://bucket/../x", "s3://bucket/a/./b", "s3://bucket/a\nb",
    ],
)  # fmt: skip
def test_a_uri_that_names_no_place_is_refused_with_the_form_that_it_has(uri: str) -> None:
    with pytest.raises(ConfigError, match="expected s3://BUCKET/PREFIX") as caught:
        open_objects(uri)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("uri", [f"s3://AKIA:{SECRET}@bucket/x", f"s3://AKIA:{SECRET}"])
def test_credentials_in_a_uri_are_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(ConfigError, match="credentials by AWS_PROFILE") as caught:
        open_objects(uri)
    assert SECRET not in str(caught.value)
    assert "AKIA" not in str(caught.value)


def test_without_the_library_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    with pytest.raises(MissingExtraError, match=r"memcon\[s3\]"):
        open_objects("s3://bucket/x")


@pytest.mark.parametrize("uri", ["s3://bucket/a/b/", "S3://bucket/a/b"])
def test_a_store_is_named_by_one_form_of_its_uri(uri: str, clean: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3", reason=NEEDS_BOTO3)
    with open_objects(uri) as store:
        assert store.uri == "s3://bucket/a/b"


@pytest.mark.parametrize("key", ["", "/etc/x", "../x", "a/../../x", "a//b", "."])
def test_a_key_never_leaves_its_prefix(key: str) -> None:
    client = MemoryClient()
    with pytest.raises(ConfigError, match="no key under s3://bucket/runs/one"):
        memory_store(client).put(key, b"x")
    assert client.objects == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "no credentials were found"),
        ({"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": ""}, "credentials"),
        ({"AWS_ACCESS_KEY_ID": "AKIA"}, "only half of the credentials"),
        ({"AWS_PROFILE": "nobody"}, "AWS_PROFILE names a profile that is not configured"),
        ({"AWS_ENDPOINT_URL_S3": f"ann:{SECRET}@nowhere"}, "the endpoint's address is not a valid URL"),
        ({"AWS_ENDPOINT_URL": f"http://ann:{SECRET}@[half"}, "the endpoint's address is not a valid URL"),
        ({"AWS_DEFAULT_REGION": "not a region"}, "region's name is not a valid one"),
    ],
)
def test_a_set_up_of_the_sdk_that_cannot_work_is_one_line(
    settings: dict[str, str], words: str, clean: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("boto3", reason=NEEDS_BOTO3)
    for name, value in settings.items():
        clean.setenv(name, value)

    def use() -> None:
        with open_objects("s3://bucket/x") as store:
            store.list()

    error = refusal(use)
    assert words in str(error)
    assert "s3://bucket/x" in str(error)
    assert not error.away


def test_an_unreadable_config_file_is_one_line(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("boto3", reason=NEEDS_BOTO3)
    (tmp_path / "config").write_text(f"aws_secret_access_key = {SECRET}\n[half")
    clean.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert "settings of the AWS SDK cannot be read" in str(refusal(lambda: open_objects("s3://bucket/x")))


class _Said(Exception):  # noqa: N818 - stands for the SDK's ClientError
    def __init__(self, status: int, code: str) -> None:
        message = f"credential AKIA/{SECRET} of arn:aws:iam::1:user/ann"
        self.response: dict[str, Any] = {
            "Error": {"Code": code, "Message": message, "StringToSign": SECRET},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }
        super().__init__(message)


@pytest.mark.parametrize(
    ("status", "code", "words", "away"),
    [
        (404, "NoSuchBucket", "there is no such bucket", False),
        (403, "AccessDenied", "permission is denied", False),
        (403, "", "permission is denied", False),
        (403, "InvalidAccessKeyId", "does not know these credentials", False),
        (403, "SignatureDoesNotMatch", "secret key does not fit", False),
        (400, "ExpiredToken", "token is expired", False),
        (301, "PermanentRedirect", "in another region", False),
        (400, "AuthorizationHeaderMalformed", "in another region", False),
        (403, "RequestTimeTooSkewed", "clock is too far off", False),
        (503, "SlowDown", "the store is busy", True),
        (500, "InternalError", "the store failed", True),
        (502, "", "the store failed", True),
        (409, "ConditionalRequestConflict", "another writer is at the same object", True),
        (501, "NotImplemented", "does not support the request", False),
        (507, "XMinioStorageFull", "no space left", False),
        (404, "404", "what answers there is no S3 store", False),
        (418, "Teapot", "the store refuses (Teapot, HTTP 418)", False),
        (418, f"Teapot {SECRET}", "the store refuses (no code, HTTP 418)", False),
    ],
)
def test_every_refusal_of_a_store_has_a_cause_in_plain_words(status: int, code: str, words: str, away: bool) -> None:
    error = explained(_Said(status, code), "write s3://b/k", key_uri="s3://b/k", endpoint=None)
    assert isinstance(error, ObjectStoreError)
    assert str(error).startswith("cannot write s3://b/k: ")
    assert words in str(error)
    assert error.away is away
    for word in (SECRET, "AKIA", "arn:"):
        assert word not in str(error)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(404, "NoSuchKey", NotFoundError), (412, "PreconditionFailed", ConflictError)],
)
def test_what_is_no_fault_of_the_store_has_its_own_class(status: int, code: str, kind: type[MemconError]) -> None:
    error = explained(_Said(status, code), "read s3://b/k", key_uri="s3://b/k", endpoint=None)
    assert type(error) is kind
    assert "s3://b/k" in str(error)


def sdk_errors() -> list[tuple[str, dict[str, Any], str, bool]]:
    reached, url = {"endpoint_url": f"https://ann:{SECRET}@HOST:9000/x?key={SECRET}"}, SECRET
    return [
        ("EndpointConnectionError", reached, "cannot be reached (host:9000)", True),
        ("ConnectTimeoutError", reached, "cannot be reached (host:9000)", True),
        ("ReadTimeoutError", reached, "no answer in time (host:9000)", True),
        ("ConnectionClosedError", reached, "the connection broke", True),
        ("ProxyConnectionError", {"proxy_url": url}, "the proxy cannot be reached", True),
        ("SSLError", {**reached, "error": url}, "TLS certificate is not trusted", False),
        ("ResponseStreamingError", {"error": url}, "the connection broke", True),
        ("IncompleteReadError", {"actual_bytes": 1, "expected_bytes": 2}, "the connection broke", True),
        ("HTTPClientError", {"error": url}, "the connection broke", True),
        ("SSOTokenLoadError", {"error_msg": url}, "token is expired", False),
        ("ParamValidationError", {"report": url}, "the SDK refuses the bucket's name or the key", False),
        ("UnknownServiceStyle", {"service_style": url}, "the SDK failed (UnknownServiceStyle)", False),
    ]


@pytest.mark.parametrize(("name", "arguments", "words", "away"), sdk_errors())
def test_every_failure_of_the_sdk_has_a_cause_in_plain_words(
    name: str, arguments: dict[str, Any], words: str, away: bool
) -> None:
    exceptions = pytest.importorskip("botocore.exceptions", reason=NEEDS_BOTO3)
    endpoint = f"https://ann:{SECRET}@HOST:9000/x?key={SECRET}"
    error = explained(getattr(exceptions, name)(**arguments), "list s3://b", key_uri="s3://b", endpoint=endpoint)
    assert isinstance(error, ObjectStoreError)
    assert words in str(error)
    assert error.away is away
    assert SECRET not in str(error)
