"""The least of HTTP/1.1 that a load generator must read: a status and a body whose length is said."""

from __future__ import annotations

from memcon_policy_server.wire import RejectedError

__all__ = ["ReplyReader"]

_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"


class ReplyReader:
    """Collects the parts of one answer at a time; for a connection with one request open."""

    def __init__(self) -> None:
        self._data = b""
        # Where the answer that is being read ends; 0 = its head is not whole.
        self._end = self._begin = 0

    def feed(self, data: bytes) -> tuple[int, bytes] | None:
        """Status and body once the answer is whole, else None.

        Raises:
            RejectedError: the answer does not say how long it is.
        """
        self._data = self._data + data if self._data else data
        if not self._end and not self._read_head():
            return None
        if len(self._data) < self._end:
            return None
        status, body = int(self._data[9:12]), self._data[self._begin : self._end]
        self._data = self._data[self._end :]
        self._end = self._begin = 0
        return status, body

    def _read_head(self) -> bool:
        at = self._data.find(_END_OF_HEAD)
        if at < 0:
            return False
        # The blank line's first end of line closes the last field.
        head = self._data[: at + 2].lower()
        found = head.find(_LENGTH)
        if found < 0:
            raise RejectedError(f"an answer without content-length: {head[:80]!r}; the load generator reads no other")
        begin = found + len(_LENGTH)
        self._begin = at + len(_END_OF_HEAD)
        self._end = self._begin + int(head[begin : head.index(b"\r\n", begin)])
        return True
