"""When an owner writes a snapshot, and how without holding up its requests. The file's form is `snapshot`'s."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from memcon.errors import LockedError
from memcon.learning.shard import PolicyShard
from memcon.protocols import Clock
from memcon_policy_server.journal.snapshot import write_snapshot
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import snapshot_path

__all__ = ["SnapshotWriter"]

log = logging.getLogger(__name__)

_PAUSE_S = 0.002


class SnapshotWriter:
    """Snapshots of one shard beside its journal, one at a time; `seq` is the last event of the one that is there.

    The state is copied in the event loop, at a moment when memory and journal will agree; it is encoded and written in
    a thread after the last event in it is durable. Due every `every` events, or later in a large shard, so that an
    event pays for the copies no more there than in a small one: an open decision counts two events, a key one, an ended
    decision a quarter (at half an event for each the copies took a third of a loaded owner).
    """

    def __init__(self, core: PolicyShard, journal: SqliteJournal, *, every: int, clock: Clock, seq: int) -> None:
        self._core, self._journal, self._every, self._clock = core, journal, every, clock
        self._shard, self._num_shards = journal.shard, journal.num_shards
        self._path = snapshot_path(journal.path.parent, journal.shard)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="snapshot")
        self._writing: asyncio.Task[None] | None = None
        # Nobody is to be given way any more.
        self._hurry = threading.Event()
        # Last event of the last good snapshot; 0 = none.
        self.seq = seq
        self.written = self.failed = 0
        self._written_at: float | None = None
        self._due_at = self._next_due(seq)

    @property
    def age_s(self) -> float:
        """Seconds since this process has written one; -1 = it has not."""
        return -1.0 if self._written_at is None else self._clock.monotonic() - self._written_at

    def capture_if_due(self, seq: int) -> dict[str, Any] | None:
        """The state of this moment, if a snapshot is due; memory holds the events up to `seq`, no more."""
        if seq < self._due_at or self._writing is not None:
            return None
        self._due_at = self._next_due(seq)
        return self._capture()

    def write(self, state: dict[str, Any], seq: int, head: bytes) -> None:
        """Write the `state` after event `seq` in the background; `head` is the journal's checksum there."""
        self._writing = asyncio.get_running_loop().create_task(self._write(state, seq, head))

    async def finish(self, seq: int, head: bytes) -> None:
        """Write the last snapshot, of all there is, and wait for it; nothing when there is one already."""
        self._hurry.set()
        if self._writing is not None:
            await self._writing
        if seq > self.seq and (state := self._capture()) is not None:
            await self._write(state, seq, head)

    def release(self) -> None:
        """Wait for what is being written and stop the thread."""
        self._hurry.set()
        self._thread.shutdown()

    def _capture(self) -> dict[str, Any] | None:
        try:
            return self._core.captured()
        except Exception as error:  # noqa: BLE001 - a snapshot is a shortcut: without it the next start folds more
            self._count_failure(error)
            return None

    async def _write(self, state: dict[str, Any], seq: int, head: bytes) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._put, state, seq, head)
        except Exception as error:  # noqa: BLE001 - as above
            self._count_failure(error)
        else:
            self.seq, self._written_at = seq, self._clock.monotonic()
            self.written += 1
        finally:
            self._writing = None

    def _put(self, state: dict[str, Any], seq: int, head: bytes) -> None:
        # Two owners do live at once for a while, and only one may write the file.
        if (newest := self._journal.current_epoch()) != self._journal.epoch:
            raise LockedError(
                f"not writing {self._path}: the shard was claimed under epoch {newest}, after epoch "
                f"{self._journal.epoch} of this owner"
            )
        write_snapshot(
            self._path,
            shard=self._shard,
            num_shards=self._num_shards,
            seq=seq,
            head=head,
            state=state,
            between=self._give_way,
        )

    def _give_way(self) -> None:
        # A thread that computes without a pause holds the interpreter for 5 ms at a time, and the event loop, which
        # gives it up at every call of the system, then does 200 of these a second: stops of 0.3 s were seen.
        self._hurry.wait(_PAUSE_S)

    def _count_failure(self, error: Exception) -> None:
        self.failed += 1
        log.error(
            "policy.snapshot_failed", extra={"path": str(self._path), "error": f"{type(error).__name__}: {error}"}
        )

    def _next_due(self, seq: int) -> int:
        sizes = [self._core.counts(table) for table in self._core.tables()]
        remembered = sum(2 * size["open"] + size["keys"] + size["closed"] // 4 for size in sizes)
        return seq + max(self._every, remembered)
