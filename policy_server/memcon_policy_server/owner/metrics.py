"""What an owner counts. Plain numbers: the listener gives them the form of its metrics page."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["COMMIT_BOUNDS_S", "Counts", "Histogram", "OwnerMetrics"]

# A commit is 0.1 ms on an idle virtual disk and 1-3 ms under load; a real disk syncs in about 10.
COMMIT_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(slots=True, kw_only=True)
class Histogram:
    """Counts of values at or below each bound; the last count is of those above all bounds."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def copy(self) -> Histogram:
        """The same counts, which no later value changes."""
        return Histogram(bounds=self.bounds, counts=list(self.counts), total=self.total)


@dataclass(slots=True, kw_only=True)
class Counts:
    """What an owner did since it started."""

    # Decisions taken; one that was asked for again is not counted again.
    decisions: int = 0
    # By status: credited, recovered, late, duplicate, not_applied.
    outcomes: dict[str, int] = field(default_factory=dict)
    # Requests of any kind that contradicted what is recorded, or passed a limit.
    conflicts: int = 0
    cancelled: int = 0
    expired: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerMetrics:
    """One owner as it is now. Counters begin at 0 with the process."""

    shard: int
    epoch: int
    # 1 while it answers, 0 after a fault or without its lease.
    up: int
    # Counters.
    decisions: int
    outcomes: Mapping[str, int]
    conflicts: int
    cancelled: int
    expired: int
    # Transactions and events that became durable.
    commits: int
    events: int
    snapshots: int
    snapshot_failures: int
    # Seconds from giving a batch to the writer until it was durable.
    commit_seconds: Histogram
    # Gauges.
    tables: int
    keys: int
    open_decisions: int
    # Events in memory that are not durable yet, and the last one that is.
    pending: int
    last_seq: int
    # Last event of the last snapshot, and the age of its file; -1 = this process has written none yet.
    snapshot_seq: int
    snapshot_age_s: float
    lease_age_s: float
