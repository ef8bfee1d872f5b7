"""An object store on the loopback that tests can take away: moto's S3 in a process of its own, behind a line to cut.

`line` is where tests connect. `cut` drops it (and every connection over it) and keeps the store's data; `restore` puts
it back on the same port. `cut_after` drops it in the middle of what is being sent, `hold_after` lets it fall silent
there. `refuse` makes the store itself answer with an error; `kill` ends the process, and its data with it.

    python -m support.object_server      serves until its standard input ends
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from memcon_policy_server.serving.free_ports import free_ports

__all__ = ["ACCESS_KEY", "BUCKET", "PAGE", "SECRET_KEY", "Line", "ObjectServer", "object_server"]

BUCKET = "memcon-runs"
# Keys of one answer to a list: 1,000 in the field.
PAGE = 20
# Refusals of the store carry them, as those of real stores carry key ids.
ACCESS_KEY, SECRET_KEY = "AKIATESTSONLY0000001", "not-a-secret-but-must-not-be-printed"

_TESTS = Path(__file__).resolve().parents[1]
_GATE = "/_gate"
_WRITES = frozenset({"PUT", "POST", "DELETE"})
_PIECE = 65_536


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    """A running server with an empty bucket; skips the test where moto is not installed."""
    reason = "no {}; EXTRAS=all make test"
    for library in ("boto3", "moto", "flask", "flask_cors"):
        pytest.importorskip(library, reason=reason.format(library))
    server = ObjectServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()


class ObjectServer:
    """A moto server in another process, and the line to it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self.line = Line(lambda: self._port)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to use the store; nothing of the machine's own set-up is left in force."""
        return {
            "AWS_ENDPOINT_URL_S3": self.line.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
        }

    def set_up(self, patch: pytest.MonkeyPatch) -> None:
        """Let this process use the store, for one test."""
        for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_CA_BUNDLE"):
            patch.delenv(name, raising=False)
        for name, value in self.environment.items():
            patch.setenv(name, value)

    def start(self) -> None:
        """Start the process, with an empty bucket, and restore the line."""
        command = [sys.executable, "-m", "support.object_server"]
        ours = {"PYTHONPATH": str(_TESTS), "MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE)}
        environment = {**os.environ, **ours}  # noqa: TID251 - a process needs the rest of it
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())
        self._ask(f"/{BUCKET}", b"")
        self.line.restore()

    def kill(self) -> None:
        """End the process at once; its data is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def stop(self) -> None:
        """End line and process."""
        self.line.cut()
        self.kill()

    def refuse(self, status: int, code: str, *, writes_only: bool = False, key_part: str = "", times: int = -1) -> None:
        """Answer requests with an error: all or only writes, where `key_part` is in the path, so many `times`."""
        rule = {"status": status, "code": code, "writes_only": writes_only, "key_part": key_part, "times": times}
        self._ask(_GATE, json.dumps(rule).encode())

    def ignore_conditions(self) -> None:
        """Take every put, whatever its condition says, as some stores do."""
        self._ask(_GATE, json.dumps({"ignore_conditions": True}).encode())

    def admit(self) -> None:
        """Answer as the store does."""
        self._ask(_GATE, b"{}")

    def requests(self) -> list[str]:
        """`METHOD path` of every request since the last look, in order."""
        return [str(line) for line in json.loads(self._ask(_GATE, None))]

    def _ask(self, path: str, body: bytes | None) -> bytes:
        method = "GET" if body is None else "PUT"
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", data=body, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=10) as answer:
            return bytes(answer.read())


class Line:
    """A TCP line from a fixed port of the loopback to the port that `to` gives; it can be cut and restored."""

    def __init__(self, to: Callable[[], int]) -> None:
        self._to = to
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._left: int | None = None
        self._holds = False
        self._released = threading.Event()
        # Set when the line has fallen silent.
        self.held = threading.Event()
        # While the line is cut nobody else is given it.
        (self.port,) = free_ports(1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def restore(self) -> None:
        """Take connections (again)."""
        self.cut()
        listener = socket.create_server(("127.0.0.1", self.port))
        self._listener = listener
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Refuse connections and break those that are open."""
        self._released.set()
        with self._guard:
            self._left = None
            listener, self._listener = self._listener, None
            if listener is not None:
                # Wakes the thread that waits for a connection; closing alone does not.
                with suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)
                listener.close()
            for end in self._open:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def cut_after(self, num_bytes: int) -> None:
        """Cut the line as soon as so many bytes have gone to the store."""
        with self._guard:
            self._left, self._holds = num_bytes, False

    def hold_after(self, num_bytes: int) -> None:
        """Pass nothing on as soon as so many bytes have gone to the store, until the line is cut or restored."""
        self.held.clear()
        self._released.clear()
        with self._guard:
            self._left, self._holds = num_bytes, True

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection(("127.0.0.1", self._to()), timeout=10) as far:
            far.settimeout(None)
            with self._guard:
                if self._listener is None:
                    return
                self._open |= {near, far}
            try:
                self._pass_on(near, far)
            finally:
                with self._guard:
                    self._open -= {near, far}

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        while True:
            for end in select.select([near, far], [], [])[0]:
                piece = end.recv(_PIECE)
                if not piece:
                    return
                if end is near and self._is_last(len(piece)):
                    self._end()
                    return
                other[end].sendall(piece)

    def _end(self) -> None:
        if not self._holds:
            self.cut()
            return
        self.held.set()
        self._released.wait()

    def _is_last(self, num_bytes: int) -> bool:
        with self._guard:
            if self._left is None:
                return False
            self._left -= num_bytes
            return self._left < 0


class _Gate:
    """A WSGI application before the store's: it logs requests and refuses what it is told to refuse."""

    def __init__(self, store: Callable[..., Iterable[bytes]]) -> None:
        self._store = store
        self._rule: dict[str, Any] = {}
        self._seen: list[str] = []
        self._guard = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path, method = str(environ["PATH_INFO"]), str(environ["REQUEST_METHOD"])
        if path == _GATE:
            return self._command(environ, method, start)
        with self._guard:
            self._seen.append(f"{method} {path}")
            refused = self._refuses(method, path)
        if refused:
            return self._refusal(environ, start)
        if self._rule.get("ignore_conditions"):
            for header in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"):
                environ.pop(header, None)
        return self._store(environ, start)

    def _command(self, environ: dict[str, Any], method: str, start: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._guard:
            seen, self._seen = self._seen, []
            if method == "PUT":
                self._rule, seen = json.loads(body), []
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(seen).encode()]

    def _refuses(self, method: str, path: str) -> bool:
        rule = self._rule
        if not rule.get("status") or not rule["times"] or rule["key_part"] not in path:
            return False
        if rule["writes_only"] and method not in _WRITES:
            return False
        rule["times"] -= 1
        return True

    def _refusal(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start(f"{self._rule['status']} Refused", [("Content-Type", "application/xml")])
        code = self._rule["code"]
        if not code:
            return [b""]
        said = f"<Message>User {ACCESS_KEY} may not</Message><AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId>"
        return [f"<?xml version='1.0'?><Error><Code>{code}</Code>{said}</Error>".encode()]


def _main() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    # Connections are kept, as a real store keeps them; and nothing is logged.
    said = {"protocol_version": "HTTP/1.1", "log_request": lambda *_: None}
    quiet = type("Quiet", (WSGIRequestHandler,), said)
    gate = _Gate(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, gate, threaded=True, request_handler=quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    # Ends with whoever started it, however that one ends.
    sys.stdin.read()


if __name__ == "__main__":
    _main()
