"""Identity is content: every id derives from the plan by a stable hash; no counter, no wall clock.

Nobody else builds or parses these strings.
"""

from __future__ import annotations

import hashlib
import json

__all__ = ["decision_id", "draw64", "episode_id", "shard_of", "stable_hash"]

# Made once: `json.dumps` with these options makes one a call.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _digest(parts: tuple[object, ...], size: int) -> bytes:
    return hashlib.blake2b(_ENCODER.encode(parts).encode(), digest_size=size).digest()


def stable_hash(*parts: object, size: int = 8) -> str:
    """Hex of `size` bytes over JSON-able parts: equal on every machine and Python."""
    return _digest(parts, size).hex()


def draw64(*parts: object) -> int:
    """A 64-bit unsigned integer drawn by the place that `parts` name."""
    return int.from_bytes(_digest(parts, 8), "big")


def episode_id(cell: str, stream: int, ordinal: int, epoch: int) -> str:
    """Id of one try at the task at `ordinal`; another epoch (a repeat after a death) is another episode."""
    return stable_hash("episode", cell, stream, ordinal, epoch)


def decision_id(episode: str, position: int) -> str:
    """Id of the decision at `position` (0-based) inside an episode."""
    return stable_hash("decision", episode, position)


def shard_of(table: str, shard_key: str, num_shards: int) -> int:
    """Index of the shard that owns `shard_key` of `table` (architecture: "one owner a key")."""
    return draw64("shard", table, shard_key) % num_shards
