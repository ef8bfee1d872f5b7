"""An S3 client in memory, for tests of what lies above it: as far as `ObjectStore` asks, mortal between requests."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from memcon_platform.objects import ObjectStore

__all__ = ["BLOCK", "PREFIX", "DeadError", "MemoryClient", "memory_store", "run_folder", "write"]

# Where `memory_store` keeps a run, and a file of the run that `run_folder` makes.
PREFIX = "runs/one/"
BLOCK = "episodes/cell=a/0.parquet"


class DeadError(BaseException):
    """The process that was asking ended here; no code of ours may take it for an answer."""


class _Refusal(Exception):  # noqa: N818 - stands for the SDK's ClientError
    def __init__(self, status: int, code: str) -> None:
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        super().__init__(code)


class MemoryClient:
    """One bucket's objects by full key. `lose(n)` answers the next n requests and no other; `deaf` does what it is
    asked, and its answers are lost.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.meta = SimpleNamespace(endpoint_url=None)
        self.deaf = ""
        self._left: int | None = None
        self._guard = threading.Lock()

    def lose(self, num_requests: int | None) -> None:
        self._left = num_requests

    def get_object(self, **asked: str) -> dict[str, Any]:
        key = self._begin("get", asked["Key"])
        if key not in self.objects:
            raise _Refusal(404, "NoSuchKey")
        content = self.objects[key]
        return {"Body": io.BytesIO(content), "ETag": _etag(content)}

    def put_object(self, **asked: Any) -> dict[str, Any]:
        key, body = self._begin("put", asked["Key"]), bytes(asked["Body"])
        there, expected = self.objects.get(key), asked.get("IfMatch")
        if "IfNoneMatch" in asked and there is not None:
            raise _Refusal(412, "PreconditionFailed")
        if expected is not None and (there is None or _etag(there) != expected):
            raise _Refusal(412, "PreconditionFailed")
        self.objects[key] = body
        if self.deaf and key.endswith(self.deaf):
            raise DeadError
        return {"ETag": _etag(body)}

    def delete_object(self, **asked: str) -> None:
        self.objects.pop(self._begin("delete", asked["Key"]), None)

    def get_paginator(self, _name: str) -> Any:
        return SimpleNamespace(paginate=self._pages)

    def close(self) -> None:
        return

    def _pages(self, **asked: str) -> Iterator[dict[str, Any]]:
        prefix = self._begin("list", asked["Prefix"])
        found = {key: content for key, content in self.objects.items() if key.startswith(prefix)}
        yield {"Contents": [{"Key": key, "Size": len(body), "ETag": _etag(body)} for key, body in found.items()]}

    def _begin(self, verb: str, key: str) -> str:
        with self._guard:
            if self._left is not None:
                if self._left <= 0:
                    raise DeadError
                self._left -= 1
            self.asked.append(f"{verb} {key}")
        return key


def memory_store(client: MemoryClient, prefix: str = PREFIX.rstrip("/")) -> ObjectStore:
    return ObjectStore(client, "bucket", prefix)


def run_folder(folder: Path) -> Path:
    """A run's folder with a plan and one block, written long ago."""
    write(folder, "plan.json", b"plan")
    write(folder, BLOCK, b"block")
    return folder


def write(folder: Path, key: str, content: bytes, *, at_s: int = 1000) -> None:
    """A file of a run, with its mtime."""
    path = folder / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (at_s, at_s))


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:8]}"'
