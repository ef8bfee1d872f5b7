"""From events in memory to events on disk: one transaction for all that gathered while the one before was written.

Owns the order (that of application), the waiting and the fault; knows nothing of requests. A commit that fails leaves
memory ahead of the journal, so nothing is committed or promised after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from memcon.errors import MemconError, StorageError
from memcon.learning.events import Event
from memcon.protocols import Clock
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.owner.metrics import COMMIT_BOUNDS_S, Histogram
from memcon_policy_server.owner.snapshot_writer import SnapshotWriter

__all__ = ["MAX_PENDING", "GroupCommit"]

# Events that nobody waits for are written together, but not more than this many.
FLUSH_AT = 4096
# More events than this in memory only, and who does not wait for the disk must: some 20 MB.
MAX_PENDING = 50_000


class GroupCommit:
    """The events of one shard on their way into its claimed journal; one event loop, one writer thread.

    `on_fault` is called once, in the event loop.
    """

    def __init__(
        self,
        journal: SqliteJournal,
        snapshots: SnapshotWriter,
        *,
        flush_every_s: float,
        clock: Clock,
        on_fault: Callable[[MemconError], None],
    ) -> None:
        self._journal, self._snapshots = journal, snapshots
        self._flush_every_s, self._clock, self._on_fault = flush_every_s, clock, on_fault
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"journal-{journal.shard}")
        self._loop: asyncio.AbstractEventLoop | None = None
        # Applied in memory and not yet given to the writer, and who waits until they are durable.
        self._pending: list[Event] = []
        self._waiting: list[asyncio.Future[None]] = []
        # The batch that the writer has now, and who waits for it.
        self._in_flight = 0
        self._flying: list[asyncio.Future[None]] = []
        # Somebody waits, or the pending events are many or old enough.
        self._urgent = False
        self._timer: asyncio.TimerHandle | None = None
        self._feeding: asyncio.Task[None] | None = None
        self.fault: MemconError | None = None
        # Why no more commands are taken: the fault, or the end that has begun.
        self.refusal: MemconError | None = None
        # Last durable event.
        self.last_seq = journal.last_seq
        self.commits = self.events = 0
        self.commit_seconds = Histogram(bounds=COMMIT_BOUNDS_S)

    # --- what a command does -----------------------------------------------------------------------------------------

    def add(self, events: Sequence[Event]) -> None:
        """Queue applied events; `settled` or `flush_later` must follow in the same step of the event loop."""
        self._pending.extend(events)

    def flush_later(self) -> None:
        """Write what is pending soon, though nobody waits for it."""
        if len(self._pending) >= FLUSH_AT:
            self._start()
        elif self._timer is None and self._pending:
            self._timer = asyncio.get_running_loop().call_later(self._flush_every_s, self._start)

    async def settled(self) -> None:
        """Return when all that was queued so far is durable.

        Raises:
            MemconError: the fault, if something is or was not written.
        """
        if self.fault is not None:
            raise self.fault
        if self._pending:
            group = self._waiting
            self._start()
        elif self._in_flight:
            group = self._flying
        else:
            return
        # One future a caller: one that goes away takes nothing from the others (a shield for each costs twice as much).
        durable = asyncio.get_running_loop().create_future()
        group.append(durable)
        await durable

    @property
    def congested(self) -> bool:
        """The writer does not keep up: who need not wait for the disk should wait for it now."""
        return len(self._pending) > MAX_PENDING

    @property
    def pending(self) -> int:
        """Events that are not durable yet."""
        return len(self._pending) + self._in_flight

    @property
    def applied_seq(self) -> int:
        """Number that the last applied event has or will have in the journal."""
        return self.last_seq + self._in_flight + len(self._pending)

    # --- faults and the end ------------------------------------------------------------------------------------------

    def fail(self, error: MemconError) -> None:
        """Memory and journal no longer agree, or are another's: refuse all that waits and all that comes."""
        if self.fault is not None:
            return
        self.fault = self.refusal = error
        for durable in (*self._flying, *self._waiting):
            if not durable.done():
                durable.set_exception(error)
        self._flying, self._waiting = [], []
        self._on_fault(error)

    def fail_from_thread(self, error: MemconError) -> None:
        """`fail`, called in another thread than the event loop's."""
        # Without a loop, or after its end, nobody waits.
        if self._loop is None or self._loop.is_closed():
            self.fail(error)
            return
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.fail, error)

    async def drain(self, closed: MemconError) -> None:
        """Write what is pending and wait for the writer; a fault is not raised again.

        No command is taken from here on: whoever asks gets `closed`, and memory stays as it will be on disk.
        """
        self.refusal = self.refusal or closed
        with suppress(MemconError):
            await self.settled()
        if self._feeding is not None:
            await self._feeding

    def close(self, closed: MemconError) -> None:
        """Stop the writer; whoever asks after this gets `closed`. May be called twice."""
        self.fault = self.refusal = self.fault or closed
        if self._timer is not None:
            self._timer.cancel()
        self._writer.shutdown()

    # --- the writer --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._urgent = True
        if self._feeding is None or self._feeding.done():
            self._loop = asyncio.get_running_loop()
            # A task: the commands of this step of the event loop share the transaction.
            self._feeding = self._loop.create_task(self._feed())

    async def _feed(self) -> None:
        """Give the writer one batch after the other until no batch is due."""
        try:
            while self._urgent and self._pending and self.fault is None:
                await self._commit()
        except MemconError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001 - whatever stopped the commit, memory is ahead of the journal
            self.fail(StorageError(f"cannot commit to {self._journal.path}: {type(error).__name__}: {error}"))

    async def _commit(self) -> None:
        batch, self._pending = self._pending, []
        self._flying, self._waiting = self._waiting, []
        self._in_flight, self._urgent = len(batch), False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Now memory holds the events up to the batch's last one and nothing more.
        state = self._snapshots.capture_if_due(self.last_seq + len(batch))
        began = self._clock.monotonic()
        last_seq = await asyncio.get_running_loop().run_in_executor(self._writer, self._journal.append, batch)
        self.commit_seconds.observe(self._clock.monotonic() - began)
        self.commits += 1
        self.events += len(batch)
        self.last_seq, self._in_flight = last_seq, 0
        # Empty already when a command failed meanwhile.
        for durable in self._flying:
            if not durable.done():
                durable.set_result(None)
        self._flying = []
        if state is not None:
            self._snapshots.write(state, last_seq, self._journal.head)
