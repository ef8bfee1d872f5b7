"""One POST through an ASGI application, without a socket: what the application raises is raised here."""

from __future__ import annotations

from typing import Any

import msgspec

from memcon_policy_server.http.app import HttpApp

__all__ = ["post"]


async def post(app: HttpApp, path: str, body: bytes, kind: str, *, token: str | None = None) -> tuple[int, Any]:
    """Status and JSON of the answer."""
    sent: list[dict[str, Any]] = []
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def _receive() -> dict[str, Any]:
        return next(messages, {"type": "http.disconnect"})

    async def _send(message: Any) -> None:
        sent.append(message)

    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"accept", b"application/json"),
    ]
    if token is not None:
        headers.append((b"authorization", b"Bearer " + token.encode()))
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    await app(scope, _receive, _send)
    status: int = sent[0]["status"]
    return status, msgspec.json.decode(sent[1]["body"])
