"""Which shard owns a key, and where a shard's files lie. Standard library only: the client uses it too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memcon import ids
from memcon.errors import ConfigError, NotFoundError
from memcon.learning import decision_token
from memcon.policy_types import OutcomeRequest

__all__ = [
    "address_path",
    "by_shard",
    "export_path",
    "journal_path",
    "secret_path",
    "shard_of_keys",
    "shard_of_token",
    "token_path",
]


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
        found.setdefault(shard_of_token(request.token, num_shards), []).append(index)
    return found


def shard_of_token(token: str, num_shards: int) -> int:
    """Index of the owner of the decision that `token` names; 0 for a text that is no token, which shard 0 refuses."""
    if num_shards == 1:
        return 0
    try:
        claims = decision_token.read(token)
    except NotFoundError:
        return 0
    return shard_of_keys(claims.table, claims.keys, num_shards)


def journal_path(directory: Path, shard: int) -> Path:
    """The journal of one shard inside a run's policy folder."""
    return directory / f"shard-{shard}.sqlite"


def shards_in(directory: Path) -> int:
    """Number of shards whose journals lie in the policy folder `directory`.

    Raises:
        NotFoundError: none does.
    """
    num_shards = len(list(directory.glob("shard-*.sqlite")))
    if num_shards == 0:
        raise NotFoundError(
            f"{directory} has no policy journal ({journal_path(directory, 0).name}); "
            "give the folder of a run or of a served policy"
        )
    return num_shards


def snapshot_path(directory: Path, shard: int) -> Path:
    """The latest snapshot of one shard's state, written by its owner."""
    return directory / f"shard-{shard}.snapshot"


def base_path(directory: Path, shard: int) -> Path:
    """The snapshot that stands for the events which were compacted away; written by the compaction only."""
    return directory / f"shard-{shard}.base"


def address_path(directory: Path, shard: int) -> Path:
    """Where the owner of one shard listens; written by it when it starts."""
    return directory / f"shard-{shard}.address"


def export_path(directory: Path, shard: int) -> Path:
    """The tables of one shard as they were served, written when its owner stops."""
    return directory / "served" / f"shard-{shard}.json"


def secret_path(directory: Path) -> Path:
    """The key that signs decision tokens."""
    return directory / "secret"


def token_path(directory: Path) -> Path:
    """The bearer token of the listeners and the gateway."""
    return directory / "token"
