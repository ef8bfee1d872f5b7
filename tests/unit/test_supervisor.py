"""The Supervisor as a pure machine: events in, instructions out."""

from __future__ import annotations

import pytest

from memcon.errors import InvariantError
from memcon_platform.sweep.events import (
    GrantTask,
    RunStream,
    StartWorker,
    StopRequested,
    StopStream,
    StopWorker,
    StreamDone,
    StreamFailed,
    StreamReady,
    StreamStopped,
    TaskDone,
    WorkerLost,
    WorkerReady,
)
from memcon_platform.sweep.supervisor import StreamState, Supervisor
from memcon_platform.sweep.turns import Turns

A, B, C, D = (("cell", stream) for stream in range(4))


def supervisor(*streams: tuple[str, int], workers: int = 1, capacity: int = 1, max_deaths: int = 2) -> Supervisor:
    return Supervisor(streams, num_workers=workers, streams_per_worker=capacity, max_deaths=max_deaths)


def test_starts_no_more_workers_than_there_are_streams() -> None:
    assert supervisor(A, workers=4).start() == [StartWorker(0)]


def test_gives_streams_in_plan_order_to_the_worker_with_the_fewest() -> None:
    machine = supervisor(A, B, C, workers=2, capacity=2)
    assert machine.start() == [StartWorker(0), StartWorker(1)]
    assert machine.handle(WorkerReady(0)) == [RunStream(0, A, False), RunStream(0, B, False)]
    assert machine.handle(WorkerReady(1)) == [RunStream(1, C, False)]


def test_a_finished_stream_makes_room_for_the_next() -> None:
    machine = supervisor(A, B)
    machine.start()
    machine.handle(WorkerReady(0))
    assert machine.handle(StreamDone(A)) == [RunStream(0, B, False)]
    assert machine.handle(StreamDone(B)) == []
    assert machine.finished


def test_a_lost_worker_is_replaced_and_its_streams_are_told_so() -> None:
    machine = supervisor(A, B, capacity=2)
    machine.start()
    machine.handle(WorkerReady(0))
    assert machine.handle(WorkerLost(0)) == [StartWorker(1)]
    assert machine.handle(WorkerReady(1)) == [RunStream(1, A, True), RunStream(1, B, True)]


def test_the_loss_of_a_worker_told_twice_counts_once() -> None:
    machine = supervisor(A)
    machine.start()
    machine.handle(WorkerReady(0))
    machine.handle(WorkerLost(0))
    assert machine.handle(WorkerLost(0)) == []


def test_a_stream_that_kills_its_workers_without_ending_a_task_fails() -> None:
    machine = supervisor(A, max_deaths=2)
    machine.start()
    for worker in range(3):
        machine.handle(WorkerReady(worker))
        machine.handle(WorkerLost(worker))
    assert machine.state(A) is StreamState.FAILED
    assert "died 3 times" in machine.failures()[A]
    assert machine.finished


def test_an_ended_task_forgives_earlier_deaths() -> None:
    machine = supervisor(A, max_deaths=2)
    machine.start()
    for worker in range(6):
        machine.handle(WorkerReady(worker))
        machine.handle(TaskDone(A))
        machine.handle(WorkerLost(worker))
    assert machine.state(A) is StreamState.WAITING


def test_workers_that_never_get_ready_end_the_run() -> None:
    machine = supervisor(A, B, max_deaths=2)
    machine.start()
    for worker in range(3):
        machine.handle(WorkerLost(worker))
    assert machine.finished
    assert set(machine.failures()) == {A, B}


def test_a_failed_stream_stops_no_other() -> None:
    machine = supervisor(A, B)
    machine.start()
    machine.handle(WorkerReady(0))
    assert machine.handle(StreamFailed(A, "disk full")) == [RunStream(0, B, False)]
    assert machine.failures() == {A: "disk full"}


def test_stop_lets_running_streams_end_and_starts_nothing() -> None:
    machine = supervisor(A, B)
    machine.start()
    machine.handle(WorkerReady(0))
    assert machine.handle(StopRequested()) == [StopWorker(0)]
    assert not machine.finished
    assert machine.handle(StreamStopped(A)) == []
    assert machine.finished
    assert machine.state(B) is StreamState.STOPPED


def test_a_worker_lost_while_stopping_is_not_replaced() -> None:
    machine = supervisor(A)
    machine.start()
    machine.handle(WorkerReady(0))
    machine.handle(StopRequested())
    assert machine.handle(WorkerLost(0)) == []
    assert machine.finished


def test_an_impossible_event_is_a_bug() -> None:
    with pytest.raises(InvariantError, match="waiting"):
        supervisor(A).handle(StreamDone(A))


def test_a_stream_planned_twice_is_a_bug() -> None:
    with pytest.raises(InvariantError, match="twice"):
        supervisor(A, A)


# --- streams of a bounded table --------------------------------------------------------------------------------------


def gated(*streams: tuple[str, int], workers: int = 2, bound: int = 1, max_deaths: int = 2) -> Supervisor:
    table = Turns(streams, bound=bound)
    return Supervisor(streams, num_workers=workers, streams_per_worker=1, max_deaths=max_deaths, turns=[table])


def test_streams_of_a_bounded_table_are_all_claimed_and_dealt_out_evenly() -> None:
    machine = gated(A, B, C)
    machine.start()
    assert machine.handle(WorkerReady(0)) == [RunStream(0, A, False), RunStream(0, B, False)]
    assert machine.handle(WorkerReady(1)) == [RunStream(1, C, False)]


def test_streams_that_run_freely_do_not_make_the_others_wait() -> None:
    table = Turns([B, C], bound=1)
    machine = Supervisor([A, B, C], num_workers=1, streams_per_worker=1, max_deaths=2, turns=[table])
    machine.start()
    assert machine.handle(WorkerReady(0)) == [
        RunStream(0, A, False),
        RunStream(0, B, False),
        RunStream(0, C, False),
    ]


def ready_machine(**settings: int) -> Supervisor:
    """Three streams, A and B on worker 0 and C on worker 1; A has the first turn."""
    machine = gated(A, B, C, **settings)
    machine.start()
    machine.handle(WorkerReady(0))
    machine.handle(WorkerReady(1))
    assert machine.handle(StreamReady(0, A, 0)) == []
    assert machine.handle(StreamReady(1, C, 0)) == []
    assert machine.handle(StreamReady(0, B, 0)) == [GrantTask(0, A)]
    return machine


def test_a_turn_is_granted_where_the_stream_waits() -> None:
    machine = ready_machine()
    assert machine.handle(StreamReady(0, A, 1)) == [GrantTask(0, B)]
    assert machine.handle(StreamReady(0, B, 1)) == [GrantTask(1, C)]
    assert machine.handle(StreamReady(1, C, 1)) == [GrantTask(0, A)]


def test_the_end_of_a_stream_passes_its_turn_on() -> None:
    machine = ready_machine()
    assert machine.handle(StreamDone(A)) == [GrantTask(0, B)]
    assert machine.handle(StreamDone(B)) == [GrantTask(1, C)]
    assert machine.handle(StreamDone(C)) == []
    assert machine.finished


def test_a_failed_stream_stops_its_exact_table() -> None:
    machine = ready_machine()
    assert machine.handle(StreamFailed(A, "disk full")) == [StopStream(0, B), StopStream(1, C)]
    assert machine.handle(StreamStopped(B)) == []
    assert machine.handle(StreamStopped(C)) == []
    assert machine.finished
    assert machine.failures() == {A: "disk full"}
    assert [machine.state(name) for name in (B, C)] == [StreamState.STOPPED] * 2


def test_a_stream_that_plays_or_is_claimed_when_its_table_stops_ends_at_its_next_turn() -> None:
    machine = gated(A, B, C)
    machine.start()
    machine.handle(WorkerReady(0))
    machine.handle(WorkerReady(1))
    machine.handle(StreamReady(0, A, 0))
    assert machine.handle(StreamFailed(B, "damaged")) == [StopStream(0, A)]
    assert machine.handle(StreamReady(1, C, 0)) == [StopStream(1, C)]
    # Told once.
    assert machine.handle(StreamStopped(A)) == []
    assert machine.handle(StreamDone(C)) == []
    assert machine.finished


def test_streams_of_a_stopped_table_are_not_claimed_again() -> None:
    machine = ready_machine()
    assert machine.handle(WorkerLost(1)) == [StartWorker(2)]
    assert machine.handle(StreamFailed(A, "disk full")) == [StopStream(0, B)]
    assert machine.state(C) is StreamState.STOPPED
    assert machine.handle(WorkerReady(2)) == []
    assert machine.handle(WorkerLost(0)) == []
    assert machine.finished
    assert machine.failures() == {A: "disk full"}


def test_a_failed_stream_stops_neither_other_tables_nor_one_that_is_not_exact() -> None:
    exact, wider = Turns([A, B], bound=1), Turns([C, D], bound=2)
    machine = Supervisor([A, B, C, D], num_workers=1, streams_per_worker=1, max_deaths=2, turns=[exact, wider])
    machine.start()
    machine.handle(WorkerReady(0))
    for name in (A, B, C, D):
        machine.handle(StreamReady(0, name, 0))
    assert machine.handle(StreamFailed(C, "disk full")) == []
    assert machine.handle(StreamReady(0, D, 1)) == [GrantTask(0, D)]
    assert machine.handle(StreamFailed(A, "disk full")) == [StopStream(0, B)]
    assert machine.handle(StreamReady(0, D, 2)) == [GrantTask(0, D)]
    assert (machine.stops_table(A), machine.stops_table(C)) == (True, False)


def test_what_a_lost_worker_had_said_no_longer_counts() -> None:
    machine = ready_machine()
    # The other worker takes its even share of what was lost, a new one the rest.
    assert machine.handle(WorkerLost(0)) == [RunStream(1, A, True), StartWorker(2)]
    assert machine.handle(StreamReady(0, A, 1)) == []
    assert machine.handle(WorkerReady(2)) == [RunStream(2, B, True)]
    assert machine.handle(StreamReady(2, B, 0)) == []
    assert machine.handle(StreamReady(0, A, 1)) == []
    assert machine.handle(StreamReady(1, A, 1)) == [GrantTask(2, B)]


def test_a_stream_that_only_waited_is_not_to_blame_for_its_workers_deaths() -> None:
    machine = gated(A, B, workers=1, max_deaths=2)
    machine.start()
    for worker in range(2):
        machine.handle(WorkerReady(worker))
        machine.handle(StreamReady(worker, A, 0))
        assert machine.handle(StreamReady(worker, B, 0)) == [GrantTask(worker, A)]
        machine.handle(WorkerLost(worker))
    # A third death, before A has said that it waits again. Something else gets on meanwhile.
    machine.handle(WorkerReady(2))
    machine.handle(TaskDone(B))
    machine.handle(WorkerLost(2))
    assert set(machine.failures()) == {A}
    # Its table stops with A.
    assert machine.state(B) is StreamState.STOPPED


def test_a_stop_grants_nothing_more() -> None:
    machine = ready_machine()
    assert machine.handle(StopRequested()) == [StopWorker(0), StopWorker(1)]
    assert machine.handle(StreamReady(0, A, 1)) == []
    for name in (A, B, C):
        machine.handle(StreamStopped(name))
    assert machine.finished
