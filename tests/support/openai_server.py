"""A scripted OpenAI-compatible server on the loopback: real HTTP, its own token rule, a log, faults on demand.

`with ScriptedOpenAI() as server:` serves in a thread of this process; `python -m support.openai_server --log FILE` (in
`tests/`) serves in a process of its own. By default it answers as the backbone `imitator` would, so that a sweep over
it is a sweep over something that acts. It knows `POST /v1/chat/completions` and `GET /v1/models`; a request for a
stream or for tools is refused, not ignored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from memcon import codec
from memcon.errors import MemconError
from memcon.protocols import Message
from memcon_workers.backbones.imitator import Imitator, ImitatorConfig
from memcon_workers.backbones.prompt_reader import read_prompt

__all__ = ["KEY", "Asked", "Fault", "LoggedCall", "ScriptedOpenAI", "count_tokens", "imitate", "prompt_tokens"]

KEY = "Zq7-0f3e9a1c5b7d2e4f6a8c-Wx9"
MODELS = ("gpt-4.1-mini", "claude-sonnet-4-20250514", "deepseek-v3.2")
# Frame of one message in a prompt.
MESSAGE_TOKENS = 3
_WORD = re.compile(r"\w+|[^\w\s]")
_STOP_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request for a reply, as it came."""

    # 1-based, retries of a client included.
    number: int
    messages: tuple[Message, ...]
    model: str
    seed: int | None
    temperature: float | None
    max_tokens: int | None
    # Every other field of the body.
    extra: Mapping[str, Any]

    @property
    def text(self) -> str:
        """All that the model was shown, in order."""
        return "\n".join(message.content for message in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCall(Asked):
    """One request and how it was answered. `status` 0: the connection was dropped, or the client went away."""

    # As the reply counts them; 0 where there is none.
    prompt_tokens: int
    completion_tokens: int
    status: int
    reply: str
    # The model that the reply names.
    reported: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with one request; the default is nothing."""

    # An error of this status instead of a reply, with a body in OpenAI's form.
    status: int = 200
    message: str = "scripted fault"
    code: str | None = None
    param: str | None = None
    # Sent as it is instead of any body of ours.
    body: bytes | None = None
    content_type: str = "application/json"
    # No answer until `ScriptedOpenAI.release`, or until the client goes away.
    hang: bool = False
    # The connection is cut in the middle of the reply.
    drop: bool = False
    # The reply names this model.
    model: str | None = None
    usage: bool = True
    choices: bool = True
    text: str | None = None
    finish_reason: str = "stop"


Rule = Callable[[Asked], str]
# By request number, or by what was asked.
Faults = Mapping[int, Fault] | Callable[[Asked], Fault | None]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def imitate(asked: Asked) -> str:
    """What the backbone `imitator` answers to the same messages and seed."""
    return Imitator(ImitatorConfig()).choose(read_prompt(asked.messages), seed=asked.seed or 0)


def count_tokens(text: str) -> int:
    """Words and signs: not characters / 4, so that an estimate is never taken for a count."""
    return len(_WORD.findall(text))


def prompt_tokens(messages: Sequence[Message]) -> int:
    """Tokens of a prompt by this server's rule."""
    return sum(MESSAGE_TOKENS + count_tokens(message.content) for message in messages)


class ScriptedOpenAI:
    """The server. `faults`, `list_fault`, `key` and `rule` may be changed while it runs."""

    def __init__(
        self,
        *,
        rule: Rule = imitate,
        faults: Faults | None = None,
        list_fault: Fault | None = None,
        key: str = KEY,
        reports: str | None = None,
        log_path: Path | None = None,
        port: int = 0,
    ) -> None:
        self._first = {"rule": rule, "faults": faults or {}, "list_fault": list_fault, "key": key, "reports": reports}
        self.rule, self.faults, self.list_fault, self.key = rule, faults or {}, list_fault, key
        # The model that replies name; None: the one that was asked for.
        self.reports = reports
        self.log: list[LoggedCall] = []
        # Requests of any kind that came, those with a wrong key too; chats that are open now, and were at most.
        self.requests = self.open_now = self.most_open = self._chats = 0
        self._log_path = log_path
        # The protocol is named since asyncio switches Nagle's delay (40 ms a reply) off on such sockets only.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen(128)
        self.base_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self._released = asyncio.Event()
        config = uvicorn.Config(
            self._serve,
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="scripted-openai", daemon=True)

    def __enter__(self) -> ScriptedOpenAI:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._socket.close()
        assert not self._thread.is_alive(), "the scripted server did not stop"

    def release(self) -> None:
        """Let every request that hangs, and those to come, be answered."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._released.set)

    def forget(self) -> None:
        """Be as at the start: no calls, the first faults, nothing released. Between tests that share a server."""
        for name, value in self._first.items():
            setattr(self, name, value)
        self.log.clear()
        self.requests = self.most_open = self._chats = 0
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._released.clear)

    @property
    def replies(self) -> list[LoggedCall]:
        """The calls that were answered with a reply, in order."""
        return [call for call in self.log if call.status == 200]

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._server.serve(sockets=[self._socket]))

    # --- the application ---------------------------------------------------------------------------------------------

    async def _serve(self, scope: Any, receive: Receive, send: Send) -> None:
        self.requests += 1
        exchange = _Exchange(receive, send)
        body = await exchange.body()
        headers = dict(scope["headers"])
        if headers.get(b"authorization", b"").decode() != f"Bearer {self.key}":
            # The worst that a provider could do: it says what it got.
            given = headers.get(b"authorization", b"").decode()
            await exchange.refuse(401, f"Incorrect API key provided: {given}", code="invalid_api_key")
            return
        match scope["method"], scope["path"]:
            case "GET", "/v1/models":
                await self._models(exchange)
            case "POST", "/v1/chat/completions":
                await self._chat(exchange, json.loads(body))
            case _:
                await exchange.refuse(404, f"no {scope['method']} {scope['path']} here")

    async def _models(self, exchange: _Exchange) -> None:
        if self.list_fault is not None:
            await self._fail(exchange, self.list_fault)
            return
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "tests"} for name in MODELS]
        await exchange.reply(200, {"object": "list", "data": listed})

    async def _chat(self, exchange: _Exchange, body: dict[str, Any]) -> None:
        self._chats += 1
        asked = _asked(self._chats, body)
        if asked.extra.get("stream") or asked.extra.get("tools"):
            await exchange.refuse(400, "the scripted server has no streams and no tools")
            return
        fault = (self.faults(asked) if callable(self.faults) else self.faults.get(asked.number)) or Fault()
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            await self._answer(exchange, asked, fault)
        finally:
            self.open_now -= 1

    async def _answer(self, exchange: _Exchange, asked: Asked, fault: Fault) -> None:
        if fault.hang and await exchange.left_before(self._released):
            self._note(asked, status=0)
            return
        if fault.drop:
            self._note(asked, status=0)
            await exchange.drop()
            return
        if fault.status != 200 or fault.body is not None:
            self._note(asked, status=fault.status)
            await self._fail(exchange, fault)
            return
        try:
            text = fault.text if fault.text is not None else self.rule(asked)
        except MemconError as error:
            self._note(asked, status=400)
            await exchange.refuse(400, f"the scripted rule cannot answer: {error}")
            return
        reported = fault.model or self.reports or asked.model
        usage = (prompt_tokens(asked.messages), count_tokens(text))
        self._note(asked, status=200, usage=usage, reply=text, reported=reported)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": fault.finish_reason,
        }
        reply = {
            "id": f"chatcmpl-{asked.number}",
            "object": "chat.completion",
            "created": 0,
            "model": reported,
            "choices": [choice] if fault.choices else [],
        }
        if fault.usage:
            counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
            reply["usage"] = counts
        await exchange.reply(200, reply)

    async def _fail(self, exchange: _Exchange, fault: Fault) -> None:
        if fault.body is not None:
            await exchange.send(fault.status, fault.body, fault.content_type)
            return
        await exchange.refuse(fault.status, fault.message, code=fault.code, param=fault.param)

    def _note(
        self, asked: Asked, *, status: int, usage: tuple[int, int] = (0, 0), reply: str = "", reported: str = ""
    ) -> None:
        call = LoggedCall(
            **{name: getattr(asked, name) for name in Asked.__slots__},
            prompt_tokens=usage[0],
            completion_tokens=usage[1],
            status=status,
            reply=reply,
            reported=reported,
        )
        self.log.append(call)
        if self._log_path is not None:
            with self._log_path.open("a", encoding="utf-8") as log:
                log.write(codec.encode_json(call) + "\n")


class _Exchange:
    """One request and its answer in ASGI's words."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send

    async def body(self) -> bytes:
        parts, more = [], True
        while more:
            message = await self._receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        return b"".join(parts)

    async def left_before(self, released: asyncio.Event) -> bool:
        """Wait until the client goes away or `released` is set; True if the client went first."""
        leaving = asyncio.ensure_future(self._receive())
        release = asyncio.ensure_future(released.wait())
        await asyncio.wait({leaving, release}, return_when=asyncio.FIRST_COMPLETED)
        left = leaving.done()
        for waiting in (leaving, release):
            waiting.cancel()
        return left

    async def reply(self, status: int, document: Mapping[str, Any]) -> None:
        await self.send(status, json.dumps(document).encode(), "application/json")

    async def refuse(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        error = {"message": message, "type": "scripted_error", "param": param, "code": code}
        await self.reply(status, {"error": error})

    async def send(self, status: int, body: bytes, content_type: str) -> None:
        await self._start(status, len(body), content_type)
        await self._send({"type": "http.response.body", "body": body})

    async def drop(self) -> None:
        # uvicorn cuts the connection of an application that leaves before its reply is whole.
        await self._start(200, 1000, "application/json")
        await self._send({"type": "http.response.body", "body": b'{"id":', "more_body": True})

    async def _start(self, status: int, length: int, content_type: str) -> None:
        headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % length)]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


def _asked(number: int, body: dict[str, Any]) -> Asked:
    known = ("messages", "model", "seed", "temperature", "max_tokens", "max_completion_tokens")
    most = body.get("max_tokens", body.get("max_completion_tokens"))
    return Asked(
        number=number,
        messages=tuple(Message(role=item["role"], content=item["content"]) for item in body["messages"]),
        model=body["model"],
        seed=body.get("seed"),
        temperature=body.get("temperature"),
        max_tokens=most,
        extra={name: value for name, value in body.items() if name not in known or name == "max_completion_tokens"},
    )


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m support.openai_server", description="A scripted endpoint.")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--key", default=KEY, help="the key that it takes")
    parser.add_argument("--reports", default=None, help="model that its replies name; the one asked for by default")
    parser.add_argument("--log", type=Path, default=None, help="file of JSON lines, a line for each call")
    given = parser.parse_args()
    server = ScriptedOpenAI(key=given.key, reports=given.reports, log_path=given.log, port=given.port)
    with server:
        sys.stdout.write(f"serving {server.base_url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    _main()
