"""Bounded tables under any deaths: never too many open episodes, no deadlock, and with bound 1 one order of tasks.

The world around the Supervisor is a model: workers that are slow, die at any moment, and forget what they had not told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from memcon_platform.sweep.events import (
    GrantTask,
    Instruction,
    RunStream,
    StartWorker,
    StopStream,
    StreamDone,
    StreamFailed,
    StreamName,
    StreamReady,
    StreamStopped,
    TaskDone,
    WorkerLost,
    WorkerReady,
)
from memcon_platform.sweep.supervisor import Supervisor
from memcon_platform.sweep.turns import Turns


@dataclass(kw_only=True)
class World:
    """Streams with files that survive, workers that do not, and a table that sees episodes open and settle."""

    supervisor: Supervisor
    tables: Sequence[Turns]
    bounds: Sequence[int]
    lengths: dict[StreamName, int]
    starting: list[int] = field(default_factory=list)
    # Stream -> worker, in the order of assignment.
    claiming: dict[StreamName, int] = field(default_factory=dict)
    playing: dict[StreamName, int] = field(default_factory=dict)
    waiting: dict[StreamName, int] = field(default_factory=dict)
    alive: set[int] = field(default_factory=set)
    ended: defaultdict[StreamName, int] = field(default_factory=lambda: defaultdict(int))
    # Episodes that the table knows of and whose outcome or cancel it has not: begun, or ended and undelivered.
    open: set[StreamName] = field(default_factory=set)
    # What reached each table, in order: (stream, ordinal).
    learned: defaultdict[int, list[tuple[StreamName, int]]] = field(default_factory=lambda: defaultdict(list))
    undelivered: set[StreamName] = field(default_factory=set)

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case StartWorker(worker):
                    self.starting.append(worker)
                case RunStream(worker, stream, _):
                    assert worker in self.alive
                    assert stream not in {**self.claiming, **self.playing, **self.waiting}
                    self.claiming[stream] = worker
                case GrantTask(worker, stream):
                    assert self.waiting.pop(stream) == worker
                    self.playing[stream] = worker
                    self.open.add(stream)
                    self.check_bounds()
                case StopStream(worker, stream):
                    assert self.waiting.pop(stream) == worker
                    self.carry_out(self.supervisor.handle(StreamStopped(stream)))

    def check_bounds(self) -> None:
        for table, bound in zip(self.tables, self.bounds, strict=True):
            assert sum(name in self.open for name in table.streams) <= bound

    def start_one(self, pick: int) -> None:
        worker = self.starting.pop(pick % len(self.starting))
        self.alive.add(worker)
        self.carry_out(self.supervisor.handle(WorkerReady(worker)))

    def claim_one(self, pick: int) -> None:
        name = sorted(self.claiming)[pick % len(self.claiming)]
        worker = self.claiming.pop(name)
        if name in self.undelivered:
            self.deliver(name)
        self.open.discard(name)
        self.go_on(name, worker)

    def end_one(self, pick: int, *, dies: bool = False) -> None:
        """A task is committed; unless its worker `dies` at this moment, it is told and its outcome delivered."""
        name = sorted(self.playing)[pick % len(self.playing)]
        self.ended[name] += 1
        self.undelivered.add(name)
        if dies:
            self.kill(self.playing[name])
            return
        worker = self.playing.pop(name)
        self.deliver(name)
        self.open.discard(name)
        self.carry_out(self.supervisor.handle(TaskDone(name)))
        self.go_on(name, worker)

    def deliver(self, name: StreamName) -> None:
        self.undelivered.discard(name)
        (table,) = (i for i, table in enumerate(self.tables) if name in table.streams)
        self.learned[table].append((name, self.ended[name] - 1))

    def go_on(self, name: StreamName, worker: int) -> None:
        if self.ended[name] == self.lengths[name]:
            self.carry_out(self.supervisor.handle(StreamDone(name)))
        else:
            self.waiting[name] = worker
            self.carry_out(self.supervisor.handle(StreamReady(worker, name, self.ended[name])))

    def kill(self, worker: int) -> None:
        self.alive.discard(worker)
        for streams in (self.claiming, self.playing, self.waiting):
            for name in [name for name, where in streams.items() if where == worker]:
                del streams[name]
        self.carry_out(self.supervisor.handle(WorkerLost(worker)))

    def fail_one(self, pick: int) -> None:
        """A stream that plays cannot go on, such as on a full disk; what it had begun stays open for ever."""
        name = sorted(self.playing)[pick % len(self.playing)]
        del self.playing[name]
        self.open.discard(name)
        self.carry_out(self.supervisor.handle(StreamFailed(name, "disk full")))

    def launch_again(self) -> None:
        """The same command again: only the files are left."""
        self.claiming, self.playing, self.waiting = {}, {}, {}
        self.starting, self.alive = [], set()
        left = [n for n in self.lengths if self.ended[n] < self.lengths[n] or n in self.undelivered]
        turns = [Turns([n for n in table.streams if n in left], bound=1) for table in self.tables]
        self.supervisor = Supervisor(left, num_workers=2, streams_per_worker=1, max_deaths=10**6, turns=turns)
        self.carry_out(self.supervisor.start())

    def finish(self) -> None:
        """Everything that can happen happens; a world in which nothing can is a deadlock."""
        while not self.supervisor.finished:
            for act, on in (
                (self.end_one, self.playing),
                (self.claim_one, self.claiming),
                (self.start_one, self.starting),
            ):
                if on:
                    act(0)
                    break
            else:
                raise AssertionError("deadlock: nothing runs, and the run is not over")


def world(cells: Sequence[Sequence[int]], bounds: Sequence[int], num_workers: int) -> World:
    """Streams by table, with their numbers of tasks; the plan's order is not that of the names."""
    lengths: dict[StreamName, int] = {}
    tables = []
    for place, (streams, bound) in enumerate(zip(cells, bounds, strict=True)):
        names = [(f"cell {9 - index % 2 - 2 * place}", index) for index in range(len(streams))]
        lengths |= dict(zip(names, streams, strict=True))
        tables.append(Turns(names, bound=bound))
    supervisor = Supervisor(
        list(lengths), num_workers=num_workers, streams_per_worker=1, max_deaths=10**6, turns=tables
    )
    made = World(supervisor=supervisor, tables=tables, bounds=bounds, lengths=lengths)
    made.carry_out(supervisor.start())
    return made


CELLS = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=5), min_size=1, max_size=3)
ACTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 100)), max_size=80)


def shake(shaken: World, acts: Sequence[tuple[int, int]]) -> None:
    for kind, pick in acts:
        if kind == 0 and shaken.starting:
            shaken.start_one(pick)
        elif kind == 1 and shaken.claiming:
            shaken.claim_one(pick)
        elif kind == 2 and shaken.playing:
            shaken.end_one(pick)
        elif kind == 3 and shaken.playing:
            shaken.end_one(pick, dies=True)
        elif kind == 4 and shaken.alive:
            shaken.kill(sorted(shaken.alive)[pick % len(shaken.alive)])


def in_order(table: Turns, lengths: dict[StreamName, int]) -> list[tuple[StreamName, int]]:
    """All tasks of a table in the order of the plan."""
    return [
        (name, ordinal)
        for ordinal in range(max(lengths[name] for name in table.streams))
        for name in table.streams
        if ordinal < lengths[name]
    ]


@given(cells=CELLS, bound=st.integers(2, 6), num_workers=st.integers(1, 4), acts=ACTS)
def test_never_more_than_the_bound_is_open_and_all_streams_end(
    cells: list[list[int]], bound: int, num_workers: int, acts: list[tuple[int, int]]
) -> None:
    shaken = world(cells, [bound] * len(cells), num_workers)
    shake(shaken, acts)
    shaken.finish()
    for table, streams in enumerate(shaken.tables):
        expected = sorted((name, ordinal) for name in streams.streams for ordinal in range(shaken.lengths[name]))
        assert sorted(shaken.learned[table]) == expected


@given(cells=CELLS, num_workers=st.integers(1, 4), acts=ACTS)
def test_with_bound_one_a_table_learns_in_the_order_of_the_plan(
    cells: list[list[int]], num_workers: int, acts: list[tuple[int, int]]
) -> None:
    shaken = world(cells, [1] * len(cells), num_workers)
    shake(shaken, acts)
    shaken.finish()
    for table, streams in enumerate(shaken.tables):
        assert shaken.learned[table] == in_order(streams, shaken.lengths)


@given(cells=CELLS, num_workers=st.integers(1, 3), acts=ACTS, failing=st.lists(st.integers(0, 9), min_size=1))
def test_with_bound_one_streams_that_fail_change_nothing_in_the_end(
    cells: list[list[int]], num_workers: int, acts: list[tuple[int, int]], failing: list[int]
) -> None:
    shaken = world(cells, [1] * len(cells), num_workers)
    for pick in failing:
        shake(shaken, acts)
        if shaken.playing:
            shaken.fail_one(pick)
        shaken.finish()
        for table, streams in enumerate(shaken.tables):
            learned = shaken.learned[table]
            assert learned == in_order(streams, shaken.lengths)[: len(learned)]
        shaken.launch_again()
    shaken.finish()
    for table, streams in enumerate(shaken.tables):
        assert shaken.learned[table] == in_order(streams, shaken.lengths)


@given(
    cells=CELLS, bound=st.integers(2, 3), num_workers=st.integers(1, 3), acts=ACTS, failing=st.lists(st.integers(0, 9))
)
def test_with_a_wider_bound_streams_that_fail_hold_up_nobody(
    cells: list[list[int]], bound: int, num_workers: int, acts: list[tuple[int, int]], failing: list[int]
) -> None:
    shaken = world(cells, [bound] * len(cells), num_workers)
    for pick in failing:
        shake(shaken, acts)
        if shaken.playing:
            shaken.fail_one(pick)
    shaken.finish()
    failed = set(shaken.supervisor.failures())
    for name, length in shaken.lengths.items():
        assert name in failed or shaken.ended[name] == length
