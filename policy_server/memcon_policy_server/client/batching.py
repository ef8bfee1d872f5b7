"""A natural queue in front of one shard: while a request is in flight, others gather and go together as the next one.

A lone request goes by itself at once, so nothing waits for company; 32 streams that wait for one owner cost it one
commit and one request in place of 32. Order is kept: the owner handles a batch one by one.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from memcon.errors import InvariantError, MemconError, UnavailableError
from memcon_policy_server import wire
from memcon_policy_server.client.transport import NOT_SENT, TRANSIENT, Pauses, Transport

__all__ = ["DECIDES", "OUTCOMES", "BatchKind", "Batcher"]

# Half of the smallest limits that a server has by default (1,024 items, 1 MiB).
MAX_ITEMS = 512
MAX_BYTES = 1 << 19


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchKind:
    """A request that has a form for one and a form for many."""

    single_path: str
    batch_path: str
    # Name of the list in the batch's body.
    field: str


DECIDES = BatchKind(single_path=wire.DECIDE, batch_path=wire.DECIDE_BATCH, field="decides")
OUTCOMES = BatchKind(single_path=wire.OUTCOME, batch_path=wire.OUTCOMES, field="outcomes")


@dataclass(slots=True, kw_only=True, eq=False)
class _Item:
    """One request and the caller that waits for its reply."""

    body: bytes
    reply: asyncio.Future[Any]
    # It was sent and no answer came: the owner may have done it.
    unsure: bool = False
    # The owner's answer is known; the caller may have gone before.
    answered: bool = False


class Batcher:
    """Requests of one kind to one shard, at most one in flight.

    `orphaned` is told each good reply whose caller has stopped waiting while it was on its way; a request whose answer
    was lost on the way is asked again for that.
    """

    def __init__(
        self, transport: Transport, shard: int, kind: BatchKind, *, orphaned: Callable[[Any], None] | None = None
    ) -> None:
        self._transport, self._shard, self._kind, self._orphaned = transport, shard, kind, orphaned
        self._waiting: deque[_Item] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def ask(self, body: bytes) -> Any:
        """The reply to the JSON object `body`; tries until the caller stops waiting.

        Raises:
            MemconError: what the owner raised; `UnavailableError` when the client was closed.
        """
        if self._transport.closed.is_set():
            raise self._transport.closed_error()
        loop = asyncio.get_running_loop()
        item = _Item(body=body, reply=loop.create_future())
        self._waiting.append(item)
        if self._sender is None:
            # It begins after all that is ready now has run: streams that decide in the same moment go together.
            self._sender = loop.create_task(self._send_all())
        try:
            return await item.reply
        except asyncio.CancelledError:
            reply = item.reply
            if self._orphaned is not None and not reply.cancelled() and reply.exception() is None:
                # The caller stops in the very moment in which the reply came.
                self._orphaned(reply.result())
            raise

    async def close(self) -> None:
        """Stop sending; whoever still waits gets `UnavailableError`."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait({self._sender})

    async def _send_all(self) -> None:
        pauses = Pauses(self._transport.closed)
        batch: list[_Item] = []
        try:
            while not self._transport.closed.is_set() and (batch := self._next_batch()):
                try:
                    await self._send(batch)
                    pauses.start_over()
                except TRANSIENT as error:
                    for item in batch:
                        item.unsure = item.unsure or not isinstance(error, NOT_SENT)
                    self._waiting.extendleft(reversed(batch))
                    await pauses.wait()
                except Exception as error:  # noqa: BLE001 - a bug must not leave its callers waiting
                    for item in batch:
                        _refuse(item, InvariantError(f"asking the policy server: {error!r}; report it as a bug"))
        finally:
            self._sender = None
            for item in (*batch, *self._waiting):
                _refuse(item, self._transport.closed_error())
            self._waiting.clear()

    def _next_batch(self) -> list[_Item]:
        """The next items whose replies are wanted, oldest first, as many as one request may hold."""
        batch: list[_Item] = []
        size = 0
        while self._waiting and len(batch) < MAX_ITEMS:
            item = self._waiting[0]
            if self._is_wanted(item):
                size += len(item.body)
                if batch and size > MAX_BYTES:
                    break
                batch.append(item)
            self._waiting.popleft()
        return batch

    def _is_wanted(self, item: _Item) -> bool:
        return not item.reply.done() or (item.unsure and not item.answered and self._orphaned is not None)

    async def _send(self, batch: list[_Item]) -> None:
        if len(batch) == 1:
            await self._send_one(batch[0])
            return
        try:
            answer = await self._transport.post(self._shard, self._kind.batch_path, self._together(batch))
        except TRANSIENT:
            raise
        except MemconError:
            # The request was refused whole, for one that has not the form of the wire or for its size: each gets its
            # own answer.
            for item in batch:
                await self._send_one(item)
            return
        self._hand_out(batch, _replies(answer, len(batch)))

    async def _send_one(self, item: _Item) -> None:
        if not self._is_wanted(item):
            return
        try:
            reply = await self._transport.post(self._shard, self._kind.single_path, item.body)
        except TRANSIENT:
            raise
        except MemconError as error:
            _refuse(item, error)
        else:
            self._settle(item, reply)

    def _together(self, batch: Sequence[_Item]) -> bytes:
        name = json.dumps(self._kind.field).encode()
        return b"{" + name + b":[" + b",".join([item.body for item in batch]) + b"]}"

    def _hand_out(self, batch: Sequence[_Item], replies: Sequence[Any]) -> None:
        """Give each its reply or its own error.

        Raises:
            UnavailableError: some of them must be asked again.
        """
        again: UnavailableError | None = None
        for item, reply in zip(batch, replies, strict=True):
            if "error" not in reply:
                self._settle(item, reply)
                continue
            error = wire.error_of(reply["error"], reply["message"])
            if isinstance(error, UnavailableError):
                again = error
            else:
                _refuse(item, error)
        if again is not None:
            raise again

    def _settle(self, item: _Item, reply: Any) -> None:
        item.answered = True
        if not item.reply.done():
            item.reply.set_result(reply)
        elif self._orphaned is not None:
            self._orphaned(reply)


def _replies(answer: Any, expected: int) -> Sequence[Any]:
    replies = answer.get("replies") if isinstance(answer, dict) else None
    if not isinstance(replies, list) or len(replies) != expected or not all(isinstance(r, dict) for r in replies):
        raise UnavailableError(f"the answer to {expected} requests has not the form of an owner's: {str(answer)[:100]}")
    return replies


def _refuse(item: _Item, error: MemconError) -> None:
    item.answered = True
    if not item.reply.done():
        item.reply.set_exception(error)
