"""What the owner accepts, checked field by field while the JSON is read.

An unknown or missing field, a wrong type, NaN or infinity never reaches a table.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from memcon import policy_types
from memcon_policy_server.wire import RejectedError

__all__ = ["CancelEpisode", "Decide", "ImportTable", "OpenTable", "Outcomes", "decode"]

NonNegative = Annotated[int, msgspec.Meta(ge=0)]


MessageT = TypeVar("MessageT", bound=msgspec.Struct)


class _Settings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    rule: str
    rule_parameters: dict[str, float | str] = {}
    action_ids: tuple[str, ...]
    priors: tuple[float, ...]
    action_set: str
    fingerprint: str
    estimator: str = "ema"
    count_cap: int | None = None
    alpha: float = 0.15
    gamma: float = 0.9
    key_schema: str = "paper/1"
    pooling: tuple[str, ...] = ()
    exploration_floor: float = 0.0
    frozen: bool = False
    schema_version: int = 1


class OpenTable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of /v1/open_table."""

    table: str
    settings: _Settings

    def learning_settings(self) -> policy_types.LearningSettings:
        """The settings as the shard takes them."""
        return policy_types.LearningSettings(**msgspec.structs.asdict(self.settings))


class _Numbers(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    # Floats as `float.hex`: their bits must arrive.
    q: str
    taken: NonNegative
    credited: NonNegative
    squares: str


class ImportTable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of /v1/import_table."""

    table: str
    source: str
    numbers: dict[str, dict[str, _Numbers]]

    def request(self) -> policy_types.TableImport:
        """The import as the shard takes it."""
        return policy_types.TableImport(
            table=self.table,
            source=self.source,
            numbers={
                key: {arm: msgspec.structs.asdict(row) for arm, row in arms.items()}
                for key, arms in self.numbers.items()
            },
        )


class Decide(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of /v1/decide."""

    table: str
    decision_id: str
    episode_id: str
    position: NonNegative
    keys: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    draw: NonNegative
    allowed: tuple[str, ...] | None = None
    explain: bool = False

    def request(self) -> policy_types.DecideRequest:
        """The request as the shard takes it."""
        return policy_types.DecideRequest(**msgspec.structs.asdict(self))


class _Outcome(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    decision_id: str
    token: str
    reward: float
    position: NonNegative
    num_decisions: NonNegative
    cost: float = 0.0


class Outcomes(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of /v1/outcomes."""

    outcomes: tuple[_Outcome, ...]

    def requests(self) -> list[policy_types.OutcomeRequest]:
        """The requests as the shard takes them."""
        return [policy_types.OutcomeRequest(**msgspec.structs.asdict(item)) for item in self.outcomes]


class CancelEpisode(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of /v1/cancel_episode."""

    table: str
    episode_id: str


def decode(kind: type[MessageT], body: bytes) -> MessageT:
    """Read one message.

    Raises:
        RejectedError: the body is no JSON or not of this form; names the field.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise RejectedError(f"body of {kind.__name__}: {error}") from error
