"""Where the owners of a policy folder listen, as they say it themselves in files beside their journals.

Serve says it too, but a second later (measured), and of no owner while one of them is being replaced. A file may name
an owner that has died: whoever asks there finds nobody, or one that refuses a shard not its own, and looks again.
"""

from __future__ import annotations

import fcntl
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from memcon import codec
from memcon.errors import StorageError, UnavailableError
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.shard_map import ShardAddress, ShardMap
from memcon_policy_server.sharding import address_path, journal_path

__all__ = ["FolderShardMap", "publish_address"]


def publish_address(directory: Path, shard: int, num_shards: int, address: ShardAddress) -> None:
    """Say where the owner of `shard` listens, unless a later one has claimed it meanwhile; for one that answers.

    Raises:
        MemconError: the folder cannot be written, or its journal cannot be read.
    """
    path = address_path(directory, shard)
    journal = SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards, read_only=True)
    try:
        # Looked at inside the lock: of two owners that start at once the later one's word stays, whoever comes last.
        with closing(journal), path.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if journal.current_epoch() == address.epoch:
                file.truncate(0)
                file.write(codec.encode_json(address))
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}; check permissions and space") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderShardMap:
    """The shard map of the policy folder `directory`, for processes of its own machine."""

    directory: Path
    num_shards: int

    async def __call__(self) -> ShardMap:
        """The map as the owners said it last.

        Raises:
            UnavailableError: an owner has said nothing yet.
        """
        return ShardMap(shards=tuple([self._read(shard) for shard in range(self.num_shards)]))

    def _read(self, shard: int) -> ShardAddress:
        path = address_path(self.directory, shard)
        try:
            with path.open(encoding="utf-8") as file:
                # Never waits, in an event loop, for an owner that was stopped while it wrote: the asker tries again.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return codec.decode_json(ShardAddress, file.read())
        except (OSError, codec.CodecError) as error:
            # An owner may have died while it wrote; the next one writes it anew.
            raise UnavailableError(f"{path} says of no owner of shard {shard} where it listens: {error}") from error
