"""The values that a policy's callers and its owner exchange. Frozen but for replies; JSON by `memcon.codec`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "CancelRequest",
    "DecideReply",
    "DecideRequest",
    "LearningSettings",
    "OutcomeReply",
    "OutcomeRequest",
    "TableImport",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """All that decides what a table does with its events; journaled once a table, as JSON."""

    # Learning rule and its own parameters: {"name": "ucb", "c": 1.4}, {"name": "fixed", "action_id": ...}, ...
    rule: str
    rule_parameters: Mapping[str, float | str] = field(default_factory=dict)
    # Arm ids in arm order, their priors (Table 6; all 0 when warm_start is off), and the set's fingerprint (MC-13).
    action_ids: tuple[str, ...]
    priors: tuple[float, ...]
    action_set: str
    fingerprint: str
    # "ema" (Eq. 7), "mean" (Eq. 16, MC-32), or "capped_mean": the mean whose count stops at `count_cap`.
    estimator: str = "ema"
    count_cap: int | None = None
    alpha: float = 0.15
    gamma: float = 0.9
    # Name and version of the state key, such as "paper/1", and the coarser keys that its statistics are pooled over,
    # finest first (reading A-31); the fields of each are among those of the one before. The last is the shard key.
    key_schema: str = "paper/1"
    pooling: tuple[str, ...] = ()
    # Share of decisions that are drawn uniformly from the allowed arms.
    exploration_floor: float = 0.0
    # Nothing that happens changes the numbers: decisions and outcomes are recorded only.
    frozen: bool = False
    # How many ended decisions a shard remembers, the last ones; None = all, as a sweep needs. One that is forgotten is
    # an unknown id from then on.
    closed_kept: int | None = None
    schema_version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableImport:
    """The numbers of another table that a new one starts from."""

    table: str
    # Where they come from, for people: run, cell, table, fingerprint and cap.
    source: str
    # Key text -> arm id -> {"q": float.hex, "taken": int, "credited": int, "squares": float.hex}: the form of
    # `memcon.learning.q_table.QTable.dump`.
    numbers: Mapping[str, Mapping[str, Mapping[str, str | int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideRequest:
    """One decision to take (architecture: "decide is one atomic step")."""

    table: str
    decision_id: str
    episode_id: str
    position: int
    # Pooling chain of key texts, finest first; one long under the paper's rule. The last is the shard key.
    keys: tuple[str, ...]
    # 64-bit hash of the decision's place: every draw of the policy comes from it.
    draw: int
    # Arm ids that may be chosen, in arm order; None = all.
    allowed: tuple[str, ...] | None = None
    # Ask for the per-arm values.
    explain: bool = False


# Neither frozen nor keyword-only, as `OutcomeReply`: of this many fields that is another microsecond in each decide.
@dataclass(slots=True)
class DecideReply:
    """What the owner chose."""

    decision_id: str
    # Signed; carries policy, key, arm and position. Never stored in Parquet or MLflow.
    token: str
    action_id: str
    propensity: float
    tie_set: tuple[str, ...]
    forced: bool
    # Events of this table's shard so far, the shard's index, and the owner's receive number.
    table_version: int
    shard: int
    received: int
    per_arm: Mapping[str, Mapping[str, float]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRequest:
    """What an episode ended with, told for one of its decisions."""

    decision_id: str
    token: str
    # Eq. 5, before discounting.
    reward: float
    position: int
    num_decisions: int
    cost: float = 0.0


@dataclass(slots=True)
class OutcomeReply:
    """How the owner took an outcome.

    "credited": to the open decision. "recovered": its decide had died with a process, the token stood in. "late": it
    had expired. "duplicate": the same was recorded before, no effect. "not_applied": its default outcome was learned
    when it expired, so this one is only recorded.
    """

    decision_id: str
    status: str
    # The discounted return that was credited.
    credit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    """A decision to take back: nobody will tell its outcome."""

    decision_id: str
    token: str
