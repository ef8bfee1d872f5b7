"""Whatever happens to workers, every stream ends exactly once and never runs in two places."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memcon_platform.sweep.events import (
    Instruction,
    RunStream,
    StartWorker,
    StreamDone,
    TaskDone,
    WorkerLost,
    WorkerReady,
)
from memcon_platform.sweep.supervisor import StreamState, Supervisor


@given(
    num_streams=st.integers(1, 8),
    num_workers=st.integers(1, 4),
    capacity=st.integers(1, 3),
    choices=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000)), max_size=200),
)
def test_streams_run_in_one_place_and_all_end(
    num_streams: int, num_workers: int, capacity: int, choices: list[tuple[int, int]]
) -> None:
    names = [("cell", index) for index in range(num_streams)]
    machine = Supervisor(names, num_workers=num_workers, streams_per_worker=capacity, max_deaths=10**6)
    starting: list[int] = []
    ready: set[int] = set()
    running: dict[tuple[str, int], int] = {}
    done: set[tuple[str, int]] = set()

    def carry_out(instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, StartWorker):
                starting.append(instruction.worker)
            if isinstance(instruction, RunStream):
                assert instruction.stream not in running
                assert instruction.stream not in done
                assert instruction.worker in ready
                running[instruction.stream] = instruction.worker
                assert list(running.values()).count(instruction.worker) <= capacity
        assert len(starting) + len(ready) <= num_workers

    carry_out(machine.start())
    for kind, pick in choices:
        if kind == 0 and starting:
            worker = starting.pop(pick % len(starting))
            ready.add(worker)
            carry_out(machine.handle(WorkerReady(worker)))
        elif kind == 1 and running:
            name = sorted(running)[pick % len(running)]
            del running[name]
            done.add(name)
            carry_out(machine.handle(StreamDone(name)))
        elif kind == 2 and ready:
            worker = sorted(ready)[pick % len(ready)]
            ready.discard(worker)
            for name in [name for name, where in running.items() if where == worker]:
                del running[name]
            carry_out(machine.handle(WorkerLost(worker)))
        elif kind == 3 and running:
            carry_out(machine.handle(TaskDone(sorted(running)[pick % len(running)])))
    while not machine.finished:
        if starting:
            ready.add(starting[0])
            carry_out(machine.handle(WorkerReady(starting.pop(0))))
        if running:
            name = min(running)
            del running[name]
            done.add(name)
            carry_out(machine.handle(StreamDone(name)))
    assert done == set(names)
    assert all(machine.state(name) is StreamState.DONE for name in names)
