"""The port of tracking and its values. No call of a tracker raises into the sweep or makes it wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from memcon import registry
from memcon.errors import ConfigError
from memcon_platform.config import Cell, RunRecord
from memcon_platform.config.plan import PLUGIN_AXES

__all__ = ["CellInfo", "NullTracker", "RunInfo", "Tracker", "TrackingEnd", "infos_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A run as tracking shows it."""

    run: str
    # Folder of the run; SQLite and artefacts lie beside it unless the URI says otherwise.
    run_dir: Path
    # First launch (plan.json): with the name the run's identity, since a name may be used again and a server be shared.
    created_at: str = ""
    # Provenance and whatever else names the run; values become text.
    tags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellInfo:
    """A cell as tracking shows it."""

    cell_id: str
    # What people read in the list of runs.
    label: str
    streams: int
    # One tag an axis.
    axes: Mapping[str, Any]
    # What its plug-ins are, in Markdown: a stand-in must not pass for the real thing (BE-8).
    about: str = ""
    # Resolved settings, nested; logged flat when the MLflow run is created and never again.
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingEnd:
    """What tracking has to say when it closes."""

    # Tasks whose metrics did not reach MLflow.
    dropped: int = 0
    # Why, in one line, or "".
    problem: str = ""
    # What to do about it, or "".
    remedy: str = ""


class Tracker(Protocol):
    """Where a sweep's progress is tracked."""

    def start(self, run: RunInfo) -> None:
        """Begin; called once, before anything else."""
        ...

    def cell_started(self, cell: CellInfo) -> None:
        """A cell has work to do, or goes on with it."""
        ...

    def task_ended(self, cell_id: str, stream: int, ordinal: int, metrics: Mapping[str, float | None]) -> None:
        """A task is committed; absent and non-finite values are skipped."""
        ...

    def cell_ended(self, cell_id: str, summary: Mapping[str, float | None], artifacts: Sequence[Path] = ()) -> None:
        """All streams of a cell are done."""
        ...

    def close(self, artifacts: Sequence[Path] = ()) -> TrackingEnd:
        """Send what waits, within a bounded time; `artifacts` go to the run itself."""
        ...


class NullTracker:
    """Tracking switched off."""

    def start(self, run: RunInfo) -> None:
        """Nothing."""

    def cell_started(self, cell: CellInfo) -> None:
        """Nothing."""

    def task_ended(self, cell_id: str, stream: int, ordinal: int, metrics: Mapping[str, float | None]) -> None:
        """Nothing."""

    def cell_ended(self, cell_id: str, summary: Mapping[str, float | None], artifacts: Sequence[Path] = ()) -> None:
        """Nothing."""

    def close(self, artifacts: Sequence[Path] = ()) -> TrackingEnd:
        """Nothing was dropped."""
        return TrackingEnd()


def infos_of(record: RunRecord, run_dir: Path) -> tuple[RunInfo, tuple[CellInfo, ...]]:
    """What tracking is told of a run: the same from a live sweep and from `memcon track rebuild`."""
    told = record.provenance.items()
    tags = {f"memcon.{key.removeprefix('memcon_')}": value for key, value in told if value is not None}
    run = RunInfo(run=record.plan.run, run_dir=run_dir, created_at=record.created_at, tags=tags)
    return run, tuple(_cell_info(cell) for cell in record.plan.cells)


def _cell_info(cell: Cell) -> CellInfo:
    axes: dict[str, Any] = {axis: cell.entry(axis).label for axis in PLUGIN_AXES}
    axes |= {"seed": cell.seed, "streams": cell.streams, "split": cell.split, "table_scope": cell.table_scope}
    return CellInfo(
        cell_id=cell.cell_id,
        label=cell.label,
        streams=cell.streams,
        axes=axes,
        about=_about(cell),
        parameters={**cell.settings, "num_tasks": cell.num_tasks},
    )


def _about(cell: Cell) -> str:
    lines = []
    for axis in PLUGIN_AXES:
        name = cell.entry(axis).name
        # A run outlives its plug-ins: one that is gone can be shown without its summary.
        with suppress(ConfigError):
            lines.append(f"- {axis} `{name}`: {registry.plugin(axis, name).summary}")
    return "\n".join(lines)
