"""The policy in the caller's own process: the same owners over the same journal files, without a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memcon.errors import LockedError, MemconError
from memcon.policy_types import (
    CancelRequest,
    DecideReply,
    DecideRequest,
    LearningSettings,
    OutcomeReply,
    OutcomeRequest,
    TableImport,
)
from memcon_policy_server.owner.shard_owner import ShardOwner
from memcon_policy_server.sharding import by_shard, shard_of_keys, shard_of_token
from memcon_policy_server.wire import MovedError

__all__ = ["LocalClientFactory", "LocalPolicyClient"]


class LocalPolicyClient:
    """Owns all shards in `directory`; a second one on the same folder takes them over and stops this one.

    A commit that fails raises `StorageError` or `LockedError` from then on: the sweep must stop, since memory is ahead
    of the journal. `close` exports the served tables.

    Raises:
        MemconError: as `ShardOwner`.
    """

    def __init__(self, directory: Path, num_shards: int = 1) -> None:
        self._owners: list[ShardOwner] = []
        try:
            for shard in range(num_shards):
                self._owners.append(ShardOwner(directory, shard=shard, num_shards=num_shards))
        except BaseException:
            for owner in self._owners:
                owner.release()
            raise

    async def open_table(self, table: str, settings: LearningSettings) -> None:
        """Create `table`, or check that it exists with equal settings."""
        for owner in self._owners:
            with _taken_over():
                await owner.open_table(table, settings)

    async def import_table(self, request: TableImport) -> None:
        """Let the open table start from another one's numbers at every shard; safe to repeat."""
        for owner in self._owners:
            with _taken_over():
                await owner.import_table(request)

    async def decide(self, request: DecideRequest) -> DecideReply:
        """Choose and count, once a decision id."""
        with _taken_over():
            return await self._owners[shard_of_keys(request.table, request.keys, len(self._owners))].decide(request)

    async def outcomes(self, requests: Sequence[OutcomeRequest]) -> Sequence[OutcomeReply]:
        """Credit decisions; all that can be credited are, before the first error is raised."""
        replies: dict[int, OutcomeReply] = {}
        failed: MemconError | None = None
        for shard, indices in by_shard(requests, len(self._owners)).items():
            try:
                with _taken_over():
                    answers = await self._owners[shard].outcomes([requests[index] for index in indices])
            except MemconError as error:
                failed = failed or error
                continue
            for index, answer in zip(indices, answers, strict=True):
                if isinstance(answer, MemconError):
                    failed = failed or answer
                else:
                    replies[index] = answer
        if failed is not None:
            raise failed
        return [replies[index] for index in range(len(requests))]

    async def cancel(self, request: CancelRequest) -> bool:
        """Take an open decision back; True if it was open."""
        with _taken_over():
            return await self._owners[shard_of_token(request.token, len(self._owners))].cancel(request)

    async def cancel_episode(self, table: str, episode_id: str) -> int:
        """Cancel the episode's open decisions at every shard and refuse later ones; returns how many were open."""
        with _taken_over():
            return sum([await owner.cancel_episode(table, episode_id) for owner in self._owners])

    async def close(self) -> None:
        """Export the served tables and free the journals; may be called twice."""
        failed: MemconError | None = None
        for owner in self._owners:
            try:
                if owner.fault is None:
                    with _taken_over():
                        await owner.export()
            except MemconError as error:
                failed = failed or error
            finally:
                await owner.close()
        if failed is not None:
            raise failed


@contextmanager
def _taken_over() -> Iterator[None]:
    """Nobody can be sent to another owner from here: that there is one ends the sweep, and is no pause of a server."""
    try:
        yield
    except MovedError as error:
        raise LockedError(f"the policy folder has another owner, and this process stops: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClientFactory:
    """Makes the in-process client where it is used; one a run at a time."""

    directory: Path
    num_shards: int = 1

    def __call__(self) -> LocalPolicyClient:
        """A client that has claimed every shard."""
        return LocalPolicyClient(self.directory, self.num_shards)
