"""What a report says, as values. Rates and shares are 0..1; a value is None where nothing could be counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memcon_platform.report.statistics import Interval

__all__ = [
    "ArmShare",
    "CellResult",
    "CurvePoint",
    "DecisionSummary",
    "GroupResult",
    "PairedDifference",
    "ReportData",
    "Success",
    "Tokens",
    "Yardstick",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """Success rate over evaluated tasks; unevaluable ones are outside the denominator (HX-5)."""

    num_tasks: int
    successes: int
    unevaluable: int = 0
    # Two-way bootstrap over (seed, stream) and tasks; None without tasks.
    interval: Interval | None = None

    @property
    def rate(self) -> float | None:
        """Successes per evaluated task."""
        return self.successes / self.num_tasks if self.num_tasks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """Mean difference of success on the same (seed, stream, task)."""

    mean: float
    interval: Interval
    num_pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """What a learned policy is measured against; reported, not arranged."""

    # "best static arm" ("only static arm" where one ran), "random arm" or "no memory".
    kind: str
    label: str
    rate: float | None
    # Learned minus yardstick; None when no task is in both.
    difference: PairedDifference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Success in one window of the stream."""

    # Windows are numbered from 0; share of the stream at the window's middle.
    position: float
    num_tasks: int
    rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Means per evaluated task: by purpose (HX-4) and, for what memory put into prompts, by source (MC-42)."""

    by_purpose: Mapping[str, float] = field(default_factory=dict)
    by_source: Mapping[str, float] = field(default_factory=dict)

    @property
    def injected(self) -> float:
        """Tokens that memory put into prompts, all sources."""
        return sum(self.by_source.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmShare:
    """How often an arm was chosen."""

    action_id: str
    count: int
    # Share of all decisions, and of those in each quarter of the stream.
    share: float
    by_quarter: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSummary:
    """What the policy did."""

    num_decisions: int
    per_task: float
    # Share of decisions that were forced first visits of an arm at its key.
    forced_share: float
    # Distinct state keys a table, mean over tables; and how many keys there can be (MC-10).
    keys_visited: float
    keys_possible: int
    num_tables: int
    fallbacks: int
    hook_errors: int
    # Reason -> decisions whose arm did less than it says.
    degraded: Mapping[str, int]
    arms: tuple[ArmShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """One cell of the plan."""

    cell_id: str
    # Axis -> label.
    labels: Mapping[str, str]
    # Label of the row that pools this cell over seeds.
    group: str
    seed: int
    streams: int
    # "done", "partial" or "pending".
    status: str
    planned: int
    found: int
    success: Success
    mean_score: float | None
    tokens: Tokens
    # Where the tasks come from: "official", "self-made", "" when none ran.
    provenance: str
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """Cells that differ in the seed only, pooled."""

    # Axis -> label.
    labels: Mapping[str, str]
    # What tells it from its siblings: memory, policy, shape of its streams, differing settings.
    label: str
    # "no memory", "memory's own retrieval", "static arm", "random arm" or "learned".
    role: str
    # "best static arm" where it holds (with "(tie)" for all that share the rate), "only static arm", else "".
    mark: str
    seeds: tuple[int, ...]
    num_streams: int
    exact: bool
    planned: int
    found: int
    success: Success
    mean_score: float | None
    mean_steps: float | None
    last_quarter: Success
    quarters: tuple[CurvePoint, ...]
    curve: tuple[CurvePoint, ...]
    # Against no memory on the same tasks; None for no memory itself.
    difference: PairedDifference | None
    yardsticks: tuple[Yardstick, ...]
    tokens: Tokens
    decisions: DecisionSummary | None
    by_goal_type: Mapping[str, Success]
    cell_ids: tuple[str, ...]
    provenance: str

    @property
    def benchmark(self) -> str:
        """Label of the benchmark."""
        return self.labels["benchmark"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """The whole report."""

    run: str
    created_at: str
    # From plan.json: versions, platform, commit.
    provenance: Mapping[str, Any]
    groups: tuple[GroupResult, ...]
    cells: tuple[CellResult, ...]
    # Bootstrap resamples and confidence level of every interval.
    resamples: int
    level: float
    # Sentences that a reader must know.
    notes: tuple[str, ...]

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """Benchmark labels in order of the plan."""
        return tuple(dict.fromkeys(group.benchmark for group in self.groups))

    def of(self, benchmark: str) -> tuple[GroupResult, ...]:
        """Groups of one benchmark in order of the plan."""
        return tuple(group for group in self.groups if group.benchmark == benchmark)
