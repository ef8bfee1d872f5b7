"""What went wrong at an object store, in one line of our own words. Owns the table of causes; knows no library.

Nothing that a store or the SDK said is passed on, save a well-formed error code: bodies of refusals hold key ids and
strings to sign, and an endpoint may hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from memcon.errors import ConflictError, MemconError, NotFoundError, StorageError

__all__ = ["ObjectStoreError", "explained"]


class ObjectStoreError(StorageError):
    """An object store cannot be used as asked: mend what the message names. `away`: a later try may do without."""

    def __init__(self, doing: str, cause: str, remedy: str, *, away: bool = False) -> None:
        self.away = away
        super().__init__(f"cannot {doing}: {cause}; {remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    words: str
    remedy: str
    away: bool = False


_AGAIN = "run the same command again later"
_CREDENTIALS = "give credentials by AWS_PROFILE, or by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_ENDPOINT = "check AWS_ENDPOINT_URL_S3 and the network, then run the same command again"

_NO_BUCKET = _Cause(words="there is no such bucket", remedy="make it, or check its name and the endpoint")
_DENIED = _Cause(
    words="permission is denied", remedy="these credentials need to list, get, put and delete under the URI"
)
_NO_CREDENTIALS = _Cause(words="no credentials were found", remedy=_CREDENTIALS)
_UNKNOWN_KEY = _Cause(words="the store does not know these credentials", remedy=_CREDENTIALS)
_SIGNATURE = _Cause(words="the secret key does not fit the access key", remedy=_CREDENTIALS)
_EXPIRED = _Cause(words="the session's token is expired or not valid", remedy="renew it and run the same command again")
_REGION = _Cause(words="the bucket is in another region", remedy="set AWS_DEFAULT_REGION to the bucket's region")
_CLOCK = _Cause(words="this machine's clock is too far off", remedy="set the clock and run the same command again")
_BUSY = _Cause(words="the store is busy", remedy=_AGAIN, away=True)
_FAULT = _Cause(words="the store failed", remedy=_AGAIN, away=True)
_OTHER_WRITER = _Cause(words="another writer is at the same object", remedy=_AGAIN, away=True)
_FULL = _Cause(words="the store has no space left", remedy="free some, then run the same command again")
_NOT_BUILT = _Cause(words="the store does not support the request", remedy="use one that has conditional puts")
_TOO_LONG = _Cause(words="the key is too long", remedy="use a shorter URI or run name")
_UNREACHED = _Cause(words="it cannot be reached", remedy=_ENDPOINT, away=True)
_CUT = _Cause(words="the connection broke", remedy=_AGAIN, away=True)
_SLOW = _Cause(words="no answer in time", remedy=_ENDPOINT, away=True)
_PROXY = _Cause(words="the proxy cannot be reached", remedy="check HTTP_PROXY, HTTPS_PROXY and NO_PROXY", away=True)
_CERTIFICATE = _Cause(
    words="its TLS certificate is not trusted, or it does not speak TLS", remedy="set AWS_CA_BUNDLE, or use http://"
)
_PROFILE = _Cause(words="AWS_PROFILE names a profile that is not configured", remedy="name one of ~/.aws/config")
_SETTINGS = _Cause(words="the settings of the AWS SDK cannot be read", remedy="mend ~/.aws/config and AWS_* variables")
_BAD_REGION = _Cause(words="the region's name is not a valid one", remedy="check AWS_DEFAULT_REGION and the profile")
_BAD_ENDPOINT = _Cause(
    words="the endpoint's address is not a valid URL",
    remedy="mend AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL (http://HOST:PORT)",
)
_NO_STORE = _Cause(words="what answers there is no S3 store", remedy="mend AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL")
_BAD_REQUEST = _Cause(words="the SDK refuses the bucket's name or the key", remedy="check the URI")

_CODES: dict[str, _Cause] = {
    "NoSuchBucket": _NO_BUCKET,
    "AccessDenied": _DENIED,
    "AllAccessDisabled": _DENIED,
    "AccountProblem": _DENIED,
    "InvalidAccessKeyId": _UNKNOWN_KEY,
    "InvalidClientTokenId": _UNKNOWN_KEY,
    "SignatureDoesNotMatch": _SIGNATURE,
    "ExpiredToken": _EXPIRED,
    "InvalidToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "AuthorizationHeaderMalformed": _REGION,
    "PermanentRedirect": _REGION,
    "TemporaryRedirect": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "RequestTimeTooSkewed": _CLOCK,
    "SlowDown": _BUSY,
    "Throttling": _BUSY,
    "ThrottlingException": _BUSY,
    "TooManyRequests": _BUSY,
    "ServiceUnavailable": _BUSY,
    "RequestTimeout": _SLOW,
    "OperationAborted": _OTHER_WRITER,
    "ConditionalRequestConflict": _OTHER_WRITER,
    "InternalError": _FAULT,
    "QuotaExceeded": _FULL,
    "InsufficientStorage": _FULL,
    "XMinioStorageFull": _FULL,
    "NotImplemented": _NOT_BUILT,
    "KeyTooLongError": _TOO_LONG,
    # The answer to a multipart put was lost, and the SDK asked once more to end it.
    "NoSuchUpload": _CUT,
    "InvalidBucketName": _BAD_REQUEST,
}  # fmt: skip

# By the name of the SDK's class, most special first along its bases.
_CLASSES: dict[str, _Cause] = {
    "NoCredentialsError": _NO_CREDENTIALS,
    "PartialCredentialsError": _Cause(words="only half of the credentials was found", remedy=_CREDENTIALS),
    "CredentialRetrievalError": _NO_CREDENTIALS,
    "NoAuthTokenError": _NO_CREDENTIALS,
    "TokenRetrievalError": _EXPIRED,
    "SSOError": _EXPIRED,
    "LoginError": _EXPIRED,
    "ProfileNotFound": _PROFILE,
    "ConfigParseError": _SETTINGS,
    "ConfigNotFound": _SETTINGS,
    "InvalidConfigError": _SETTINGS,
    "InvalidRegionError": _BAD_REGION,
    "InvalidEndpointConfigurationError": _BAD_ENDPOINT,
    "EndpointResolutionError": _BAD_ENDPOINT,
    "ParamValidationError": _BAD_REQUEST,
    "ResponseParserError": _NO_STORE,
    "SSLError": _CERTIFICATE,
    "ProxyConnectionError": _PROXY,
    "ConnectTimeoutError": _UNREACHED,
    "ReadTimeoutError": _SLOW,
    "EndpointConnectionError": _UNREACHED,
    "ConnectionClosedError": _CUT,
    "ResponseStreamingError": _CUT,
    "IncompleteReadError": _CUT,
    "HTTPClientError": _CUT,
    "ConnectionError": _UNREACHED,
}  # fmt: skip

# A refusal whose body a proxy or a plain server wrote has a status alone.
_STATUSES: dict[int, _Cause] = {
    301: _REGION, 307: _REGION, 401: _UNKNOWN_KEY, 403: _DENIED, 404: _NO_STORE, 408: _SLOW, 429: _BUSY,
    501: _NOT_BUILT, 503: _BUSY, 507: _FULL,
}  # fmt: skip

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")
_ABSENT = "NoSuchKey"


def explained(error: Exception, doing: str, *, key_uri: str, endpoint: str | None) -> MemconError:
    """The error to raise for `error`, which the SDK raised while we were `doing` something at `key_uri`.

    Returns `NotFoundError` for an object that is not there, `ConflictError` for a condition that does not hold, else
    `ObjectStoreError`. `endpoint` is named, without what may be secret in it, when it did not answer.
    """
    response = getattr(error, "response", None)
    if not isinstance(response, dict) or "Error" not in response:
        return _of_class(error, doing, endpoint)
    code = str(response["Error"].get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == _ABSENT:
        return NotFoundError(f"{key_uri} does not exist; check the URI")
    if code == "PreconditionFailed" or status == 412:
        return ConflictError(f"cannot {doing}: another writer was first; look at what is there")
    found = _CODES.get(code) or _STATUSES.get(status) or (_FAULT if status >= 500 else None)
    said = code if _CODE.fullmatch(code) else "no code"
    if found is None:
        found = _Cause(
            words="the store refuses", remedy="check AWS_ENDPOINT_URL_S3 and look up the code in the store's manual"
        )
    return ObjectStoreError(doing, f"{found.words} ({said}, HTTP {status})", found.remedy, away=found.away)


def _of_class(error: Exception, doing: str, endpoint: str | None) -> ObjectStoreError:
    found = _first_known(kind.__name__ for kind in type(error).__mro__)
    if found is None:
        cause = f"the SDK failed ({type(error).__name__})"
        return ObjectStoreError(doing, cause, "check the AWS_* variables, ~/.aws/config and the URI")
    place = _host(endpoint) if found.away and found is not _PROXY else ""
    return ObjectStoreError(doing, found.words + place, found.remedy, away=found.away)


def _first_known(names: Iterable[str]) -> _Cause | None:
    return next((_CLASSES[name] for name in names if name in _CLASSES), None)


def _host(endpoint: str | None) -> str:
    """Host and port of an endpoint, without user, password and query."""
    try:
        parts = urlsplit(endpoint or "")
        place = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    except ValueError:
        return ""
    return f" ({place})" if place else ""
