"""What a report says, as values. Rates and shares are 0..1; a value is None where nothing could be counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memcon_platform.report.grouping import NO_MEMORY
from memcon_platform.report.statistics import Interval

__all__ = [
    "ArmShare",
    "CellResult",
    "CurvePoint",
    "DecisionSummary",
    "GroupResult",
    "PairedDifference",
    "ReportData",
    "Section",
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
    # None without tasks.
    interval: Interval | None = None

    @property
    def rate(self) -> float | None:
        """Successes per evaluated task."""
        return self.successes / self.num_tasks if self.num_tasks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """Mean difference of success on the same (seed, stream, task), pooled over streams, with two 95 % intervals.

    The mean is one, the questions are two (coverage of both: `memcon_platform.report.statistics`).
    """

    mean: float
    # For these seeds: how sure the difference is for the streams as they ran, had they met other tasks of the kind.
    interval_these_seeds: Interval
    # For other seeds too: what to expect of streams and tasks that were not run.
    interval: Interval
    num_pairs: int
    # (seed, stream)s that have pairs; with one, both intervals are the same, that of these seeds.
    num_streams: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """What a learned policy is measured against; reported, not arranged."""

    # "best static arm" ("only static arm" where one ran), "random arm" or "no memory".
    kind: str
    name: str
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
    # What tells it from the other rows of its memory: policy, shape of its streams, differing settings.
    name: str
    # `name` with the memory in front of it.
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
    def arena(self) -> tuple[str, str, str]:
        """Labels of benchmark, framework and backbone: rows that share them may be compared."""
        return self.labels["benchmark"], self.labels["framework"], self.labels["backbone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Rows that may be compared, in the order of `ReportData.groups`."""

    # Benchmark; with framework and backbone where several of them ran on it.
    title: str
    benchmark: str
    framework: str
    backbone: str
    groups: tuple[GroupResult, ...]

    @property
    def provenance(self) -> str:
        """Where the tasks come from, "no" before any ran."""
        return ", ".join(sorted({group.provenance for group in self.groups if group.provenance})) or "no"

    @property
    def memories(self) -> tuple[str, ...]:
        """Labels of the memories beside no memory."""
        return tuple(dict.fromkeys(group.labels["memory"] for group in self.groups if group.role != NO_MEMORY))

    def name(self, group: GroupResult) -> str:
        """The row's name, with its memory where there are several."""
        return group.label if len(self.memories) > 1 else group.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """The whole report."""

    run: str
    created_at: str
    # From plan.json: versions, platform, commit.
    provenance: Mapping[str, Any]
    # Benchmark by benchmark: no memory, then each memory with static arms, random arm, learned.
    groups: tuple[GroupResult, ...]
    # In order of the plan.
    cells: tuple[CellResult, ...]
    # Backbone label -> its resolved settings, each as it differs between cells.
    backbones: Mapping[str, tuple[Mapping[str, Any], ...]]
    # Bootstrap resamples and confidence level of every interval.
    resamples: int
    level: float
    # Sentences that a reader must know.
    notes: tuple[str, ...]

    @property
    def sections(self) -> tuple[Section, ...]:
        """The groups by what may be compared."""
        arenas: dict[tuple[str, str, str], list[GroupResult]] = {}
        for group in self.groups:
            arenas.setdefault(group.arena, []).append(group)
        alone = Counter(benchmark for benchmark, _, _ in arenas)
        return tuple(
            Section(
                title=arena[0] if alone[arena[0]] == 1 else ", ".join(arena),
                benchmark=arena[0],
                framework=arena[1],
                backbone=arena[2],
                groups=tuple(groups),
            )
            for arena, groups in arenas.items()
        )
