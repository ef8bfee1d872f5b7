"""uvicorn's HTTP protocol with a short way for the frequent requests, and with bounds on a request's head.

The short way needs no scope, no events and no ASGI messages, and no task for what is answered at once: a decide takes
31 us of the server's processor so, 82 us through ASGI (64 connections, 2-core machine). It takes only what is plain:
one whole POST on a kept HTTP/1.1 connection that nothing else waits on. All else goes the ASGI way; both give the same
answer.

A client sends the same head again and again. One that came whole with its body in one piece, and was plain, is known
from then on: a piece that begins with the same bytes and has the same length is the same request with another body,
and is not parsed again (4 us of a decide). Many HTTP libraries send a body behind its head: a head that ends its piece
waits a moment for the body, so that their requests go the short way too.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from memcon_policy_server.http.app import Answer, HttpApp, QuickHandler
from memcon_policy_server.http.bodies import JSON
from memcon_policy_server.http.routes import Failure

__all__ = ["QuickProtocol"]

# Of request line and headers beyond the first piece that is read of them; the parser has no bound of its own.
MAX_HEAD_BYTES = 64 << 10
# Heads that are known: clients differ little, and each length of a body is another head.
_MOST_HEADS = 1024
_MOST_KNOWN_BYTES = 1024
_END_OF_HEAD = b"\r\n\r\n"
# Seconds that a head waits for its body before it goes on alone; one that is on its way comes within a millisecond.
_BODY_WAIT_S = 0.02
_CLOSE = b"connection: close\r\n"

_CROWDED = Failure(error="unavailable", message="this server has all connections that it allows; try again")
_NO_HTTP = Failure(error="rejected", message="this is no request of HTTP/1.1; send it again in that form")


class _Pending:
    """Stands where uvicorn keeps the request that is being answered: those behind it wait, and a drain waits for it."""

    __slots__ = ("disconnected", "keep_alive", "response_complete")
    # Nobody waits for it.
    message_event = asyncio.Event()

    def __init__(self) -> None:
        self.disconnected = self.response_complete = False
        self.keep_alive = True


class QuickProtocol(HttpToolsProtocol):
    """One connection. Its application is an `HttpApp`."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        app = self.config.app
        if not isinstance(app, HttpApp):
            raise TypeError(f"this protocol carries an HttpApp only, got {type(app).__name__}")
        self._app = app
        self._head_limit_s = app.limits.request_timeout_s
        self._max_connections = min(app.limits.max_connections, _max_sockets())
        # What answers the request that is being read, and its body so far; None = it goes the ASGI way.
        self._quick: QuickHandler | None = None
        self._parts: list[bytes] = []
        # The headers of every answer, as uvicorn has them and as they are sent.
        self._default: list[tuple[bytes, bytes]] | None = None
        self._head = b""
        # No request has begun that is not whole, and path and length of the last one of a piece that was plain.
        self._is_between = True
        self._plain = (b"", 0)
        # A head that waits for its body, and until when.
        self._held = b""
        self._held_timer: asyncio.TimerHandle | None = None
        # A request has begun whose head is not whole, how much of it came (None = it began in the piece that is being
        # read), and when to give it up.
        self._in_head = False
        self._head_bytes: int | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        # When to close, since what comes is no request; None = nothing such came since the last one.
        self._close_at: float | None = None

    # --- the connection ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; a connection on which nothing comes is closed when a request would be, one too many at once."""
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            self._refuse(b"503 Service Unavailable", _CROWDED)
            return
        self.timeout_keep_alive_task = self.loop.call_later(self._head_limit_s, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_head_timer()
        self._take_held()
        self._app.busy_poll.gone(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Drain: what has begun is answered."""
        self._go_on()
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Read on; a request that is not whole by now goes the ASGI way, which waits for it."""
        if self._held:
            self._read(self._take_held() + data)
        elif self._is_lone_head(data):
            self._unset_keepalive_if_required()
            self._held, self._held_timer = data, self.loop.call_later(_BODY_WAIT_S, self._go_on)
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        is_first = self._is_between and self._is_free()
        if is_first and self._answer_known(data):
            return
        self._plain = (b"", 0)
        super().data_received(data)
        if is_first:
            self._get_to_know(data)
        if self._quick is not None:
            self._take_asgi_way()
        elif self._in_head:
            self._watch_head(len(data))
        elif self.timeout_keep_alive_task is None and self._is_free():
            self._close_in_time()

    def _is_lone_head(self, data: bytes) -> bool:
        return (
            data.endswith(_END_OF_HEAD)
            and data.startswith(b"POST ")
            and len(data) <= _MOST_KNOWN_BYTES
            and data.find(_END_OF_HEAD) == len(data) - len(_END_OF_HEAD)
            and self._is_between
            and self._is_free()
        )

    def _take_held(self) -> bytes:
        held, self._held = self._held, b""
        if self._held_timer is not None:
            self._held_timer.cancel()
            self._held_timer = None
        return held

    def _go_on(self) -> None:
        """Read a head whose body does not come."""
        if self._held:
            self._read(self._take_held())

    # --- the parser's callbacks --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request; the ASGI scope is made when it is needed."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head, self._head_bytes = True, None
        self._is_between, self._close_at = False, None

    def on_headers_complete(self) -> None:
        """Choose the way."""
        self._in_head = False
        if self._head_timer is not None:
            self._stop_head_timer()
        handler = self._app.quick.get(self.url)
        if handler is not None and self._is_plain():
            self._quick = handler
            self._parts = []
        else:
            self._begin_asgi()

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        if self._quick is not None:
            self._parts.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Answer at once, if that can be."""
        self._is_between, self._close_at = True, None
        if self._quick is None:
            super().on_message_complete()
            return
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        answer = self._quick(body) if self._app.is_plain(self.headers) else None
        if answer is None:
            self._take_asgi_way()
            super().on_message_complete()
            return
        self._quick, self._plain = None, (self.url, len(body))
        self._answer(answer)

    # --- the short way -----------------------------------------------------------------------------------------------

    def _answer_known(self, data: bytes) -> bool:
        """Answer `data` if it is a whole request whose head is known."""
        begin = data.find(_END_OF_HEAD) + len(_END_OF_HEAD)
        path, length = self._app.heads.get(data[:begin], (b"", 0))
        handler = self._app.quick.get(path)
        if handler is None or len(data) != begin + length:
            return False
        answer = handler(data[begin:])
        if answer is None:
            return False
        self._unset_keepalive_if_required()
        self._close_at = None
        self._answer(answer)
        return True

    def _get_to_know(self, data: bytes) -> None:
        """Remember the head in `data`, which began between two requests, if it is nothing but one plain request."""
        path, length = self._plain
        begin = data.find(_END_OF_HEAD) + len(_END_OF_HEAD)
        if path and begin <= _MOST_KNOWN_BYTES and len(data) == begin + length:
            if len(self._app.heads) >= _MOST_HEADS:
                self._app.heads.clear()
            self._app.heads[data[:begin]] = self._plain

    def _answer(self, answer: bytes | Answer | Coroutine[Any, Any, Answer]) -> None:
        if isinstance(answer, bytes):
            self._write((200, JSON, answer), keep_alive=True)
        elif isinstance(answer, tuple):
            self._write(answer, keep_alive=True)
        else:
            self._answer_later(answer)

    def _answer_later(self, answering: Coroutine[Any, Any, Answer]) -> None:
        pending = _Pending()
        self.cycle = cast(RequestResponseCycle, pending)
        task = self.loop.create_task(answering)
        # uvicorn only counts and cancels them.
        self.tasks.add(cast("asyncio.Task[None]", task))
        task.add_done_callback(partial(self._answered, pending))

    def _answered(self, pending: _Pending, task: asyncio.Task[Answer]) -> None:
        self.tasks.discard(cast("asyncio.Task[None]", task))
        pending.response_complete = True
        if task.cancelled():
            self.transport.close()
        elif not pending.disconnected:
            self._write(task.result(), keep_alive=pending.keep_alive)

    def _write(self, answer: Answer, *, keep_alive: bool) -> None:
        status, media, body = answer
        if self._default is not self.server_state.default_headers:
            # uvicorn makes them anew every second: there is a date in them.
            self._default = self.server_state.default_headers
            self._head = b"".join([b"%b: %b\r\n" % header for header in self._default])
        self.transport.write(
            b"%b%b%bcontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
            % (STATUS_LINE[status], self._head, b"" if keep_alive else _CLOSE, media, len(body), body)
        )
        if not keep_alive:
            self.transport.close()
        self._app.busy_poll.answered(self)
        # Begins the request behind this one, or arms the keep-alive timer. What was answered here had come whole.
        super().on_response_complete()

    # --- the ASGI way ------------------------------------------------------------------------------------------------

    def _is_plain(self) -> bool:
        return (
            self._is_free()
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
            and not self.expect_100_continue
        )

    def _is_free(self) -> bool:
        """Nothing stands before an answer."""
        return (
            (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and not self.transport.is_closing()
        )

    def _take_asgi_way(self) -> None:
        """Hand over what came so far."""
        self._quick = None
        self._begin_asgi()
        for part in self._parts:
            super().on_body(part)
        self._parts = []

    def _begin_asgi(self) -> None:
        url, headers, expected = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expected
        self.headers.extend(headers)
        super().on_headers_complete()

    # --- what is no request ------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Wait for the next request, and no longer for the rest of one that was answered before it came whole."""
        super().on_response_complete()
        if not (self._is_between or self._in_head) and self._is_free():
            self._unset_keepalive_if_required()
            self._close_in_time()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser cannot read, and close; requests before it get their answers first."""
        in_body, to_asgi = not (self._is_between or self._in_head), self._quick is None
        self._quick, self._in_head = None, False
        self._stop_head_timer()
        waits = self.cycle is not None and not self.cycle.response_complete
        if waits and not in_body:
            # Its answer would be taken for that of the last one before it.
            self.cycle.keep_alive = False
        elif in_body and to_asgi and self.pipeline:
            self.pipeline[0] = (self.cycle, _refuse_in_turn)
        elif in_body and to_asgi and not waits:
            # It has its answer.
            self.transport.close()
        else:
            self._refuse(b"400 Bad Request", _NO_HTTP)

    def _close_in_time(self) -> None:
        """Close, though more may come: uvicorn lets each piece put off the end of a connection."""
        if self._close_at is None:
            is_kept = self._is_between and self.cycle is not None
            self._close_at = self.loop.time() + (self.timeout_keep_alive if is_kept else self._head_limit_s)
        self.timeout_keep_alive_task = self.loop.call_at(self._close_at, self.timeout_keep_alive_handler)

    # --- the head ----------------------------------------------------------------------------------------------------

    def _watch_head(self, num_bytes: int) -> None:
        # The piece in which it began may hold whole requests before it.
        self._head_bytes = 0 if self._head_bytes is None else self._head_bytes + num_bytes
        if self._head_bytes > MAX_HEAD_BYTES:
            self._give_up(b"431 Request Header Fields Too Large", f"the head is over {MAX_HEAD_BYTES} bytes; send less")
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_limit_s, self._head_is_late)

    def _head_is_late(self) -> None:
        self._give_up(
            b"408 Request Timeout", f"the head did not arrive whole within {self._head_limit_s:g} s; send it again"
        )

    def _give_up(self, status: bytes, message: str) -> None:
        """Answer a request that has no head, unless an earlier one is still to be answered, and close."""
        self._stop_head_timer()
        if self.cycle is None or self.cycle.response_complete:
            code = "slow_request" if status.startswith(b"408") else "too_large"
            self._refuse(status, Failure(error=code, message=message))
        self.transport.close()

    def _refuse(self, status: bytes, failure: Failure) -> None:
        """Answer without a request, and close."""
        body = msgspec.json.encode(failure)
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (status, len(body), body)
        )
        self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


async def _refuse_in_turn(_: object, __: object, send: Callable[[Any], Awaitable[None]]) -> None:
    """An application that answers a request whose body is no HTTP."""
    body = msgspec.json.encode(_NO_HTTP)
    headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _max_sockets() -> int:
    """Of the files that the process may open, the share that leaves journal and snapshots theirs."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if files == resource.RLIM_INFINITY else files * 3 // 4
