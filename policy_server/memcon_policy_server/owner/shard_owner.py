"""The owner of one shard: the pure `PolicyShard` plus its journal. The listener and the in-process client share it.

A command changes memory at once; with few exceptions (`decide_now`, expiry) it is answered only after its events are
durable. Commands of one tick of the event loop share one transaction (`group_commit`). After a failed commit memory is
ahead of the journal, and after another owner's claim it is behind: either way this one answers nothing more.
`on_fault` ends a served process, an in-process caller gets the error.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from memcon import codec
from memcon.clock import SystemClock
from memcon.errors import MemconError, StorageError, UnavailableError
from memcon.learning import kernel
from memcon.learning.events import Decided
from memcon.learning.shard import Handled, PolicyShard
from memcon.policy_types import (
    CancelRequest,
    DecideReply,
    DecideRequest,
    LearningSettings,
    OutcomeReply,
    OutcomeRequest,
    TableImport,
)
from memcon.protocols import Clock
from memcon_policy_server.journal.fold import restore, unsigned_shard
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.options import OwnerOptions
from memcon_policy_server.owner.admission import Admission
from memcon_policy_server.owner.execution import Execution
from memcon_policy_server.owner.expiry import Expiry
from memcon_policy_server.owner.exports import served_tables, write_export
from memcon_policy_server.owner.group_commit import GroupCommit
from memcon_policy_server.owner.lease import Lease
from memcon_policy_server.owner.metrics import Counts, OwnerMetrics
from memcon_policy_server.owner.snapshot_writer import SnapshotWriter
from memcon_policy_server.secret import load_secret
from memcon_policy_server.sharding import export_path, journal_path
from memcon_policy_server.wire import MovedError

__all__ = ["ShardOwner"]

T = TypeVar("T")


class ShardOwner:
    """Claims the shard's journal in `directory`, restores its tables, and then is its only writer.

    One event loop at a time; with `options.expire_after_s` it is made inside of it. Every command raises what
    `PolicyShard`'s raises, and:

    - `MovedError` when another shard owns the keys, or another owner has, or may have, claimed this shard;
    - the fault (`StorageError`, `LockedError`, `InvariantError`) after a commit failed: from then on, always.

    Raises:
        DamagedFileError: journal, secret, or a snapshot that is needed cannot be trusted.
        SchemaVersionError: the journal is of another version of memcon.
        LockedError: another process keeps the journal in a transaction.
        ConfigError: the journal belongs to another number of shards.
        StorageError: the folder cannot be written.
    """

    def __init__(
        self,
        directory: Path,
        *,
        shard: int,
        num_shards: int,
        options: OwnerOptions | None = None,
        clock: Clock | None = None,
        on_fault: Callable[[MemconError], None] = lambda _: None,
    ) -> None:
        self.shard, self.num_shards = shard, num_shards
        self.options = options or OwnerOptions()
        if self.options.expire_after_s is not None:
            # Its timer begins below: without a loop nothing is claimed.
            asyncio.get_running_loop()
        # Before the claim: in a cold process it compiles for seconds, and an older owner serves meanwhile.
        kernel.kernels()
        self._directory = directory
        self._clock = clock or SystemClock()
        self._core = PolicyShard(shard, num_shards, load_secret(directory))
        self._journal = SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards)
        try:
            claimed_at = self._clock.monotonic()
            self.epoch = self._journal.claim()
            snapshot_seq = restore(self._journal, self._core)
        except BaseException:
            self._journal.close()
            raise
        self._snapshots = SnapshotWriter(
            self._core,
            self._journal,
            every=self.options.snapshot_every,
            clock=self._clock,
            seq=snapshot_seq,
        )
        self._commits = GroupCommit(
            self._journal,
            self._snapshots,
            flush_every_s=self.options.flush_every_s,
            clock=self._clock,
            on_fault=on_fault,
        )
        # Behind what its loss fails: somebody may have claimed the shard while it was folded, and its thread looks now.
        self._lease = Lease(
            self._journal.current_epoch,
            epoch=self.epoch,
            clock=self._clock,
            claimed_at=claimed_at,
            on_lost=self._lose,
        )
        self._admission = Admission(self._core, self.options.limits, shard=shard, num_shards=num_shards)
        self._core.admit = self._admission.check_keys
        self._counts = Counts()
        self._run = Execution(shard, self._commits, self._lease, self._counts)
        self._expiry = self._begin_expiry()

    # --- commands ----------------------------------------------------------------------------------------------------

    async def open_table(self, table: str, settings: LearningSettings) -> None:
        """Create `table` durably, or check that its settings are equal.

        Raises:
            LimitError: there are as many tables as the limit allows, or this one has more arms than it allows.
        """
        # As the journal will give them back: an integer 1 where a float belongs would change the dump's text.
        canonical = codec.decode(LearningSettings, codec.encode(settings))

        def _open() -> Handled[None]:
            self._admission.check_table(table, canonical)
            return self._core.open_table(table, canonical)

        await self._run.durably(_open)

    async def import_table(self, request: TableImport) -> None:
        """Let the open table start from another one's numbers, as far as they are this shard's; safe to repeat.

        Raises:
            LimitError: the table would have more keys than the limit allows.
        """
        # Seconds for 100,000 keys.
        prepared = await self._run.in_thread(self._core.prepare_import, request)

        def _import() -> Handled[None]:
            self._admission.check_room(request.table, len(request.numbers))
            if isinstance(prepared, MemconError):
                raise prepared
            return self._core.take_import(request, prepared)

        await self._run.durably(_import)

    async def freeze_table(self, table: str, frozen: bool) -> bool:
        """Let the table learn nothing from now on, or learn again; True if that is a change."""
        return await self._run.durably(self._core.freeze_table, table, frozen)

    @property
    def decides_at_once(self) -> bool:
        """`decide_now` and `decide_batch_now` answer: a decide need not be durable here, and the writer keeps up."""
        return not (self.options.durable_decides or self._commits.congested)

    def decide_now(self, request: DecideRequest) -> DecideReply:
        """Choose and count without waiting for the disk; for an owner that `decides_at_once`.

        A kill may forget the decision; its outcome counts all the same, since the token carries it.

        Raises:
            LimitError: the table would have more keys than the limit allows.
            UnavailableError: too much is waiting for the disk; `decide` waits with it.
        """
        self._check_at_once()
        reply = self._counted(self._run.apply(self._core.decide, request))
        self._commits.flush_later()
        return reply

    def decide_batch_now(self, requests: Sequence[DecideRequest]) -> list[DecideReply | MemconError]:
        """`decide_batch` without waiting for the disk, where and as `decide_now` does; raises what that raises."""
        self._check_at_once()
        replies = self._decide_each(requests)
        self._commits.flush_later()
        return replies

    async def decide(self, request: DecideRequest) -> DecideReply:
        """Choose and count, once a decision id; durable if the options say so.

        Raises:
            LimitError: the table would have more keys than the limit allows.
        """
        await self._until_decides()
        try:
            return self._counted(self._run.apply(self._core.decide, request))
        finally:
            await self._decided()

    async def decide_batch(self, requests: Sequence[DecideRequest]) -> list[DecideReply | MemconError]:
        """Decide one by one, in order, each seeing those before it; one transaction.

        A request that is refused leaves its error in its place.
        """
        await self._until_decides()
        replies = self._decide_each(requests)
        await self._decided()
        return replies

    async def outcomes(self, requests: Sequence[OutcomeRequest]) -> list[OutcomeReply | MemconError]:
        """Credit all `requests` that can be credited, durably; one that is refused leaves its error in its place."""
        await self._run.renewed()
        replies = self._run.apply_each(self._core.outcome_each, requests).reply
        for reply in replies:
            if isinstance(reply, OutcomeReply):
                self._counts.outcomes[reply.status] = self._counts.outcomes.get(reply.status, 0) + 1
        await self._commits.settled()
        return replies

    async def cancel(self, request: CancelRequest) -> bool:
        """Take an open decision back durably; True if it was open."""
        cancelled = await self._run.durably(self._core.cancel, request)
        self._counts.cancelled += cancelled
        return cancelled

    async def cancel_episode(self, table: str, episode_id: str) -> int:
        """Cancel the episode's open decisions of this shard and refuse later ones; returns how many were open."""
        cancelled = await self._run.durably(self._core.cancel_episode, table, episode_id)
        self._counts.cancelled += cancelled
        return cancelled

    # --- views -------------------------------------------------------------------------------------------------------

    @property
    def fault(self) -> MemconError | None:
        """Why this owner answers nothing any more, or None."""
        return self._commits.fault

    def health(self) -> dict[str, object]:
        """Who this is and how far it came; "stale": it must look at its epoch before it answers again."""
        status = "failed" if self.fault else "ok" if self._lease.held else "stale"
        return {
            "status": status,
            "shard": self.shard,
            "num_shards": self.num_shards,
            "epoch": self.epoch,
            "pid": os.getpid(),
            "last_seq": self._commits.last_seq,
            "tables": len(self._core.tables()),
        }

    def metrics(self) -> OwnerMetrics:
        """What this owner counts, as it is now."""
        sizes = [self._core.counts(table) for table in self._core.tables()]
        counts, commits, snapshots = self._counts, self._commits, self._snapshots
        return OwnerMetrics(
            shard=self.shard,
            epoch=self.epoch,
            up=int(self.fault is None and self._lease.held),
            decisions=counts.decisions,
            outcomes=dict(counts.outcomes),
            conflicts=counts.conflicts,
            cancelled=counts.cancelled,
            expired=counts.expired,
            commits=commits.commits,
            events=commits.events,
            snapshots=snapshots.written,
            snapshot_failures=snapshots.failed,
            commit_seconds=commits.commit_seconds.copy(),
            tables=len(sizes),
            keys=sum(size["keys"] for size in sizes),
            open_decisions=sum(size["open"] for size in sizes),
            pending=commits.pending,
            last_seq=commits.last_seq,
            snapshot_seq=snapshots.seq,
            snapshot_age_s=snapshots.age_s,
            lease_age_s=self._lease.age_s,
        )

    async def tables(self) -> dict[str, dict[str, Any]]:
        """Settings of each table, how many keys and decisions it has, and its version, by name.

        Raises:
            MemconError: why the owner answers nothing.
        """
        await self._run.renewed()
        self._run.check_answers()
        core = self._core
        return {
            table: {"settings": codec.encode(core.settings(table)), **core.counts(table), **core.totals(table)}
            for table in core.tables()
        }

    async def served(self, table: str | None = None, key: str | None = None) -> dict[str, Any]:
        """All tables as they are now, or one, every event in them durable; with `key` as `PolicyShard.dump_keys`.

        Raises:
            NotFoundError: no such table.
        """
        await self._run.renewed()
        self._run.check_answers()
        # Copied at once; written out in a thread, which takes seconds for a million keys.
        state, seq = self._core.captured(table), self._commits.applied_seq
        await self._commits.settled()
        return await asyncio.to_thread(self._written_out, state, seq, key)

    # --- end ---------------------------------------------------------------------------------------------------------

    async def export(self, directory: Path | None = None) -> Path:
        """Write the served tables into the policy folder (default: the journal's); atomic."""
        path = export_path(directory or self._directory, self.shard)
        await asyncio.to_thread(write_export, path, await self.served())
        return path

    async def close(self) -> None:
        """Make all durable, write a last snapshot and close the journal; may be called twice."""
        if self._expiry is not None:
            self._expiry.stop()
        await self._commits.drain(self._closed())
        if self.fault is None:
            await self._snapshots.finish(self._commits.last_seq, self._journal.head)
        self.release()

    def release(self) -> None:
        """Free the journal at once; for an owner that has answered nothing yet, or whose last commit is done."""
        self._commits.close(self._closed())
        self._snapshots.release()
        self._lease.stop()
        self._journal.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _closed(self) -> StorageError:
        return StorageError(f"{self._journal.path} is closed; open the policy again")

    def _check_at_once(self) -> None:
        if not self.decides_at_once:
            waiting = f"{self._commits.pending} events wait for the disk"
            raise UnavailableError(f"shard {self.shard} cannot decide at once: {waiting}; ask again")

    def _decide_each(self, requests: Sequence[DecideRequest]) -> list[DecideReply | MemconError]:
        return self._counted(self._run.apply_each(self._core.decide_each, requests))

    def _counted(self, handled: Handled[T]) -> T:
        # One that takes an earlier one back has an event more.
        self._counts.decisions += sum([type(event) is Decided for event in handled.events])
        return handled.reply

    async def _until_decides(self) -> None:
        await self._run.renewed()
        if self._commits.congested:
            await self._commits.settled()

    async def _decided(self) -> None:
        if self.options.durable_decides:
            # A refusal, too, may rest on an event that is not durable yet.
            await self._commits.settled()
        else:
            self._commits.flush_later()

    def _lose(self, newer: int) -> None:
        """Another owner has claimed the shard. Called in the lease's thread."""
        self._commits.fail_from_thread(
            MovedError(
                f"shard {self.shard} was claimed by another process under epoch {newer}, after epoch {self.epoch} of "
                "this owner, which stops; read the shard map again"
            )
        )

    def _begin_expiry(self) -> Expiry | None:
        if self.options.expire_after_s is None:
            return None
        expiry = Expiry(self.options.expire_after_s, self._clock, self._expire)
        for table in self._core.tables():
            for decision_id in self._core.open_ids(table):
                expiry.opened(table, decision_id)
        self._run.follow = expiry.follow
        expiry.start()
        return expiry

    def _expire(self, table: str, decision_id: str) -> None:
        if self._expiry is None or self.fault is not None:
            return
        self._counts.expired += self._run.apply(
            self._core.expire, table, decision_id, self.options.default_reward
        ).reply
        self._commits.flush_later()

    def _written_out(self, state: dict[str, Any], last_seq: int, key: str | None) -> dict[str, Any]:
        core = unsigned_shard(self.shard, self.num_shards)
        core.load(state)
        return served_tables(core, self.shard, self.num_shards, last_seq, key=key)
