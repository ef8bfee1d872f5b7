"""Where the owner of each shard is now. Standard library only: the client uses it too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["ShardAddress", "ShardMap", "ShardMapSource"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardAddress:
    """One owner: its listener's base URL, and the epoch under which it claimed the shard."""

    url: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMap:
    """The owners in order of shard. Their number is fixed for the life of a policy folder."""

    shards: tuple[ShardAddress, ...]

    def __len__(self) -> int:
        return len(self.shards)


# Gives the map as it is now; raises UnavailableError when it cannot tell.
ShardMapSource: TypeAlias = Callable[[], Awaitable[ShardMap]]
