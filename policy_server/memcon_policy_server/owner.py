"""The owner of one shard: the pure `PolicyShard` plus its journal. The listener and the in-process client share it.

A command changes memory at once and is answered only after its events are durable. Commands of one tick of the event
loop share one transaction (group commit), made in one writer thread. After a failed commit memory is ahead of the
journal, so the owner answers nothing more: `on_fault` ends a served process, an in-process caller gets the error.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from memcon import codec
from memcon.errors import InvariantError, MemconError, StorageError
from memcon.files import replace_file
from memcon.learning.shard import Handled, PolicyShard
from memcon.policy_types import (
    DecideReply,
    DecideRequest,
    LearningSettings,
    OutcomeReply,
    OutcomeRequest,
    TableImport,
)
from memcon_policy_server.fold import entry_of, fold
from memcon_policy_server.journal import Entry, SqliteJournal
from memcon_policy_server.secret import load_secret
from memcon_policy_server.sharding import export_path, journal_path, shard_of_keys
from memcon_policy_server.wire import MovedError

__all__ = ["EXPORT_SCHEMA_VERSION", "ShardOwner", "is_exported", "served_tables"]

EXPORT_SCHEMA_VERSION = 1

T = TypeVar("T")


class ShardOwner:
    """Claims the shard's journal in `directory`, folds it, and then is its only writer. One event loop at a time.

    Raises:
        DamagedFileError: journal or secret cannot be trusted.
        LockedError: another process keeps the journal in a transaction.
        ConfigError: the journal belongs to another number of shards.
        StorageError: the folder cannot be written.
    """

    def __init__(
        self, directory: Path, *, shard: int, num_shards: int, on_fault: Callable[[MemconError], None] = lambda _: None
    ) -> None:
        self.shard, self.num_shards = shard, num_shards
        self._directory = directory
        self._on_fault = on_fault
        self._fault: MemconError | None = None
        self._core = PolicyShard(shard, num_shards, load_secret(directory))
        self._journal = SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards)
        try:
            self.epoch = self._journal.claim()
            for _ in fold(self._journal, self._core):
                pass
        except BaseException:
            self._journal.close()
            raise
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"journal-{shard}")
        # Events applied in memory and not yet given to the writer, with the promise that they will be durable.
        self._pending: list[Entry] = []
        self._promise: asyncio.Future[None] | None = None
        # The promise of the batch that the writer has now, and the task that feeds it.
        self._flight: asyncio.Future[None] | None = None
        self._feeding: asyncio.Task[None] | None = None

    # --- commands ----------------------------------------------------------------------------------------------------

    async def open_table(self, table: str, settings: LearningSettings) -> None:
        """Create `table` durably, or check that its settings are equal."""
        # As the journal will give them back: an integer 1 where a float belongs would change the dump's text.
        canonical = codec.decode(LearningSettings, codec.encode(settings))
        await self._durably(partial(self._core.open_table, table, canonical))

    async def import_table(self, request: TableImport) -> None:
        """Let the open table start from another one's numbers, as far as they are this shard's; safe to repeat."""
        await self._durably(partial(self._core.import_table, request))

    async def decide(self, request: DecideRequest) -> DecideReply:
        """Choose and count, once a decision id.

        Raises:
            MovedError: another shard owns the request's keys.
        """
        self._check_owns(request.table, request.keys)
        return await self._durably(partial(self._core.decide, request))

    async def outcomes(self, requests: Sequence[OutcomeRequest]) -> list[OutcomeReply]:
        """Credit all `requests` that can be credited; then raise the first error, if there was one."""
        replies: list[OutcomeReply] = []
        failed: MemconError | None = None
        for request in requests:
            try:
                replies.append(self._apply(partial(self._core.outcome, request)))
            except MemconError as error:
                failed = failed or error
        await self._settled()
        if failed is not None:
            raise failed
        return replies

    async def cancel_episode(self, table: str, episode_id: str) -> int:
        """Cancel the episode's open decisions of this shard and refuse later ones; returns how many were open."""
        return await self._durably(partial(self._core.cancel_episode, table, episode_id))

    # --- views -------------------------------------------------------------------------------------------------------

    @property
    def fault(self) -> MemconError | None:
        """Why this owner answers nothing any more, or None."""
        return self._fault

    def health(self) -> dict[str, object]:
        """Who this is and how far it came."""
        return {
            "status": "ok" if self._fault is None else "failed",
            "shard": self.shard,
            "num_shards": self.num_shards,
            "epoch": self.epoch,
            "pid": os.getpid(),
            "last_seq": self._journal.last_seq,
            "tables": len(self._core.tables()),
        }

    async def served(self) -> dict[str, Any]:
        """All tables as they are now, every event in them durable.

        Raises:
            MemconError: why the owner stopped, if it has.
        """
        while self._promise or self._flight:
            await self._settled()
        if self._fault is not None:
            raise self._fault
        return served_tables(self._core, self.shard, self.num_shards, self._journal.last_seq)

    # --- end ---------------------------------------------------------------------------------------------------------

    async def export(self, directory: Path | None = None) -> Path:
        """Write the served tables into the policy folder (default: the journal's); atomic.

        Raises:
            StorageError: the folder cannot be written.
        """
        path = export_path(directory or self._directory, self.shard)
        text = json.dumps(await self.served(), sort_keys=True, indent=1, allow_nan=False)
        await asyncio.to_thread(replace_file, path, text)
        return path

    async def close(self) -> None:
        """Wait for the last commit and close the journal; may be called twice."""
        if self._feeding is not None:
            await self._feeding
        self.release()

    def release(self) -> None:
        """Free the journal at once; for an owner that has answered nothing yet, or whose last commit is done."""
        self._fault = self._fault or StorageError(f"{self._journal.path} is closed; open the policy again")
        self._writer.shutdown()
        self._journal.close()

    # --- group commit ------------------------------------------------------------------------------------------------

    async def _durably(self, command: Callable[[], Handled[T]]) -> T:
        try:
            return self._apply(command)
        finally:
            # A refusal, too, may rest on an event that is not durable yet.
            await self._settled()

    def _apply(self, command: Callable[[], Handled[T]]) -> T:
        """Run `command` on the shard and queue its events."""
        if self._fault is not None:
            raise self._fault
        try:
            handled = command()
            entries = [entry_of(event) for event in handled.events]
        except InvariantError as error:
            self._fail(error)
            raise
        except MemconError:
            raise
        except Exception as error:
            raise self._fail(InvariantError(f"shard {self.shard} failed: {type(error).__name__}: {error}")) from error
        if entries:
            self._pending.extend(entries)
            if self._promise is None:
                self._promise = asyncio.get_running_loop().create_future()
            if self._feeding is None or self._feeding.done():
                self._feeding = asyncio.get_running_loop().create_task(self._feed())
        return handled.reply

    async def _settled(self) -> None:
        """Return when all that was applied so far is durable."""
        latest = self._promise or self._flight
        if latest is not None:
            # Shared by all commands of the batch: one cancelled caller must not take it from the others.
            await asyncio.shield(latest)

    async def _feed(self) -> None:
        """Give the writer one batch after the other until nothing is pending."""
        while self._promise is not None and self._fault is None:
            batch, self._pending = self._pending, []
            self._flight, self._promise = self._promise, None
            try:
                await asyncio.get_running_loop().run_in_executor(self._writer, self._journal.append, batch)
            except MemconError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - whatever stopped the commit, memory is ahead of the journal
                self._fail(StorageError(f"cannot commit to {self._journal.path}: {type(error).__name__}: {error}"))
            else:
                # Done already when a command failed meanwhile.
                if not self._flight.done():
                    self._flight.set_result(None)
            self._flight = None

    def _fail(self, error: MemconError) -> MemconError:
        """Memory and journal no longer agree: refuse all that waits and all that comes."""
        self._fault = error
        for promise in (self._flight, self._promise):
            if promise is not None and not promise.done():
                promise.set_exception(error)
                promise.exception()
        self._on_fault(error)
        return error

    def _check_owns(self, table: str, keys: tuple[str, ...]) -> None:
        owner = shard_of_keys(table, keys, self.num_shards)
        if owner != self.shard:
            raise MovedError(
                f"key '{keys[-1]}' of table '{table}' belongs to shard {owner}, this is shard {self.shard}"
            )


def served_tables(core: PolicyShard, shard: int, num_shards: int, last_seq: int) -> dict[str, Any]:
    """The export's form of a shard's tables after event `last_seq`."""
    return {
        "schema_version": EXPORT_SCHEMA_VERSION,
        "shard": shard,
        "num_shards": num_shards,
        "last_seq": last_seq,
        "tables": {table: core.dump(table) for table in core.tables()},
    }


def is_exported(directory: Path, shard: int, num_shards: int) -> bool:
    """The served tables reach to the end of the shard's journal: its last owner was not killed before its export.

    Raises:
        MemconError: the journal cannot be read.
    """
    journal = SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards, read_only=True)
    try:
        last_seq = journal.end()
    finally:
        journal.close()
    try:
        return bool(json.loads(export_path(directory, shard).read_text(encoding="utf-8"))["last_seq"] == last_seq)
    except (OSError, ValueError, KeyError, TypeError):
        return False
