"""Brings what a spool holds to the server: in the background, again and again until it is acknowledged or refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from memcon.errors import InvariantError, MemconError, StorageError, UnavailableError
from memcon.policy_types import CancelRequest, OutcomeRequest
from memcon_policy_server.client.http import HttpPolicyClient
from memcon_policy_server.client.spool import Message, Refusal, Spool, Spooled
from memcon_policy_server.client.transport import Pauses
from memcon_policy_server.sharding import shard_of_token
from memcon_policy_server.wire import UnauthorizedError

__all__ = ["Delivery", "DeliveryCounts"]

log = logging.getLogger(__name__)

T = TypeVar("T")

# Messages on their way at once.
ROUND_SIZE = 256
LONGEST_PAUSE_S = 5.0
# What mending the server, the token or this client makes good; all else is an answer for ever.
_LATER = (UnavailableError, UnauthorizedError, InvariantError)


@dataclass(slots=True, kw_only=True)
class DeliveryCounts:
    """Messages since the start of this process."""

    spooled: int = 0
    delivered: int = 0
    refused: int = 0


class Delivery:
    """Owns `spool` from now on, and delivers through `client`; belongs to the running event loop."""

    def __init__(self, spool: Spool, client: HttpPolicyClient) -> None:
        self.counts = DeliveryCounts()
        self._spool, self._client = spool, client
        # A commit waits for the disk: never in the event loop. One thread, as SQLite wants it.
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memcon-spool")
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._stopped = asyncio.Event()
        self._fault: MemconError | None = None
        self._closed = False
        self._task = asyncio.get_running_loop().create_task(self._deliver())

    async def add(self, message: Message) -> None:
        """Keep `message` and deliver it soon; it is in the spool when this returns.

        Raises:
            StorageError: the spool cannot be written, or it is closed.
            DamagedFileError: the spool was found damaged.
        """
        if self._fault is not None:
            raise self._fault
        await self._on_disk(partial(self._spool.add, [message]))
        self.counts.spooled += 1
        self._empty.clear()
        self._more.set()

    async def waiting(self) -> int:
        """How many messages the spool holds."""
        return await self._on_disk(self._spool.__len__)

    async def refused(self) -> list[Refusal]:
        """What the server refused, in this run and earlier ones."""
        return await self._on_disk(self._spool.refused)

    async def close(self, flush_s: float) -> int:
        """Deliver for at most `flush_s` more, then stop; returns how many messages still wait. Once."""
        drained = asyncio.ensure_future(self._empty.wait())
        await asyncio.wait({self._task, drained}, timeout=flush_s, return_when=asyncio.FIRST_COMPLETED)
        self._stopped.set()
        for task in (drained, self._task):
            task.cancel()
        await asyncio.wait({drained, self._task})
        try:
            return await self.waiting()
        finally:
            self._closed = True
            self._disk.submit(self._spool.close)
            await asyncio.to_thread(self._disk.shutdown)

    async def _deliver(self) -> None:
        pauses = Pauses(self._stopped, LONGEST_PAUSE_S)
        while True:
            self._more.clear()
            try:
                later = await self._round()
            except StorageError as error:
                later = error
            except MemconError as error:
                self._fault = error
                log.critical("policy.delivery_stopped", extra={"error": str(error)})
                return
            if later is not None:
                log.warning("policy.delivery_waits", extra={"error": str(later)})
                await pauses.wait()
                continue
            pauses.start_over()
            if not self._more.is_set():
                self._empty.set()
                await self._more.wait()

    async def _round(self) -> MemconError | None:
        """Try all that waits now, once; why something has to be tried later, if it has.

        A shard that is away holds up what is told to it, not what is told to others.
        """
        place, later, away = 0, None, set[int | None]()
        while found := await self._on_disk(partial(self._spool.waiting, place, ROUND_SIZE)):
            place = found[-1].seq
            batch = [item for item in found if self._shard_of(item) not in away]
            answers = await self._send(batch)
            delivered = [item for item, error in zip(batch, answers, strict=True) if error is None]
            for item, error in zip(batch, answers, strict=True):
                if isinstance(error, _LATER):
                    later = error
                    # A defect is of its message, and holds up no other.
                    away |= set() if isinstance(error, InvariantError) else {self._shard_of(item)}
            refused = [
                (item, error)
                for item, error in zip(batch, answers, strict=True)
                if error is not None and not isinstance(error, _LATER)
            ]
            await self._on_disk(partial(self._spool.settle, delivered, refused))
            self.counts.delivered += len(delivered)
            self.counts.refused += len(refused)
            for item, error in refused:
                log.error("policy.outcome_refused", extra={"decision": item.message.decision_id, "error": str(error)})
            if len(away) >= (self._client.known_shards or 1):
                break
        return later

    def _shard_of(self, item: Spooled) -> int | None:
        known = self._client.known_shards
        return None if known is None else shard_of_token(item.message.token, known)

    async def _send(self, batch: Sequence[Spooled]) -> list[MemconError | None]:
        """For each message None when the server has it, else the error."""
        return list(await asyncio.gather(*(self._send_one(item.message) for item in batch)))

    async def _send_one(self, message: OutcomeRequest | CancelRequest) -> MemconError | None:
        try:
            if isinstance(message, OutcomeRequest):
                await self._client.outcomes([message])
            else:
                await self._client.cancel(message)
        except MemconError as error:
            return error
        except Exception as error:  # noqa: BLE001 - no word of the server: the message is kept, and others are delivered
            return InvariantError(f"delivering {type(message).__name__}: {error!r}; report it as a bug")
        return None

    async def _on_disk(self, call: Callable[[], T]) -> T:
        if self._closed:
            raise StorageError("the policy client is closed, and its spool with it; make a new one")
        return await asyncio.get_running_loop().run_in_executor(self._disk, call)
