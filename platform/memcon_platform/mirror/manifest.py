"""The table of contents of a run in an object store: one object, read and written whole."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memcon.errors import DamagedFileError, NotFoundError, SchemaVersionError
from memcon_platform.objects import ObjectStore

__all__ = ["MANIFEST_KEY", "FileEntry", "Manifest", "digest_of", "is_key", "read_manifest", "render"]

MANIFEST_KEY = "manifest.json"

_SCHEMA = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """Bytes and sha256 (hex) that an object must have."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a run in a store consists of, by key. `generation` counts publishes; `digest` and `etag` are its own."""

    generation: int
    files: Mapping[str, FileEntry]
    digest: str
    etag: str


def digest_of(content: bytes) -> str:
    """sha256, hex."""
    return hashlib.sha256(content).hexdigest()


def is_key(text: str) -> bool:
    """Whether `text` names a place inside a folder, whatever wrote it."""
    return "\0" not in text and not any(part in ("", ".", "..") for part in text.split("/"))


def read_manifest(store: ObjectStore) -> Manifest | None:
    """The manifest under the store's prefix; None when no run is there.

    Raises:
        DamagedFileError: it is not one.
        SchemaVersionError: it was written under another schema version.
        ObjectStoreError: the store cannot be used.
    """
    try:
        there = store.read(MANIFEST_KEY)
    except NotFoundError:
        return None
    uri = f"{store.uri}/{MANIFEST_KEY}"
    remedy = "remove it, then publish the run again from its working copy"
    try:
        body = json.loads(there.content)
        schema = body["schema"]
        if schema != _SCHEMA:
            raise SchemaVersionError(uri, schema, _SCHEMA, remedy="use the memcon that published it")
        generation, files = int(body["generation"]), {key: _entry(key, entry) for key, entry in body["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(uri, f"{type(error).__name__}: {error}", remedy) from error
    return Manifest(generation=generation, files=files, digest=digest_of(there.content), etag=there.etag)


def render(generation: int, files: Mapping[str, FileEntry]) -> bytes:
    """The manifest's content: equal files and generation give equal bytes."""
    entries = {key: {"size": files[key].size, "sha256": files[key].sha256} for key in sorted(files)}
    return json.dumps({"schema": _SCHEMA, "generation": generation, "files": entries}, indent=0).encode()


def _entry(key: str, entry: dict[str, Any]) -> FileEntry:
    size, sha256 = entry["size"], entry["sha256"]
    if not is_key(key) or type(size) is not int or size < 0 or not _SHA256.fullmatch(sha256):
        raise ValueError(f"entry {key!r}")
    return FileEntry(size=size, sha256=sha256)
