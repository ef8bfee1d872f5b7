"""Which shard owns a key, and where a shard's files lie. Standard library only: the client uses it too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memcon import ids
from memcon.errors import ConfigError, NotFoundError
from memcon.learning import decision_token
from memcon.policy_types import OutcomeRequest

__all__ = ["by_shard", "export_path", "journal_path", "secret_path", "shard_of_keys"]


def shard_of_keys(table: str, keys: tuple[str, ...], num_shards: int) -> int:
    """Index of the owner of a pooling chain: its coarsest key decides (architecture: "one owner a key").

    Raises:
        ConfigError: the chain is empty.
    """
    if not keys:
        raise ConfigError(f"deciding in table '{table}': keys is empty; give the pooling chain, finest key first")
    return ids.shard_of(table, keys[-1], num_shards) if num_shards > 1 else 0


def by_shard(requests: Sequence[OutcomeRequest], num_shards: int) -> dict[int, list[int]]:
    """Indices into `requests`, in order, for each shard that owns some: the tokens say which.

    A text that is no token goes to shard 0, which refuses it if it does not know the decision.
    """
    found: dict[int, list[int]] = {}
    for index, request in enumerate(requests):
        found.setdefault(_shard_of_outcome(request, num_shards), []).append(index)
    return found


def _shard_of_outcome(request: OutcomeRequest, num_shards: int) -> int:
    if num_shards == 1:
        return 0
    try:
        claims = decision_token.read(request.token)
    except NotFoundError:
        return 0
    return shard_of_keys(claims.table, claims.keys, num_shards)


def journal_path(directory: Path, shard: int) -> Path:
    """The journal of one shard inside a run's policy folder."""
    return directory / f"shard-{shard}.sqlite"


def export_path(directory: Path, shard: int) -> Path:
    """The tables of one shard as they were served, written when its owner stops."""
    return directory / "served" / f"shard-{shard}.json"


def secret_path(directory: Path) -> Path:
    """The key that signs decision tokens."""
    return directory / "secret"
