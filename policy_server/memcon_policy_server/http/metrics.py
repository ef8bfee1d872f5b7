"""Metrics in Prometheus' text form.

Written by hand: `prometheus_client` would only format here what the owner has counted already, and is no dependency of
the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from memcon_policy_server.owner.metrics import Histogram, OwnerMetrics

__all__ = ["RouterCounts", "gateway_text", "owner_text", "requests_text"]

# Field of `OwnerMetrics` -> name and help.
_COUNTERS = {
    "decisions": ("memcon_decisions_total", "Decisions taken; one asked for again is not counted again."),
    "conflicts": ("memcon_conflicts_total", "Requests that contradicted what is recorded, or passed a limit."),
    "cancelled": ("memcon_cancelled_total", "Decisions taken back."),
    "expired": ("memcon_expired_total", "Decisions that ended without an outcome."),
    "commits": ("memcon_commits_total", "Transactions of the journal."),
    "events": ("memcon_events_total", "Events that became durable."),
    "snapshots": ("memcon_snapshots_total", "Snapshots written."),
    "snapshot_failures": ("memcon_snapshot_failures_total", "Snapshots that could not be written."),
}
_GAUGES = {
    "up": ("memcon_up", "1 while the owner answers, 0 after a fault or without its lease."),
    "epoch": ("memcon_epoch", "Epoch under which the owner claimed its shard."),
    "tables": ("memcon_tables", "Tables at this shard."),
    "keys": ("memcon_keys", "Keys of all tables at this shard."),
    "open_decisions": ("memcon_open_decisions", "Decisions without an outcome so far."),
    "pending": ("memcon_pending_events", "Events in memory that are not durable yet."),
    "last_seq": ("memcon_last_seq", "Number of the last durable event."),
    "snapshot_seq": ("memcon_snapshot_seq", "Last event in the last snapshot."),
    "snapshot_age_s": ("memcon_snapshot_age_seconds", "Age of the last snapshot; -1 = none of this process."),
    "lease_age_s": ("memcon_lease_age_seconds", "Age of the last look at the journal's epoch."),
}


def owner_text(metrics: OwnerMetrics) -> str:
    """What an owner counted; each sample bears its shard."""
    shard = {"shard": str(metrics.shard)}
    families = [
        _family(kind, about, [(shard, getattr(metrics, field))])
        for kind, fields in (("counter", _COUNTERS), ("gauge", _GAUGES))
        for field, about in fields.items()
    ]
    outcomes = [({**shard, "status": status}, count) for status, count in sorted(metrics.outcomes.items())]
    families.append(_family("counter", ("memcon_outcomes_total", "Outcomes taken, by status."), outcomes))
    families.append(_histogram(shard, metrics.commit_seconds))
    return "".join(families)


@dataclass(slots=True, kw_only=True)
class RouterCounts:
    """What went through a router since it started."""

    decisions: int = 0
    outcomes: int = 0


_ROUTED = {
    "decisions": ("memcon_gateway_decisions_total", "Decisions asked for through the gateway."),
    "outcomes": ("memcon_gateway_outcomes_total", "Outcomes sent through the gateway."),
}


def gateway_text(name: str, counts: RouterCounts, answered: Mapping[tuple[str, int], int]) -> str:
    """What the gateway `name` counted."""
    gateway = {"gateway": name}
    families = [_family("counter", _ROUTED[field], [(gateway, getattr(counts, field))]) for field in _ROUTED]
    return "".join(families) + requests_text(answered, gateway)


def requests_text(answered: Mapping[tuple[str, int], int], labels: Mapping[str, str]) -> str:
    """Requests answered, by path and status; each sample bears `labels` too."""
    samples = [
        ({**labels, "path": path, "status": str(status)}, count) for (path, status), count in sorted(answered.items())
    ]
    return _family("counter", ("memcon_http_requests_total", "Requests answered."), samples)


def _family(kind: str, about: tuple[str, str], samples: Iterable[tuple[Mapping[str, str], float]]) -> str:
    name, meaning = about
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    lines += [_sample(name, labels, value) for labels, value in samples]
    return "\n".join(lines) + "\n"


def _histogram(labels: Mapping[str, str], seconds: Histogram) -> str:
    name = "memcon_commit_seconds"
    lines = [
        f"# HELP {name} From giving events to the writer until they were durable.",
        f"# TYPE {name} histogram",
    ]
    bounds = [*map(_number, seconds.bounds), "+Inf"]
    for bound, below in zip(bounds, accumulate(seconds.counts), strict=True):
        lines.append(_sample(f"{name}_bucket", {**labels, "le": bound}, below))
    lines.append(_sample(f"{name}_sum", labels, seconds.total))
    lines.append(_sample(f"{name}_count", labels, seconds.count))
    return "\n".join(lines) + "\n"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return {float("inf"): "+Inf", float("-inf"): "-Inf"}.get(value, repr(value))
