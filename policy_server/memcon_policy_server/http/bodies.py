"""Bodies as JSON or msgpack: which of the two, and strict reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from memcon_policy_server.messages import Message, check_texts
from memcon_policy_server.wire import MediaTypeError, RejectedError

__all__ = ["JSON", "MSGPACK", "Reader", "encode", "media_of", "reply_media"]

JSON = b"application/json"
MSGPACK = b"application/msgpack"
_ENCODERS = {JSON: msgspec.json.Encoder().encode, MSGPACK: msgspec.msgpack.Encoder().encode}


def media_of(content_type: bytes | None) -> bytes:
    """JSON or msgpack, by a request's content-type; JSON without one.

    Raises:
        MediaTypeError: it is neither.
    """
    if content_type is None:
        return JSON
    media = content_type if content_type in _ENCODERS else content_type.partition(b";")[0].strip().lower()
    if media not in _ENCODERS:
        raise MediaTypeError(
            f"content-type {media.decode('latin-1')!r} is not spoken here; send application/json or application/msgpack"
        )
    return media


def reply_media(accept: bytes | None, spoken: bytes) -> bytes:
    """The first of JSON and msgpack that `accept` names; else that of the request."""
    if accept is None or accept == spoken:
        return spoken
    for part in accept.split(b","):
        media = part.partition(b";")[0].strip().lower()
        if media in _ENCODERS:
            return media
    return spoken


def encode(reply: object, media: bytes) -> bytes:
    """`reply` in the named form; an infinite number is null in JSON."""
    return _ENCODERS[media](reply)


class Reader:
    """Reads one kind of message, from a body or from a query."""

    __slots__ = ("_decoders", "_max_text_chars", "kind")

    def __init__(self, kind: type[Message], max_text_chars: int) -> None:
        self.kind = kind
        self._max_text_chars = max_text_chars
        self._decoders: dict[bytes, Callable[[bytes], Any]] = {
            JSON: msgspec.json.Decoder(kind).decode,
            MSGPACK: msgspec.msgpack.Decoder(kind).decode,
        }

    def body(self, body: bytes, media: bytes) -> Any:
        """The message in `body`.

        Raises:
            RejectedError: the body is not of this form; names the field.
        """
        try:
            message = self._decoders[media](body)
            # No text is longer than the body that holds it.
            if len(body) > self._max_text_chars and message.has_text_over(self._max_text_chars):
                check_texts(message, self._max_text_chars)
        except (ValueError, RecursionError) as error:
            raise RejectedError(f"body of {self.kind.__name__}: {error}") from error
        return message

    def query(self, query: bytes) -> Any:
        """The message in a query string.

        Raises:
            RejectedError: it is not of this form; names the parameter.
        """
        try:
            pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=16)
            message = msgspec.convert(dict(pairs), self.kind)
            check_texts(message, self._max_text_chars)
        except ValueError as error:
            raise RejectedError(f"query of {self.kind.__name__}: {error}") from error
        return message
