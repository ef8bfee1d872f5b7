"""A bare ASGI application over the wire's routes: who may ask, how much, for how long, and in which form.

The listener and the gateway are one of these each; what a route does is its handler's. A handler gets the message and
gives the reply, or raises what `wire.status_of` knows.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

from memcon.errors import ConfigError, ConflictError, MemconError, NotFoundError, UnavailableError
from memcon_policy_server import wire
from memcon_policy_server.http.bodies import JSON, Reader, encode, media_of, reply_media
from memcon_policy_server.http.busy_poll import BusyPoll
from memcon_policy_server.http.routes import ROUTES, Failure, Route
from memcon_policy_server.options import Limits

__all__ = ["Answer", "Endpoint", "Handler", "Headers", "HttpApp", "QuickHandler"]

log = logging.getLogger(__name__)

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Handler: TypeAlias = Callable[[Any], Awaitable[object]]
Headers: TypeAlias = Mapping[bytes, bytes]
# Status, media type and body of an answer.
Answer: TypeAlias = tuple[int, bytes, bytes]
# Body of a POST that `HttpApp.is_plain` -> body of its good JSON answer, or its whole answer, now or later; None = only
# ASGI can tell.
QuickHandler: TypeAlias = Callable[[bytes], bytes | Answer | Coroutine[Any, Any, Answer] | None]

# No body is 10^18 bytes long, and Python refuses to read numbers of thousands of digits.
_MAX_DIGITS = 18
_ANY = b"*/*"
_WANTS_JSON = (_ANY, JSON)
_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class Endpoint:
    """One route with what answers it here."""

    __slots__ = ("handler", "max_body_bytes", "reader", "route")

    def __init__(self, route: Route, handler: Handler, limits: Limits) -> None:
        self.route, self.handler = route, handler
        self.reader = Reader(route.message, limits.max_text_chars)
        self.max_body_bytes = limits.max_import_bytes if route.path == wire.IMPORT_TABLE else limits.max_body_bytes


class HttpApp:
    """ASGI application of the `handlers`, by path. `token` None = whoever reaches the port may ask.

    `mark` is the shard that this is, if it is one: a request for another shard is answered `moved`. A server may stay
    awake for `busy_poll_us` after an answer (`BusyPoll`).
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        token: str | None,
        limits: Limits,
        mark: str | None = None,
        busy_poll_us: int = 0,
    ) -> None:
        routes = {route.path: route for route in ROUTES}
        self.endpoints = {path: Endpoint(routes[path], handler, limits) for path, handler in handlers.items()}
        # By path: what a server may answer without ASGI (`http.protocol`), and the heads of plain requests that it has
        # read: path, and length of the body.
        self.quick: dict[bytes, QuickHandler] = {}
        self.heads: dict[bytes, tuple[bytes, int]] = {}
        self.busy_poll = BusyPoll(busy_poll_us)
        self.limits = limits
        # New requests are refused, and their connections closed.
        self.draining = False
        # Requests answered, by (path, status).
        self.answered: Counter[tuple[str, int]] = Counter()
        self._authorization = None if token is None else b"Bearer " + token.encode()
        self._mark = None if mark is None else mark.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a fault that is not the caller's is logged and answered with 500."""
        if scope["type"] != "http":
            return
        # A header that is sent twice counts as sent last.
        headers: Headers = dict(scope["headers"])
        media = reply_media(headers.get(b"accept"), JSON)
        extra: list[tuple[bytes, bytes]] = []
        answering = self._answer(scope, headers, receive)
        status, media, body = await self._told(scope["path"], answering, media, extra)
        if self.draining or status == 408:
            # After 408: what is still to come of the body must not be taken for the next request.
            extra.append((b"connection", b"close"))
        start = [(b"content-type", media), (b"content-length", b"%d" % len(body)), *extra]
        await send({"type": "http.response.start", "status": status, "headers": start})
        await send({"type": "http.response.body", "body": body})

    # --- who and what ------------------------------------------------------------------------------------------------

    def authorized(self, headers: Headers) -> bool:
        """The request bears the token, or none is needed."""
        if self._authorization is None:
            return True
        given = headers.get(b"authorization", b"")
        scheme, _, token = given.partition(b" ")
        if scheme.lower() == b"bearer":
            given = b"Bearer " + token.strip()
        return hmac.compare_digest(given, self._authorization)

    def check_batch(self, items: Sequence[object]) -> None:
        """Refuse more items in one request than the limit.

        Raises:
            TooLargeError: names both numbers.
        """
        if len(items) > self.limits.max_batch:
            raise wire.TooLargeError(
                f"a batch of {len(items)}, at most {self.limits.max_batch} are allowed; send it in parts"
            )

    def _is_meant(self, headers: Headers) -> bool:
        return self._mark is None or headers.get(_SHARD_HEADER, self._mark) == self._mark

    def _check_mark(self, headers: Headers) -> None:
        if self._mark is not None and not self._is_meant(headers):
            raise wire.MovedError(
                f"this is shard {self._mark.decode()}, not {headers[_SHARD_HEADER].decode('latin-1')}; "
                "read the shard map again"
            )

    # --- the short way -----------------------------------------------------------------------------------------------

    def quick_at_once(self, path: str, answer: Callable[[Any], object]) -> None:
        """Let a server answer POST `path` by `answer`, a plain function, where nothing stands against it.

        A refusal is told here: asked again, the owner would count it twice. What else `answer` raises sends the request
        the ASGI way, which may wait for what is missing: it must not have changed anything by then.
        """
        place = (path, 200)

        def _at_once(body: bytes) -> bytes | Answer | None:
            message = self._plain_message(endpoint, body)
            if message is None:
                return None
            try:
                reply = encode(answer(message), JSON)
            except (ConfigError, ConflictError, NotFoundError) as error:
                status, failure = self._failure(error, path, [])
                self.answered[path, status] += 1
                return status, JSON, encode(failure, JSON)
            except Exception:  # noqa: BLE001 - a bug is the ASGI way's to tell
                return None
            self.answered[place] += 1
            return reply

        endpoint = self.endpoints[path]
        self.quick[path.encode()] = _at_once

    def quick_later(self, path: str) -> None:
        """Let a server answer POST `path` by its handler, without ASGI around it."""

        def _later(body: bytes) -> Coroutine[Any, Any, Answer] | None:
            message = self._plain_message(endpoint, body)
            return None if message is None else self._told(path, self._handled(endpoint, message, JSON), JSON, [])

        endpoint = self.endpoints[path]
        self.quick[path.encode()] = _later

    def is_plain(self, pairs: Sequence[tuple[bytes, bytes]]) -> bool:
        """These headers are of an admitted JSON request with no wishes: a quick handler may take it.

        The same headers get the same answer always.
        """
        headers = dict(pairs)
        return (
            headers.get(b"content-type", JSON) == JSON
            and headers.get(b"accept", _ANY) in _WANTS_JSON
            and self.authorized(headers)
            and self._is_meant(headers)
        )

    def _plain_message(self, endpoint: Endpoint, body: bytes) -> Any:
        """The message in the body of a plain request; None when the ASGI way must look at it."""
        if self.draining or len(body) > endpoint.max_body_bytes:
            return None
        try:
            return endpoint.reader.body(body, JSON)
        except MemconError:
            return None

    def _admit(self, method: str, path: str, headers: Headers) -> Endpoint:
        if self.draining:
            raise UnavailableError(_DRAINING.message)
        endpoint = self.endpoints.get(path)
        if not (endpoint and endpoint.route.public) and not self.authorized(headers):
            raise wire.UnauthorizedError(
                f"{method} {path}: no valid token; send the header 'authorization: Bearer ...' with the server's token"
            )
        if endpoint is None:
            raise NotFoundError(f"no {path}; there is {', '.join(self.endpoints)}")
        if method != endpoint.route.method:
            raise wire.MethodError(f"no {method} {path}; use {endpoint.route.method}", allow=endpoint.route.method)
        self._check_mark(headers)
        return endpoint

    # --- one request -------------------------------------------------------------------------------------------------

    async def _told(
        self, path: str, answering: Awaitable[tuple[bytes, bytes]], media: bytes, extra: list[tuple[bytes, bytes]]
    ) -> Answer:
        """The answer, good or not; what a refusal needs of headers is added to `extra`."""
        status = 200
        try:
            media, body = await answering
        except Exception as error:  # noqa: BLE001 - a bug must not take the connection's other requests along
            status, failure = self._failure(error, path, extra)
            body = encode(failure, media)
        except asyncio.CancelledError:
            if not self.draining:
                raise
            status, body = 503, encode(_DRAINING, media)
        self.answered[path if path in self.endpoints else "other", status] += 1
        return status, media, body

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive) -> tuple[bytes, bytes]:
        """Media type and body of the reply."""
        endpoint = self._admit(scope["method"], scope["path"], headers)
        if endpoint.route.method == "GET":
            media = JSON
            message = endpoint.reader.query(scope["query_string"])
        else:
            media = media_of(headers.get(b"content-type"))
            message = endpoint.reader.body(await self._body(receive, headers, endpoint.max_body_bytes), media)
        return await self._handled(endpoint, message, reply_media(headers.get(b"accept"), media))

    async def _handled(self, endpoint: Endpoint, message: object, media: bytes) -> tuple[bytes, bytes]:
        limit_s = self.limits.request_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                reply = await endpoint.handler(message)
        except TimeoutError as error:
            raise UnavailableError(
                f"{endpoint.route.path} took over {limit_s:g} s; what it did stays done, send it again"
            ) from error
        return (_TEXT, reply.encode()) if isinstance(reply, str) else (media, encode(reply, media))

    async def _body(self, receive: Receive, headers: Headers, limit: int) -> bytes:
        announced = headers.get(b"content-length", b"0")
        if len(announced) > _MAX_DIGITS or (announced.isdigit() and int(announced) > limit):
            raise _too_large(limit)
        limit_s = self.limits.request_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await _whole(receive, limit)
        except TimeoutError as error:
            raise wire.SlowRequestError(f"the body did not arrive whole within {limit_s:g} s; send it again") from error

    def _failure(self, error: Exception, path: str, extra: list[tuple[bytes, bytes]]) -> tuple[int, Failure]:
        """Status and body of a refusal; its headers are added to `extra`."""
        if not isinstance(error, MemconError):
            log.exception("policy.request_failed", extra={"path": path})
            return 500, Failure(error="fault", message=f"{type(error).__name__}; see the server's log")
        status, code = wire.status_of(error)
        if status == 500:
            log.error("policy.request_failed", extra={"path": path, "error": wire.message_of(error)})
        if status == 401:
            extra.append((b"www-authenticate", b'Bearer realm="memcon"'))
        elif isinstance(error, wire.MethodError):
            extra.append((b"allow", error.allow.encode()))
        return status, Failure(error=code, message=wire.message_of(error))


_SHARD_HEADER = wire.SHARD_HEADER.encode()
_DRAINING = Failure(error="unavailable", message="this server is stopping; send the request again")


async def _whole(receive: Receive, limit: int) -> bytes:
    parts, size = [], 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise wire.RejectedError("the client went away before its request was whole")
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> wire.TooLargeError:
    return wire.TooLargeError(f"the body is over {limit} bytes; send it in parts")
