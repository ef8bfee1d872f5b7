"""Loads by turns, and what came of them: medians over rounds, ratios within a round.

Whatever slows the machine down for a while slows both sides of a round, so a ratio is taken inside each round and the
median of these is reported, with the smallest and the largest beside it.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Protocol

from memcon import checks
from memcon.errors import UnavailableError
from memcon_platform.bench.load import Load, LoadReport, Target

__all__ = [
    "Figure",
    "Figures",
    "Numbers",
    "Pace",
    "Runner",
    "Shape",
    "Side",
    "figures_of",
    "play",
    "ratio_of",
    "remarks_of",
]

# A load takes fewer numbers than this, so that no two loads of a bench share a decision's id.
_NUMBERS = 1 << 34


class Runner(Protocol):
    """Runs one load: `LoadProcess` does."""

    def run(self, load: Load) -> LoadReport:
        """Send it and count what comes back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One server under load, and the name that its figures begin with."""

    name: str
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is asked of every side; fields as in `Load`."""

    kind: str
    connections: int
    rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long to measure."""

    rounds: int = 7
    seconds: float = 2.0
    warmup_s: float = 0.3

    def __post_init__(self) -> None:
        checks.in_range("rounds", self.rounds, 1, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number with its unit."""

    value: float
    unit: str


@dataclass(slots=True)
class Figures:
    """What a bench found."""

    # Of one thing, such as microseconds a decision in process.
    single: dict[str, Figure] = field(default_factory=dict)
    # Load -> what it gave: "per_s", "p99_ms", "errors", ...
    loads: dict[str, dict[str, Figure]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    # Ratio -> the smallest and the largest of its rounds.
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)
    # Sentences on what was left out or went wrong.
    remarks: list[str] = field(default_factory=list)

    def by_name(self) -> dict[str, Figure]:
        """All figures: `<load>_<figure>` of a load, `<ratio>_low` and `<ratio>_high` of a ratio."""
        found = dict(self.single)
        for load, figures in self.loads.items():
            found |= {f"{load}_{name}": figure for name, figure in figures.items()}
        for ratio, (low, high) in self.spread.items():
            found |= {f"{ratio}_low": Figure(value=low, unit="x"), f"{ratio}_high": Figure(value=high, unit="x")}
        return found


class Numbers:
    """Where each load begins to number its decisions; another place in every process, since ids are remembered."""

    def __init__(self) -> None:
        start = secrets.randbits(28) << 35
        self._firsts: Iterator[int] = count(start, _NUMBERS)

    def next(self) -> int:
        """The first number of a load."""
        return next(self._firsts) % (1 << 63)


def play(
    sides: Sequence[Side], shape: Shape, runner: Runner, *, pace: Pace, numbers: Numbers
) -> dict[str, list[LoadReport]]:
    """Put every side under the same load, by turns and in turned order, and give each side's reports by round.

    A round in which a side ended no job is a report like others, with 0 jobs.

    Raises:
        UnavailableError: a side ended no job well in any round; names the errors that it gave.
    """
    reports: dict[str, list[LoadReport]] = {side.name: [] for side in sides}
    for turn in range(pace.rounds):
        for side in sides if turn % 2 == 0 else reversed(sides):
            load = Load(
                targets=side.targets,
                kind=shape.kind,
                connections=shape.connections,
                rate=shape.rate,
                seconds=pace.seconds,
                warmup_s=pace.warmup_s,
                first=numbers.next(),
            )
            reports[side.name].append(runner.run(load))
    for name, rounds in reports.items():
        if not any(report.jobs for report in rounds):
            raise UnavailableError(
                f"{name}: no {shape.kind} of {shape.connections} connections ended well ({_told(rounds[-1])}); "
                "see the server's log"
            )
    return reports


def figures_of(reports: Sequence[LoadReport], unit: str) -> dict[str, Figure]:
    """Medians over the rounds of one load: rate, percentiles, who took the cores; and the sum of its errors.

    A round without a job counts as a rate of 0, and has no percentiles.
    """

    def _median(values: Iterable[float], unit: str, digits: int) -> Figure:
        return Figure(value=round(median(values), digits), unit=unit)

    figures = {"per_s": _median((one.jobs_per_s for one in reports), unit, 1)}
    for percentile in reports[0].latency_ms:
        # "p999" would read as a percentile of its own.
        name = f"p{percentile:g}_ms".replace(".", "_")
        figures[name] = _median((one.latency_ms[percentile] for one in reports if one.jobs), "ms", 3)
    late = [one.late_ms for one in reports if one.late_ms is not None and math.isfinite(one.late_ms)]
    if late:
        figures["generator_late_p99_ms"] = _median(late, "ms", 3)
    figures["generator_busy"] = _median((one.busy for one in reports), "cores", 2)
    for process in sorted({process for one in reports for process in one.cpu}):
        figures[f"cpu {process}"] = _median((one.cpu.get(process, 0.0) for one in reports), "cores", 2)
    figures["errors"] = Figure(value=sum(sum(one.errors.values()) for one in reports), unit="requests")
    return figures


def ratio_of(ours: Sequence[LoadReport], peers: Sequence[LoadReport]) -> tuple[float, tuple[float, float]]:
    """Median, and the smallest and the largest, of the rounds' ratios of rates; above 1 we are faster.

    A round in which the peer ended no job has no ratio; it has such rounds not only (`play`).
    """
    ratios = [one.jobs_per_s / other.jobs_per_s for one, other in zip(ours, peers, strict=True) if other.jobs]
    return round(median(ratios), 3), (round(min(ratios), 2), round(max(ratios), 2))


def remarks_of(reports: Mapping[str, Sequence[LoadReport]]) -> list[str]:
    """A sentence for each side that answered something with an error, and one for each round without a job."""
    errors = [
        f"{name}: {told}"
        for name, rounds in reports.items()
        if (told := ", ".join(_told(one) for one in rounds if one.errors))
    ]
    return errors + [
        f"{name}: no job ended in round {number} of {len(rounds)}; it counts as 0"
        for name, rounds in reports.items()
        for number, one in enumerate(rounds, start=1)
        if not one.jobs
    ]


def _told(report: LoadReport) -> str:
    return ", ".join(f"{count} x {kind}" for kind, count in report.errors.items()) or "no error, no answer"
