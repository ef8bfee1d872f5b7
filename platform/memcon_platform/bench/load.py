"""What a load is and what came of it. How it is made is `generator`'s."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from memcon import checks
from memcon_platform.bench.dialects import Dialect

__all__ = ["GRACE_S", "KINDS", "Load", "LoadReport", "Target", "error_of", "first_request", "report_of"]

# What one job is: a decide; a decide and then its outcome on the same connection; a batch of decides.
KINDS = ("decide", "pair", "batch")
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
# After the last job has begun: who has not answered by then counts as unanswered.
GRACE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One listener; connections are dealt to the targets by turns."""

    host: str
    port: int
    dialect: Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to send where."""

    targets: tuple[Target, ...]
    kind: str
    connections: int
    # Measured, after `warmup_s` that are not.
    seconds: float
    warmup_s: float
    # Jobs a second of an open loop; None = closed loop.
    rate: float | None = None
    batch_size: int = 64
    # Decisions are numbered from here: two loads on one table must not share an id.
    first: int = 0

    def __post_init__(self) -> None:
        checks.choice("kind", self.kind, KINDS)
        checks.in_range("connections", self.connections, 1, 4096)
        checks.in_range("seconds", self.seconds, 0.01, 3600)
        checks.in_range("warmup_s", self.warmup_s, 0.0, 3600)
        checks.in_range("batch_size", self.batch_size, 1, 4096)
        if self.rate is not None:
            checks.in_range("rate", self.rate, 0.1, 1e6)

    @property
    def decisions_a_job(self) -> int:
        """How many decisions one job asks for."""
        return self.batch_size if self.kind == "batch" else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What came back within the measured seconds."""

    jobs: int
    # Jobs, and decisions: a batch of 64 is one job.
    jobs_per_s: float
    decisions_per_s: float
    # Milliseconds by percentile: 50, 90, 99, 99.9; NaN when no job ended well.
    latency_ms: Mapping[float, float]
    # Kind, such as "status 503" or "closed" -> how many, warm-up included.
    errors: Mapping[str, int]
    # Share of a core that the generator itself took: near 1 it measured itself.
    busy: float
    # Open loop: 99th percentile of how much later than meant a job began at a free connection; None in a closed loop.
    late_ms: float | None
    # Share of a core by process of the bench, the server's included where it started it; empty without psutil.
    cpu: Mapping[str, float] = field(default_factory=dict)


def first_request(load: Load, target: Target, number: int) -> bytes:
    """What job `number` begins with."""
    if load.kind == "batch":
        return target.dialect.batch(number, load.batch_size)
    return target.dialect.decide(number)


def error_of(load: Load, dialect: Dialect, number: int, status: int, body: bytes) -> str | None:
    """What is wrong with an answer in job `number`; None = all that was asked was done."""
    if status != 200:
        return f"status {status}"
    is_good = dialect.is_whole(body, number, load.batch_size) if load.kind == "batch" else dialect.is_good(body)
    return None if is_good else "refused item"


def report_of(
    load: Load,
    *,
    latencies: array[float],
    errors: Mapping[str, int],
    busy: float,
    late: array[float] | None = None,
) -> LoadReport:
    """The report on jobs that took `latencies`, of an open loop with how late they began; both in seconds."""
    jobs = len(latencies)
    return LoadReport(
        jobs=jobs,
        jobs_per_s=jobs / load.seconds,
        decisions_per_s=jobs * load.decisions_a_job / load.seconds,
        latency_ms={of: 1000 * _percentile(latencies, of) for of in PERCENTILES},
        errors=dict(sorted(errors.items())),
        busy=busy,
        late_ms=None if late is None else 1000 * _percentile(late, 99.0),
    )


def _percentile(values: array[float], of: float) -> float:
    return float(np.percentile(np.asarray(values), of)) if values else float("nan")
