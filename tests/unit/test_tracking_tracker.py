"""The tracker around a fake MLflow: nothing is lost while it is away, nothing waits for it, what is dropped is told."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from memcon_platform.tracking import CellInfo, MlflowTracker, NullTracker, RunInfo, TrackingEnd
from memcon_platform.tracking.mlflow_store import MetricRow, MlflowStore
from memcon_platform.tracking.mlflow_tracker import Limits

RUN = RunInfo(run="demo", run_dir=Path("runs/demo"))
QUICK = Limits(flush_s=0.01, retry_s=0.0, close_s=10.0)


def cell(cell_id: str = "c1", streams: int = 1) -> CellInfo:
    return CellInfo(cell_id=cell_id, label=cell_id, streams=streams, axes={}, parameters={})


class FakeStore:
    """Keeps what it is told; fails the first `failures` batches."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.rows: list[tuple[str, MetricRow]] = []
        self.batches: list[int] = []
        self.finished: list[str] = []
        self.logged = threading.Event()

    def open_cell(self, info: CellInfo) -> str:
        return f"run-{info.cell_id}"

    def log(self, run_id: str, rows: Sequence[MetricRow]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("database is locked")
        self.rows += [(run_id, row) for row in rows]
        self.batches.append(len(rows))
        self.logged.set()

    def finish(self, run_id: str, artifacts: Sequence[Path] = ()) -> None:
        self.finished.append(run_id)

    def finish_run(self, artifacts: Sequence[Path] = ()) -> None:
        self.finished.append("parent")


def tracker(store: FakeStore, limits: Limits = QUICK) -> MlflowTracker:
    return MlflowTracker("sqlite:///unused", limits=limits, open_store=lambda *_: cast("MlflowStore", store))


def test_every_task_reaches_its_own_run_under_its_ordinal() -> None:
    store = FakeStore()
    tracking = tracker(store)
    tracking.start(RUN)
    tracking.cell_started(cell("c1"))
    tracking.cell_started(cell("c2", streams=2))
    for ordinal in range(3):
        tracking.task_ended("c1", 0, ordinal, {"success": 1.0, "score": float("nan")})
        tracking.task_ended("c2", 1, ordinal, {"success": 0.0, "reward": None})
    tracking.cell_ended("c1", {"final/success_rate": 1.0})

    assert tracking.close() == TrackingEnd()
    found = [(run_id, row.name, row.step, row.value) for run_id, row in store.rows]
    assert [row for row in found if row[0] == "run-c1"] == [
        *(("run-c1", "success", n, 1.0) for n in range(3)),
        ("run-c1", "final/success_rate", 0, 1.0),
    ]
    assert [row for row in found if row[0] == "run-c2"] == [("run-c2", "stream-001/success", n, 0.0) for n in range(3)]
    assert store.finished == ["run-c1", "parent"]


def test_a_short_outage_loses_nothing() -> None:
    store = FakeStore(failures=3)
    tracking = tracker(store)
    tracking.start(RUN)
    tracking.cell_started(cell())
    for ordinal in range(5):
        tracking.task_ended("c1", 0, ordinal, {"success": 1.0})
    assert store.logged.wait(30)

    assert tracking.close() == TrackingEnd()
    assert sorted(row.step for _, row in store.rows) == [0, 1, 2, 3, 4]


def test_an_absent_mlflow_is_told_at_the_end_with_its_remedy() -> None:
    def refuse(*_: object) -> MlflowStore:
        raise ConnectionError("no route to host\nlong trace")

    tracking = MlflowTracker("http://nowhere", limits=QUICK, open_store=refuse)
    tracking.start(RUN)
    tracking.cell_started(cell())
    for ordinal in range(4):
        tracking.task_ended("c1", 0, ordinal, {"success": 1.0})

    end = tracking.close()

    assert end.dropped == 4
    assert end.problem == "ConnectionError: no route to host"
    assert "memcon track rebuild runs/demo" in end.remedy


def test_a_full_queue_never_makes_the_sweep_wait() -> None:
    started, let_go = threading.Event(), threading.Event()

    def hang(*_: object) -> MlflowStore:
        started.set()
        let_go.wait(30)
        raise ConnectionError("gave up")

    tracking = MlflowTracker("http://slow", limits=Limits(queue_size=4, flush_s=0.01, close_s=0.05), open_store=hang)
    # Taken from the queue before the store is opened, in which the thread hangs.
    tracking.cell_started(cell())
    tracking.start(RUN)
    assert started.wait(30)

    for ordinal in range(100):
        tracking.task_ended("c1", 0, ordinal, {"success": 1.0})
    end = tracking.close()
    let_go.set()

    assert end.dropped == 100
    assert "does not answer" in end.problem


def test_tasks_beyond_the_bound_are_dropped_and_counted() -> None:
    store = FakeStore()
    ready = threading.Event()

    def wait(*_: object) -> MlflowStore:
        ready.wait(30)
        return cast("MlflowStore", store)

    tracking = MlflowTracker("x", limits=Limits(pending_tasks=10, flush_s=0.01, close_s=10), open_store=wait)
    tracking.start(RUN)
    tracking.cell_started(cell())
    for ordinal in range(25):
        tracking.task_ended("c1", 0, ordinal, {"success": 1.0})
    ready.set()

    end = tracking.close()

    # How many of the 25 the thread takes before its first sending is up to the machine.
    assert end.dropped + len(store.rows) == 25


def test_a_batch_stays_within_what_one_call_may_carry() -> None:
    store = FakeStore()
    tracking = tracker(store)
    tracking.start(RUN)
    tracking.cell_started(cell())
    for ordinal in range(900):
        tracking.task_ended("c1", 0, ordinal, {f"m{i}": 1.0 for i in range(7)})
    tracking.close()

    assert sum(store.batches) == 6300
    assert max(store.batches) <= 1000


def test_closing_a_tracker_that_never_started_is_fine() -> None:
    assert tracker(FakeStore()).close() == TrackingEnd()
    null = NullTracker()
    null.start(RUN)
    assert null.close() == TrackingEnd()
