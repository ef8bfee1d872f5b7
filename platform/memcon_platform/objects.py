"""Objects under a prefix of a bucket: all traffic with S3-compatible stores. The only module that knows boto3.

Endpoint, region and credentials come from the SDK's own chain (AWS_ENDPOINT_URL_S3, AWS_PROFILE, ~/.aws, instance
roles); none of them is ever an argument. An object is seen whole or not at all. An ETag is a version for conditions
and never a hash of content: content is checked by the sha256 that a manifest holds.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

from memcon.errors import ConfigError, ConflictError, DamagedFileError, MemconError, MissingExtraError, StorageError
from memcon.files import TEMPORARY_SUFFIX, sync_folder
from memcon_platform.object_errors import ObjectStoreError, explained

__all__ = [
    "Content",
    "ObjectInfo",
    "ObjectStore",
    "ObjectStoreError",
    "Stored",
    "is_uri",
    "open_objects",
]

T = TypeVar("T")

_SCHEME = "s3://"
# What AWS allows today; every store that we know takes these.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CONNECT_S, _READ_S = 3.0, 5.0
# Two tries with at most 1 s between them: a dead store is noticed after 11 s at the worst (no answer at all), a host
# that drops packets after 7 s, a refused connection at once.
_TRIES = 2
# Part of a multipart put, held in memory; the protocol allows 10,000 parts, so objects up to 160 GB.
_PART_BYTES = 16 * 1024**2
_CHUNK_BYTES = 1024**2
_PROBE_KEY = ".conditions"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What a list says of an object: bytes, and the store's mark of its version."""

    size: int
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """An object's bytes, and the version that they are of; when it was put, by the store's clock."""

    content: bytes
    etag: str
    modified: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What was sent or received: bytes, their sha256 (hex), the store's mark of the version."""

    size: int
    sha256: str
    etag: str


def is_uri(text: str) -> bool:
    """Whether `text` names a place in an object store."""
    return text[: len(_SCHEME)].lower() == _SCHEME


def open_objects(uri: str) -> ObjectStore:
    """The objects under `uri` (`s3://bucket/prefix`). Asks the store nothing yet.

    Raises:
        ConfigError: the URI is not one.
        MissingExtraError: boto3 is not installed.
        ObjectStoreError: the SDK's settings (endpoint, profile) cannot be used.
    """
    bucket, prefix = _split(uri)
    place = f"{_SCHEME}{bucket}/{prefix}".rstrip("/")
    try:
        import boto3.session
        from botocore.config import Config
    except ImportError as error:
        raise MissingExtraError("boto3", "s3") from error
    config = Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_READ_S,
        retries={"mode": "standard", "total_max_attempts": _TRIES},
        # Checksums that newer SDKs add on their own make several stores refuse a put; sha256 is ours.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        # A session of its own: the shared default one is not safe among threads, clients are.
        client = boto3.session.Session().client("s3", config=config)
    except Exception as error:  # noqa: BLE001 - whatever the SDK's settings hold, the user gets one line
        raise _unusable(error, place) from None
    return ObjectStore(client, bucket, prefix)


class ObjectStore:
    """Objects of one bucket whose keys begin with one prefix. Keys are relative to it, parts joined by `/`.

    Safe for several threads. A call ends within some seconds when the store is dead, with `ObjectStoreError.away`.

    Every call raises:
        ObjectStoreError: the store cannot be reached, refuses us or fails.
    """

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client, self._bucket = client, bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self.uri = f"{_SCHEME}{bucket}/{prefix}".rstrip("/")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    def list(self) -> dict[str, ObjectInfo]:
        """Every object under the prefix, by key, in the order of keys."""
        with self._asking("list", self.uri):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            found = {
                entry["Key"].removeprefix(self._prefix): ObjectInfo(size=entry["Size"], etag=entry["ETag"])
                for page in pages
                for entry in page.get("Contents", ())
            }
        # Some tools put an empty object at the prefix itself, to show a folder.
        return {key: found[key] for key in sorted(found) if key}

    def get(self, key: str) -> bytes:
        """An object's content.

        Raises:
            NotFoundError: there is no such object.
        """
        return self.read(key).content

    def read(self, key: str) -> Content:
        """An object's content and the version of it.

        Raises:
            NotFoundError: there is no such object.
        """
        with self._asking("read", self._uri_of(key)):
            return _twice(partial(self._read, key))

    def fetch(self, key: str, path: Path, *, sha256: str | None = None) -> Stored:
        """Put an object's content in place of `path`, whole or not at all; folders above it are made.

        Raises:
            NotFoundError: there is no such object.
            DamagedFileError: its content has not the digest `sha256`; `path` is as it was.
            StorageError: the place cannot be written.
        """
        with self._asking("fetch", self._uri_of(key), path), _replacing(path) as temporary:
            stored = _twice(partial(self._receive, key, temporary))
            if sha256 not in (None, stored.sha256):
                raise DamagedFileError(
                    self._uri_of(key), f"its sha256 is {stored.sha256}, expected {sha256}", "nothing was written here"
                )
        return stored

    def put(self, key: str, content: bytes, *, only_new: bool = False, if_match: str | None = None) -> str:
        """Put an object and give its version. `only_new`: where none stands; `if_match`: in place of that version.

        A store may ignore both conditions: see `honours_conditions`.

        Raises:
            ConflictError: the condition does not hold; nothing was changed.
        """
        conditions = {"IfNoneMatch": "*"} if only_new else {}
        if if_match is not None:
            conditions["IfMatch"] = if_match
        try:
            with self._asking("write", self._uri_of(key)):
                return self._put(key, content, **conditions)
        except ConflictError:
            # The first try may have been taken and its answer lost, so that ours is what stands in our way.
            there = self._read_if_there(key)
            if there is None or there.content != content:
                raise
            return there.etag

    def put_file(self, key: str, path: Path) -> Stored:
        """Put a file's content, read once: size and digest are those of what was sent, whatever happens to the file.

        A large file goes in parts and appears when the last one is there.

        Raises:
            StorageError: the file cannot be read.
        """
        with self._asking("write", self._uri_of(key), path), path.open("rb") as file:
            first = file.read(_PART_BYTES)
            if len(first) == _PART_BYTES:
                return self._put_parts(key, first, file)
            return Stored(size=len(first), sha256=hashlib.sha256(first).hexdigest(), etag=self._put(key, first))

    def delete(self, key: str) -> None:
        """Remove an object; none there is no error."""
        with self._asking("delete", self._uri_of(key)):
            self._client.delete_object(Bucket=self._bucket, Key=self._full(key))

    def honours_conditions(self) -> bool:
        """Whether the store refuses a put whose condition does not hold, tried on an object of its own.

        Where it does not, two writers can overwrite each other unseen, and an object cannot be a lock.
        """
        # Contents that nobody else puts: a put is taken for done when its own content stands there.
        mine, again = uuid.uuid4().bytes, uuid.uuid4().bytes
        try:
            self.put(_PROBE_KEY, mine, only_new=True)
        except ConflictError:
            return True
        try:
            self.put(_PROBE_KEY, again, only_new=True)
        except ConflictError:
            return True
        finally:
            self.delete(_PROBE_KEY)
        return False

    def _read(self, key: str) -> Content:
        answer = self._client.get_object(Bucket=self._bucket, Key=self._full(key))
        with closing(answer["Body"]) as body:
            return Content(content=body.read(), etag=answer["ETag"], modified=answer.get("LastModified"))

    def _read_if_there(self, key: str) -> Content | None:
        try:
            return self.read(key)
        except MemconError:
            return None

    def _receive(self, key: str, path: Path) -> Stored:
        answer = self._client.get_object(Bucket=self._bucket, Key=self._full(key))
        digest, size = hashlib.sha256(), 0
        with closing(answer["Body"]) as body, path.open("wb") as file:
            while chunk := body.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        return Stored(size=size, sha256=digest.hexdigest(), etag=answer["ETag"])

    def _put(self, key: str, content: bytes, **conditions: str) -> str:
        answer = self._client.put_object(Bucket=self._bucket, Key=self._full(key), Body=content, **conditions)
        return str(answer["ETag"])

    def _put_parts(self, key: str, first: bytes, file: BinaryIO) -> Stored:
        place = {"Bucket": self._bucket, "Key": self._full(key)}
        upload = self._client.create_multipart_upload(**place)["UploadId"]
        digest, size, part = hashlib.sha256(), 0, first
        parts: list[dict[str, Any]] = []
        try:
            while part:
                digest.update(part)
                size += len(part)
                number = len(parts) + 1
                answer = self._client.upload_part(**place, UploadId=upload, PartNumber=number, Body=part)
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
                part = file.read(_PART_BYTES)
            done = self._client.complete_multipart_upload(**place, UploadId=upload, MultipartUpload={"Parts": parts})
        except BaseException:
            # Parts that nobody completes are paid for and seen by no list; a killed process leaves them to the
            # bucket's lifecycle rule.
            with suppress(Exception):
                self._client.abort_multipart_upload(**place, UploadId=upload)
            raise
        return Stored(size=size, sha256=digest.hexdigest(), etag=done["ETag"])

    @contextmanager
    def _asking(self, verb: str, uri: str, path: Path | None = None) -> Iterator[None]:
        """Map whatever is raised while the store is asked; `path` is the file that is read or written meanwhile."""
        try:
            yield
        except MemconError:
            raise
        except Exception as error:
            # Some errors of the SDK are OSErrors too; those of files are the interpreter's own.
            if path is not None and isinstance(error, OSError) and type(error).__module__ == "builtins":
                problem = f"cannot {verb} {uri}: {path}: {error.strerror or error}"
                raise StorageError(f"{problem}; mend permissions or space and run the same command again") from error
            raise self._explained(error, verb, uri) from None

    def _explained(self, error: Exception, verb: str, uri: str) -> MemconError:
        return explained(error, f"{verb} {uri}", key_uri=uri, endpoint=self._client.meta.endpoint_url)

    def _uri_of(self, key: str) -> str:
        return f"{_SCHEME}{self._bucket}/{self._full(key)}"

    def _full(self, key: str) -> str:
        if any(part in ("", ".", "..") for part in key.split("/")):
            raise ConfigError(
                f"{key!r} is no key under {self.uri}; expected parts joined by '/', none empty, '.' or '..'"
            )
        return self._prefix + key


def _split(uri: str) -> tuple[str, str]:
    """Bucket and prefix of a URI."""
    expected = "expected s3://BUCKET/PREFIX"
    bucket, _, prefix = uri[len(_SCHEME) :].partition("/")
    if any(mark in bucket for mark in "@:"):
        # Whatever stands there may be a secret, so it is not repeated.
        raise ConfigError(f"an s3:// URI with '@' or ':' in its bucket; {expected}, and credentials by AWS_PROFILE")
    if not is_uri(uri) or not _BUCKET.fullmatch(bucket):
        rule = "a bucket has 3 to 63 of a-z, 0-9, '.' and '-'"
        raise ConfigError(f"{uri!r} names no bucket; {expected}, where {rule}")
    prefix = prefix.strip("/")
    if prefix and (not prefix.isprintable() or any(part in ("", ".", "..") for part in prefix.split("/"))):
        raise ConfigError(f"{uri!r} has an empty part, '.', '..' or a control character in its prefix; {expected}")
    return bucket, prefix


def _unusable(error: Exception, place: str) -> MemconError:
    # An address that is no URL is the one plain ValueError; its text may hold a password.
    if type(error) is ValueError:
        cause, remedy = "the endpoint's address is not a valid URL", "mend AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL"
        return ObjectStoreError(f"use {place}", cause, f"{remedy} (http://HOST:PORT)")
    return explained(error, f"use {place}", key_uri=place, endpoint=None)


def _twice(receive: Callable[[], T]) -> T:
    """What `receive` gives, tried once more when the body broke off: the SDK's own tries end with the headers."""
    try:
        return receive()
    except Exception as error:
        if type(error).__name__ not in ("ResponseStreamingError", "IncompleteReadError"):
            raise
    return receive()


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary file that takes the place of `path` when the block ends well; gone when it does not."""
    temporary = path.with_name(f".{path.name}{TEMPORARY_SUFFIX}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield temporary
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
