"""What a config becomes: a run's cells and settings, fully resolved. Values only; nothing here touches files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from memcon import checks
from memcon.control.settings import ControlSettings, PreloadSettings
from memcon.errors import ConfigError
from memcon.learning.credit import RewardSettings

__all__ = [
    "AXES",
    "PLUGIN_AXES",
    "Cell",
    "Entry",
    "MemoryStart",
    "PolicyServerSettings",
    "RunPlan",
    "RunSettings",
    "StartFrom",
    "StudySettings",
    "TableStart",
    "TrackingSettings",
]

# Axes in the order of a cell's label; the last one varies fastest in the plan.
AXES = ("benchmark", "framework", "backbone", "memory", "policy", "seed")
# Axes whose values are plug-ins.
PLUGIN_AXES = AXES[:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A plug-in on an axis."""

    name: str
    # Parameters that differ from the plug-in's defaults, JSON-able.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    # Short text for people, such as "ucb c=0.3" or "fixed:plan_inject".
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyServerSettings:
    """How the policy of a sweep is served."""

    shards: int = 1

    def __post_init__(self) -> None:
        checks.in_range("shards", self.shards, 1, 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingSettings:
    """Where MLflow runs go."""

    enabled: bool = True
    # None = SQLite beside the runs (`RunPlan.tracking_uri`).
    uri: str | None = None
    experiment: str = "memcon"

    def __post_init__(self) -> None:
        if not self.experiment.strip():
            raise ConfigError(f"experiment = {self.experiment!r}: expected a name")
        if self.uri is not None and not self.uri.strip():
            raise ConfigError(f"uri = {self.uri!r}: expected a tracking URI, or null for SQLite beside the runs")
        if self.uri and "@" in urlsplit(self.uri).netloc:
            # The value is not repeated: this message may end in a log.
            raise ConfigError(
                "uri holds credentials, which plan.json would keep; "
                "use MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySettings:
    """What `memcon study` does with a config beside its cells."""

    # Streams of the outcome matrix, of each seed.
    streams: int = 8
    # Numbers of streams that share one table when a rule is replayed on the matrix.
    groups: tuple[int, ...] = (1, 8)
    # Label of the policy that every other row is compared with, such as "ucb"; None = the yardsticks only.
    reference: str | None = None

    def __post_init__(self) -> None:
        checks.in_range("streams", self.streams, 1, 100_000)
        if not self.groups:
            raise ConfigError("groups: expected at least one number of streams")
        for number in self.groups:
            checks.in_range("groups", number, 1, 100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStart:
    """The learned table of an earlier run that a cell's table starts from."""

    # Run folder, or a run's place in an object store.
    run: str
    # Cell id of that run; None = its only cell with the same fingerprint.
    cell: str | None = None
    # Decisions and outcomes of each (key, arm) count at most this often; None = all (docs/prototype.md, 4).
    cap: int | None = 20
    # The table learns nothing more.
    frozen: bool = False

    def __post_init__(self) -> None:
        if not self.run.strip():
            raise ConfigError("run: expected the folder of an earlier run")
        if self.cap is not None:
            checks.in_range("cap", self.cap, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStart:
    """The memory of an earlier run that a cell's streams start from, stream by stream."""

    # Run folder, or a run's place in an object store.
    run: str
    # Cell id of that run; None = its only cell with the same memory, benchmark, agent and seed.
    cell: str | None = None
    # Nothing is added to it (RO-15).
    frozen: bool = False

    def __post_init__(self) -> None:
        if not self.run.strip():
            raise ConfigError("run: expected the folder of an earlier run")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFrom:
    """What a cell takes over from earlier runs."""

    policy: TableStart | None = None
    memory: MemoryStart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a run is carried out. None of it is part of a cell's identity.

    `task_restarts`, `task_time_limit_s` and `server_wait_s` decide which tasks end `unevaluable`, never what an
    evaluable task gives, so that they may be raised when a run is continued.
    """

    # Worker processes.
    workers: int
    # Streams that one worker's event loop carries at a time.
    streams_per_worker: int = 8
    policy_server: PolicyServerSettings = field(default_factory=PolicyServerSettings)
    # Seconds that a task waits for the policy server before it is `unevaluable`.
    server_wait_s: float = 120.0
    # Worker deaths inside one task before it is `unevaluable`.
    task_restarts: int = 3
    # Wall-time limit of one task in seconds; None = no limit.
    task_time_limit_s: float | None = None
    tracking: TrackingSettings = field(default_factory=TrackingSettings)
    study: StudySettings = field(default_factory=StudySettings)

    def __post_init__(self) -> None:
        checks.in_range("workers", self.workers, 1)
        checks.in_range("streams_per_worker", self.streams_per_worker, 1)
        checks.in_range("server_wait_s", self.server_wait_s, 0)
        checks.in_range("task_restarts", self.task_restarts, 0)
        if self.task_time_limit_s is not None:
            checks.in_range("task_time_limit_s", self.task_time_limit_s, 0.001)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination of the axes: what is compared with what."""

    # Hash of all that can change its results (`memcon_platform.config.identity`).
    cell_id: str
    # 0-based place in the plan; a cell keeps it when cells are added to the run.
    place: int
    benchmark: Entry
    framework: Entry
    backbone: Entry
    memory: Entry
    policy: Entry
    seed: int
    embedder: Entry
    control: ControlSettings
    reward: RewardSettings
    streams: int
    # "replicate": each stream runs all tasks in its own order; "partition": the streams share the tasks out.
    split: str
    # "cell": the streams of the cell share one table; "stream": a table each; any other text: the name of a table that
    # cells share.
    table_scope: str
    # First N tasks of the benchmark; None = all.
    limit: int | None
    # Tasks of each stream.
    stream_tasks: tuple[int, ...]
    # Every setting with its value, defaults included: the run's record of what was used (MC-30).
    settings: Mapping[str, Any]
    # Open episodes of the cell's table at a time; None = no bound, 1 = turns by (ordinal, cell's place, stream): exact.
    max_open_episodes: int | None = None
    # What the memory of each stream holds before its first task.
    preload: PreloadSettings | None = None
    start_from: StartFrom = StartFrom()

    @property
    def num_tasks(self) -> int:
        """Tasks of all streams together."""
        return sum(self.stream_tasks)

    def entry(self, axis: str) -> Entry:
        """The plug-in on `axis`, one of PLUGIN_AXES."""
        found: Entry = getattr(self, axis)
        return found

    @property
    def label(self) -> str:
        """The cell for people: its axes, then the shape of its streams if it has several.

        Framework and backbone stand without their parameters, which are long and mostly the same over a run; what tells
        cells apart for certain is `cell_id`.
        """
        parts = [self.benchmark.label, self.framework.name, self.backbone.name, self.memory.label, self.policy.label]
        parts.append(f"seed {self.seed}")
        if self.streams > 1:
            parts.append(f"{self.streams} streams, {self.split}, a table a {self.table_scope}")
        return " / ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A launched sweep: cells in the order of the plan, and how they are run."""

    run: str
    # Folder that holds the run folders; for runs in an object store, their working copies.
    root: Path
    cells: tuple[Cell, ...]
    settings: RunSettings
    # The config after overrides, JSON-able: what the run folder's config.yaml shows.
    resolved: Mapping[str, Any]
    # The place in an object store that `root` stands for; None = the runs live in their folders alone.
    root_uri: str | None = None

    @property
    def run_dir(self) -> Path:
        """The run's own folder."""
        return self.root / self.run

    @property
    def uri(self) -> str | None:
        """The run's own place in an object store; None = it lives in its folder alone."""
        return None if self.root_uri is None else f"{self.root_uri}/{self.run}"

    @property
    def tracking_uri(self) -> str:
        """The MLflow URI of the settings, or the SQLite file beside the runs."""
        return self.settings.tracking.uri or f"sqlite:///{self.root.resolve() / 'mlflow.db'}"
