"""The wire between client and owner: paths, header and how errors travel. Standard library only: both ends use it.

Bodies are JSON objects whose fields are those of `memcon.protocols`; what the owner accepts is in `messages`.
"""

from __future__ import annotations

from memcon.errors import ConfigError, ConflictError, MemconError, NotFoundError, UnavailableError

__all__ = [
    "CANCEL",
    "CANCEL_EPISODE",
    "DECIDE",
    "DECIDE_BATCH",
    "FREEZE_TABLE",
    "HEALTH",
    "IMPORT_TABLE",
    "METRICS",
    "OPENAPI",
    "OPEN_TABLE",
    "OUTCOME",
    "OUTCOMES",
    "SHARD_HEADER",
    "SHARD_MAP",
    "TABLES",
    "LimitError",
    "MediaTypeError",
    "MethodError",
    "MovedError",
    "RejectedError",
    "SlowRequestError",
    "TooLargeError",
    "UnauthorizedError",
    "error_of",
    "message_of",
    "shard_mark",
    "status_of",
]

# Of an owner's listener and of the gateway alike.
OPEN_TABLE = "/v1/open_table"
IMPORT_TABLE = "/v1/import_table"
FREEZE_TABLE = "/v1/freeze_table"
DECIDE = "/v1/decide"
DECIDE_BATCH = "/v1/decide_batch"
OUTCOME = "/v1/outcome"
OUTCOMES = "/v1/outcomes"
CANCEL = "/v1/cancel"
CANCEL_EPISODE = "/v1/cancel_episode"
TABLES = "/v1/tables"
# Without a token: nothing learned stands in them.
HEALTH = "/v1/health"
METRICS = "/metrics"
OPENAPI = "/openapi.json"
# Of the gateway only.
SHARD_MAP = "/v1/shard_map"

# Of an error on its way; a refused value may be as long as a body.
MAX_MESSAGE_CHARS = 2000

# A port that was freed may be another shard's next one: the client says whom it means, the listener checks it.
SHARD_HEADER = "memcon-shard"


class MovedError(UnavailableError):
    """Another shard owns this key: read the shard map again and ask there."""


class RejectedError(MemconError):
    """The request has not the form of the wire: mend the named field."""


class TooLargeError(RejectedError):
    """The request's body is over the limit: send it in parts."""


class MediaTypeError(RejectedError):
    """The body is of a type that is not spoken here: send JSON or msgpack and say so in content-type."""


class MethodError(RejectedError):
    """The path knows other methods only: take one of `allow`."""

    def __init__(self, message: str, allow: str = "") -> None:
        super().__init__(message)
        self.allow = allow


class SlowRequestError(UnavailableError):
    """The request did not arrive whole in time: send it again."""


class UnauthorizedError(MemconError):
    """The request bears no valid token: send "authorization: Bearer ..." with the server's token."""


class LimitError(ConflictError):
    """The request would pass a limit of this server: raise the limit, or use fewer of the thing."""


# First match wins: subclasses stand before their bases.
_CODES: tuple[tuple[type[MemconError], int, str], ...] = (
    (UnauthorizedError, 401, "unauthorized"),
    (LimitError, 409, "limit"),
    (ConflictError, 409, "conflict"),
    (NotFoundError, 404, "not_found"),
    (MovedError, 421, "moved"),
    (SlowRequestError, 408, "slow_request"),
    (UnavailableError, 503, "unavailable"),
    (TooLargeError, 413, "too_large"),
    (MediaTypeError, 415, "media_type"),
    (MethodError, 405, "method"),
    (RejectedError, 400, "rejected"),
    (ConfigError, 400, "invalid"),
)


def shard_mark(shard: int, num_shards: int) -> str:
    """Value of the shard header."""
    return f"{shard}/{num_shards}"


def status_of(error: MemconError) -> tuple[int, str]:
    """HTTP status and code under which `error` travels; 500 for one that is the owner's own fault."""
    for kind, status, code in _CODES:
        if isinstance(error, kind):
            return status, code
    return 500, "fault"


def message_of(error: MemconError) -> str:
    """The text with which `error` travels: one that names a long value is cut."""
    text = str(error)
    if len(text) <= MAX_MESSAGE_CHARS:
        return text
    end = MAX_MESSAGE_CHARS // 4
    # What is at fault stands at the beginning, what to do at the end.
    return f"{text[: MAX_MESSAGE_CHARS - end - 5]} ... {text[-end:]}"


def error_of(code: str, message: str) -> MemconError:
    """The error that the owner raised; `UnavailableError` for a fault, which a restarted owner may not have."""
    for kind, _, known in _CODES:
        if code == known:
            return kind(message)
    return UnavailableError(message)
