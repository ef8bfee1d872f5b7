"""MlflowTracker: a bounded queue and one writer thread between a sweep and MLflow.

The sweep's side only puts into the queue and never waits. The thread imports MLflow, keeps what could not be sent, and
tries again; what does not fit any more is counted and told at the end with its remedy.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memcon.clock import SystemClock
from memcon.protocols import Clock
from memcon_platform.tracking.metrics import finite, metric_name
from memcon_platform.tracking.mlflow_store import MetricRow, MlflowStore
from memcon_platform.tracking.pending import CellEnded, CellStarted, Event, Pending, TaskEnded
from memcon_platform.tracking.port import CellInfo, RunInfo, TrackingEnd

__all__ = ["Limits", "MlflowTracker"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the tracker's memory and patience."""

    # Events between the sweep and the thread.
    queue_size: int = 20_000
    # Tasks that wait for MLflow.
    pending_tasks: int = 100_000
    # Seconds between two sendings, and between two tries while MLflow is away.
    flush_s: float = 2.0
    retry_s: float = 15.0
    # Seconds that `close` waits for the thread.
    close_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Close:
    artifacts: tuple[Path, ...]


Opener = Callable[[str, str, RunInfo], MlflowStore]


class MlflowTracker:
    """A `Tracker` over MLflow. Every method returns at once and raises nothing; `close` waits for a bounded time."""

    def __init__(
        self,
        uri: str,
        experiment: str = "memcon",
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        open_store: Opener = MlflowStore,
    ) -> None:
        self._uri, self._experiment, self._open_store = uri, experiment, open_store
        self._clock = clock or SystemClock()
        self._limits = limits or Limits()
        self._events: queue.Queue[Event | _Close] = queue.Queue(self._limits.queue_size)
        # Written by the sweep's side when the queue is full, read after the thread has ended.
        self._refused = 0
        self._streams: dict[str, int] = {}
        self._run: RunInfo | None = None
        self._thread: threading.Thread | None = None
        self._writer: _Writer | None = None

    def start(self, run: RunInfo) -> None:
        """Begin the writer thread; the import of MLflow and the first connection happen in it."""
        self._run = run
        self._writer = _Writer(
            self._events, self._limits, lambda: self._open_store(self._uri, self._experiment, run), self._clock
        )
        # A daemon: a server that hangs must not hold the process back after `close` gave up.
        self._thread = threading.Thread(target=self._writer.run, name="memcon-tracking", daemon=True)
        self._thread.start()

    def cell_started(self, cell: CellInfo) -> None:
        """Open the cell's MLflow run when MLflow answers."""
        self._streams[cell.cell_id] = cell.streams
        self._put(CellStarted(cell=cell))

    def task_ended(self, cell_id: str, stream: int, ordinal: int, metrics: Mapping[str, float | None]) -> None:
        """Log the task's metrics at step `ordinal`."""
        timestamp_ms = int(self._clock.wall() * 1000)
        streams = self._streams.get(cell_id, 1)
        rows = tuple(
            MetricRow(name=metric_name(name, stream, streams), value=value, step=ordinal, timestamp_ms=timestamp_ms)
            for name, value in finite(metrics).items()
        )
        self._put(TaskEnded(cell_id=cell_id, rows=rows))

    def cell_ended(self, cell_id: str, summary: Mapping[str, float | None], artifacts: Sequence[Path] = ()) -> None:
        """Log the cell's final metrics and files and finish its MLflow run."""
        timestamp_ms = int(self._clock.wall() * 1000)
        rows = tuple(
            MetricRow(name=metric_name(name, 0, 1), value=value, step=0, timestamp_ms=timestamp_ms)
            for name, value in finite(summary).items()
        )
        self._put(CellEnded(cell_id=cell_id, rows=rows, artifacts=tuple(artifacts)))

    def close(self, artifacts: Sequence[Path] = ()) -> TrackingEnd:
        """Send what waits within `limits.close_s` seconds; say what did not reach MLflow and how to add it."""
        if self._thread is None or self._writer is None or self._run is None:
            return TrackingEnd()
        try:
            self._events.put(_Close(artifacts=tuple(artifacts)), timeout=self._limits.close_s)
            self._thread.join(self._limits.close_s)
            waited = not self._thread.is_alive()
        except queue.Full:
            waited = False
        left = 0 if waited else self._events.qsize()
        dropped = self._refused + self._writer.dropped + self._writer.num_waiting + left
        problem = self._writer.problem or ("" if waited else f"MLflow at {self._uri} does not answer")
        if not dropped and not problem:
            return TrackingEnd()
        remedy = f"the run itself is complete; add what is missing with `memcon track rebuild {self._run.run_dir}`"
        _log.info("tracking.incomplete", extra={"dropped": dropped, "problem": problem})
        return TrackingEnd(dropped=dropped, problem=problem, remedy=remedy)

    def _put(self, event: Event) -> None:
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self._refused += 1


class _Writer:
    """The thread's side: the queue into `Pending`, and `Pending` into MLflow."""

    def __init__(
        self, events: queue.Queue[Event | _Close], limits: Limits, connect: Callable[[], MlflowStore], clock: Clock
    ) -> None:
        self._events, self._limits, self._connect, self._clock = events, limits, connect, clock
        self._pending = Pending(limits.pending_tasks)
        self._store: MlflowStore | None = None
        self._next_try = 0.0
        # The last error, as one line; "" again when MLflow has taken everything.
        self.problem = ""

    @property
    def dropped(self) -> int:
        """Tasks that did not fit into memory while MLflow was away."""
        return self._pending.dropped

    @property
    def num_waiting(self) -> int:
        """Tasks that MLflow has not taken yet."""
        return self._pending.num_tasks

    def run(self) -> None:
        """Until `_Close`; nothing that MLflow does ends the thread earlier."""
        last = self._clock.monotonic()
        while True:
            closing = self._take()
            now = self._clock.monotonic()
            if closing is None and now - last < self._limits.flush_s:
                continue
            last = now
            if closing is not None or now >= self._next_try:
                self._send(closing)
            if closing is not None:
                return

    def _take(self) -> _Close | None:
        """Wait a while for events and move all that are there into `Pending`."""
        try:
            event = self._events.get(timeout=self._limits.flush_s)
            while True:
                if isinstance(event, _Close):
                    return event
                self._pending.add(event)
                event = self._events.get_nowait()
        except queue.Empty:
            return None

    def _send(self, closing: _Close | None) -> None:
        try:
            if self._store is None:
                self._store = self._connect()
            self._pending.send(self._store)
            if closing is not None:
                self._store.finish_run(closing.artifacts)
            self.problem = ""
        # MLflow, its stores and drivers raise anything; whatever it is, the sweep goes on without them.
        except Exception as error:  # noqa: BLE001
            first_line = str(error).strip().splitlines()[:1]
            self.problem = f"{type(error).__name__}: {''.join(first_line)[:300]}"
            self._next_try = self._clock.monotonic() + self._limits.retry_s
            _log.debug("tracking.away", extra={"problem": self.problem})
