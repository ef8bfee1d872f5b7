"""A report as rows, cells and sections of them; what they measure is in `memcon_platform.report.measures`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from memcon_platform.report.grouping import LEARNED, NO_MEMORY
from memcon_platform.report.measures import (
    ContextLevel,
    CurvePoint,
    DecisionSummary,
    Gains,
    Headroom,
    HeatMap,
    PairedDifference,
    Success,
    Tokens,
    Yardstick,
)

__all__ = [
    "STREAMS",
    "CellResult",
    "GroupResult",
    "ReportData",
    "Section",
    "shape_of",
    "shared_parameters",
    "short_labels",
    "short_memories",
    "without_shape",
]

_LONGEST_TITLE = 40
# As `memcon_platform.report.grouping` names the shape of a row's streams.
STREAMS = re.compile(r", \d+ streams")


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
    # Distinct ids that the model's provider reported (HX-3), in order of first use.
    model_ids: tuple[str, ...] = ()
    # Why tasks could not be evaluated -> how many of them.
    reasons: Mapping[str, int] = field(default_factory=dict)


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
    # What counts as one repetition: (seed, stream)s of the plan, those that share a learned table taken as one.
    num_tables: int
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
    # How a row departs from the paper's protocol (`memcon_platform.report.protocol`); and where that comes from, in
    # phrases that begin with their tag.
    tags: tuple[str, ...]
    origins: tuple[str, ...]
    # Success by family, the benchmark that made a task; one where the benchmark is no mix.
    by_family: Mapping[str, Success]
    # Success in each pass over the task list, where a stream makes several.
    by_section: Mapping[int, Success]
    # For learned rows only.
    missing_yardsticks: tuple[str, ...] = ()
    gains: Gains | None = None
    contexts: tuple[ContextLevel, ...] = ()
    heat_map: HeatMap | None = None

    @property
    def arena(self) -> tuple[str, str, str]:
        """Labels of benchmark, framework and backbone: rows that share them may be compared."""
        return self.labels["benchmark"], self.labels["framework"], self.labels["backbone"]


def short_labels(labels: Iterable[str]) -> dict[str, str]:
    """Labels of benchmarks as titles: a long one, such as that of a mix, as its first word where no other shares it."""
    known = list(dict.fromkeys(labels))
    first = {label: label.partition(" ")[0] if len(label) > _LONGEST_TITLE else label for label in known}
    return {label: name if list(first.values()).count(name) == 1 else label for label, name in first.items()}


def shared_parameters(labels: Collection[str]) -> tuple[str, ...]:
    """Parameters that all of several labels have, such as "preload.frozen=true"."""
    parts = [label.split(" ")[1:] for label in labels]
    return tuple(part for part in parts[0] if all(part in other for other in parts[1:])) if len(parts) > 1 else ()


def short_memories(labels: Iterable[str]) -> dict[str, str]:
    """Labels of memories without the parameters that all share, and without the paths of the others where ends do."""
    known = {label: label.split(" ") for label in dict.fromkeys(labels)}
    shared = shared_parameters(known)
    paths = {part.partition("=")[0] for parts in known.values() for part in parts[1:]}
    ends = Counter(path.rpartition(".")[2] for path in paths)

    def short(part: str) -> str:
        path, _, value = part.partition("=")
        end = path.rpartition(".")[2]
        return f"{end}={value}" if value and ends[end] == 1 else part

    found = {
        label: " ".join([parts[0], *(short(part) for part in parts[1:] if part not in shared)])
        for label, parts in known.items()
    }
    return found if len(set(found.values())) == len(found) else {label: label for label in found}


def shape_of(names: Iterable[str]) -> str:
    """The number of streams that rows of `names` share, such as "8 streams"; "" where they differ or have one."""
    shapes = {(STREAMS.search(name) or [""])[0] for name in names}
    return shapes.pop().removeprefix(", ") if len(shapes) == 1 else ""


def without_shape(name: str, shape: str) -> str:
    """A row's name without `shape`, which all rows share."""
    return name.replace(f", {shape}", "", 1) if shape else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Rows that may be compared, in the order of `ReportData.groups`."""

    # Benchmark; with framework and backbone where several of them ran on it.
    title: str
    benchmark: str
    framework: str
    backbone: str
    groups: tuple[GroupResult, ...]
    headrooms: tuple[Headroom, ...]

    @property
    def learned(self) -> tuple[GroupResult, ...]:
        """Rows whose policy learns."""
        return tuple(group for group in self.groups if group.role == LEARNED)

    @property
    def provenance(self) -> str:
        """Where the tasks come from, "no" before any ran."""
        return ", ".join(sorted({group.provenance for group in self.groups if group.provenance})) or "no"

    @property
    def memories(self) -> tuple[str, ...]:
        """Labels of the memories beside no memory."""
        return tuple(dict.fromkeys(group.labels["memory"] for group in self.groups if group.role != NO_MEMORY))

    @property
    def shape(self) -> str:
        """The number of streams where all rows have the same, such as "8 streams"; "" where they differ or have one."""
        return shape_of(group.name for group in self.groups)

    def name(self, group: GroupResult) -> str:
        """The row's name, with its memory where there are several."""
        memory = f"{self.memory(group)} " if len(self.memories) > 1 and group.role != NO_MEMORY else ""
        return self.short(f"{memory}{group.name}")

    def memory(self, group: GroupResult) -> str:
        """The row's memory in as many words as tell it from the other ones."""
        return self.memory_names.get(group.labels["memory"], group.labels["memory"])

    @property
    def memory_names(self) -> dict[str, str]:
        """Label of each memory beside no memory, in short."""
        return short_memories(self.memories)

    def short(self, name: str) -> str:
        """A row's name without the number of streams that all rows have."""
        return without_shape(name, self.shape)


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
    # What the numbers can be no evidence of, to be read before any; then what else a reader must know. Sentences.
    disclosures: tuple[str, ...]
    notes: tuple[str, ...]
    # In the order of the groups.
    headrooms: tuple[Headroom, ...] = ()

    @property
    def model_ids(self) -> dict[str, tuple[str, ...]]:
        """Backbone label -> distinct ids that its provider reported; without backbones that reported none."""
        found: dict[str, dict[str, None]] = {}
        for cell in self.cells:
            if cell.model_ids:
                found.setdefault(cell.labels["backbone"], {}).update(dict.fromkeys(cell.model_ids))
        return {label: tuple(known) for label, known in found.items()}

    @property
    def sections(self) -> tuple[Section, ...]:
        """The groups by what may be compared."""
        arenas: dict[tuple[str, str, str], list[GroupResult]] = {}
        for group in self.groups:
            arenas.setdefault(group.arena, []).append(group)
        alone = Counter(benchmark for benchmark, _, _ in arenas)
        short = short_labels(alone)
        return tuple(
            Section(
                title=short[arena[0]] if alone[arena[0]] == 1 else ", ".join((short[arena[0]], *arena[1:])),
                benchmark=arena[0],
                framework=arena[1],
                backbone=arena[2],
                groups=tuple(groups),
                headrooms=tuple(found for found in self.headrooms if found.arena == arena),
            )
            for arena, groups in arenas.items()
        )
