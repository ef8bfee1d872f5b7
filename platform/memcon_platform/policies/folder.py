"""A policy folder, of a run or of `memcon serve`: its tables are folded for reading, and changed through its owners."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from memcon.errors import LockedError, UnknownNameError
from memcon.learning.shard import PolicyShard
from memcon.policy_types import LearningSettings, TableImport
from memcon_platform.config.plan_file import has_plan
from memcon_platform.policies.record import TableRecord, TableSummary, record_of_dump, summary_of
from memcon_platform.sweep.run_folder import refuse_driven
from memcon_policy_server.journal.fold import fold, load_snapshot, unsigned_shard
from memcon_policy_server.journal.folder_lock import folding
from memcon_policy_server.journal.live_owner import live_owner
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.owner.shard_owner import ShardOwner
from memcon_policy_server.serving.pages import merged_tables
from memcon_policy_server.sharding import journal_path, shards_in
from memcon_policy_server.wire import MovedError

__all__ = ["PolicyFolder"]

T = TypeVar("T")

# Events between two words about a long fold.
_TELL_EVERY = 20_000


class PolicyFolder:
    """The tables whose journals lie in `directory`. Reading writes nothing, and may go on beside live owners.

    Raises:
        NotFoundError: no journal lies there.
    """

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self.name = str(directory)
        self._directory, self._say = directory, say
        self._num_shards = shards_in(directory)
        # Folded at the first question.
        self._folded: list[PolicyShard] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def tables(self) -> list[str]:
        """Names of the tables, sorted.

        Raises:
            MemconError: a journal is damaged or of another version.
        """
        return sorted({table for core in self._cores() for table in core.tables()})

    def summaries(self) -> list[TableSummary]:
        """What a list says of each table, by name.

        Raises:
            MemconError: as `tables`.
        """
        return [self.summary(table) for table in self.tables()]

    def summary(self, table: str) -> TableSummary:
        """What a list says of one table.

        Raises:
            UnknownNameError: there is none of that name.
            MemconError: as `tables`.
        """
        cores = self._cores_with(table)
        sizes = [core.counts(table) | core.totals(table) for core in cores]
        together = {name: sum(size[name] for size in sizes) for name in sizes[0]}
        return summary_of(table, cores[0].settings(table), together)

    def table(self, table: str, key: str | None = None) -> TableRecord:
        """One table whole, or at the key `key` or all that hold it, with the coarser keys of each.

        Raises:
            UnknownNameError: there is none of that name.
            MemconError: as `tables`.
        """
        dumps = [core.dump(table) if key is None else core.dump_keys(table, key) for core in self._cores_with(table)]
        merged = merged_tables([{"tables": {table: dump}} for dump in dumps])
        return record_of_dump(merged["tables"][table], self.summary(table), where=self.name)

    def every_table(self) -> Iterator[TableRecord]:
        """All tables whole, one after the other, by name.

        Raises:
            MemconError: as `tables`.
        """
        return map(self.table, self.tables())

    def settings(self, table: str) -> LearningSettings | None:
        """The settings of `table`; None = there is none of that name."""
        return next((core.settings(table) for core in self._cores() if table in core.tables()), None)

    def create(self, settings: LearningSettings, request: TableImport) -> None:
        """Open the table of `request` with `settings`, or find it so, and fill it; safe to repeat.

        Raises:
            LockedError: the folder has live owners, or its run is being driven.
            ConflictError: the table has decisions, other settings, or another start.
        """
        self._by_owners(
            lambda owner: owner.open_table(request.table, settings), lambda owner: owner.import_table(request)
        )

    def freeze(self, table: str, *, frozen: bool) -> bool:
        """Let the table learn nothing from now on, or learn again; True if that is a change.

        Raises:
            UnknownNameError: there is none of that name.
            LockedError: as `create`.
        """
        self._cores_with(table)
        return any(self._by_owners(lambda owner: owner.freeze_table(table, frozen)))

    # --- reading -----------------------------------------------------------------------------------------------------

    def _cores(self) -> list[PolicyShard]:
        if not self._folded:
            self._folded = [self._fold(shard) for shard in range(self._num_shards)]
        return self._folded

    def _cores_with(self, table: str) -> list[PolicyShard]:
        found = [core for core in self._cores() if table in core.tables()]
        if not found:
            raise UnknownNameError(f"table in {self.name}", table, self.tables())
        return found

    def _fold(self, shard: int) -> PolicyShard:
        path = journal_path(self._directory, shard)
        core = unsigned_shard(shard, self._num_shards)
        journal = SqliteJournal(path, shard=shard, num_shards=self._num_shards, read_only=True)
        with closing(journal), folding(self._directory):
            began, end = load_snapshot(journal, core), journal.end()
            for row, _ in fold(journal, core, after=began):
                if row.seq % _TELL_EVERY == 0:
                    self._say(f"{path.name}: event {row.seq} of {end}")
        return core

    # --- changing ----------------------------------------------------------------------------------------------------

    def _by_owners(self, *commands: Callable[[ShardOwner], Awaitable[T]]) -> list[T]:
        """Run each command at all shards, one command after the other; what the last one gave, by shard.

        Raises:
            LockedError: somebody else owns a shard now, or does so before the end.
        """
        self._refuse_live()
        try:
            return asyncio.run(self._owned(commands))
        except MovedError as error:
            raise LockedError(
                f"{self.name} got another owner meanwhile, and what was not done yet is left undone: run the same "
                f"command again, with that server's URL in place of the folder ({error})"
            ) from error
        finally:
            self._folded = []

    async def _owned(self, commands: tuple[Callable[[ShardOwner], Awaitable[T]], ...]) -> list[T]:
        owners: list[ShardOwner] = []
        try:
            for shard in range(self._num_shards):
                self._say(f"claiming {journal_path(self._directory, shard)}")
                owners.append(ShardOwner(self._directory, shard=shard, num_shards=self._num_shards))
            replies: list[T] = []
            for command in commands:
                replies = [await command(owner) for owner in owners]
            # `memcon replay verify` holds the journals against what was served last.
            for owner in owners:
                await owner.export()
        finally:
            for owner in owners:
                await owner.close()
        return replies

    def _refuse_live(self) -> None:
        run_dir = self._directory.parent
        if self._directory.name == "policy" and has_plan(run_dir):
            refuse_driven(run_dir)
        for shard in range(self._num_shards):
            path = journal_path(self._directory, shard)
            owner = live_owner(path)
            if owner is not None:
                raise LockedError(
                    f"{path} is owned by process {owner}, which is alive: give the URL of its `memcon serve` in place "
                    "of the folder, or end it first"
                )
