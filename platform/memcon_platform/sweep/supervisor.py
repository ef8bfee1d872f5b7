"""Supervisor: who runs which stream. A pure state machine: events in, instructions out; no clock, no Ray.

    event ──▶ handle() ──▶ [instructions]        a pool carries them out and turns what happens into events

A stream is waiting, running on one worker, done, stopped or failed. A stream whose worker died goes back to the front
of the queue, and is told so; one whose workers die again and again without ending a task fails. Streams of a table
with `max_open_episodes` are claimed at once, all of them, and begin each task when it is their turn (`Turns`). Where
these turns make a table exact, a stream that fails stops the table: its other streams end stopped at their next turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from memcon.errors import InvariantError
from memcon_platform.sweep.events import (
    Event,
    GrantTask,
    Instruction,
    RunStream,
    StartWorker,
    StopRequested,
    StopStream,
    StopWorker,
    StreamDone,
    StreamFailed,
    StreamName,
    StreamReady,
    StreamStopped,
    TaskDone,
    WorkerLost,
    WorkerReady,
)
from memcon_platform.sweep.turns import Turns

__all__ = ["StreamName", "StreamState", "Supervisor"]


class StreamState(StrEnum):
    """Where a stream is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


_STATE_AFTER = {
    StreamDone: StreamState.DONE,
    StreamStopped: StreamState.STOPPED,
    StreamFailed: StreamState.FAILED,
}


@dataclass(slots=True)
class _Stream:
    state: StreamState = StreamState.WAITING
    worker: int | None = None
    worker_died: bool = False
    # Worker deaths since the stream last ended a task, those aside in which it only waited for its turn.
    deaths: int = 0
    message: str = ""
    # Of its table, if that is bounded.
    turns: Turns | None = None

    @property
    def active(self) -> bool:
        return self.state in {StreamState.WAITING, StreamState.RUNNING}


@dataclass(slots=True)
class _Worker:
    ready: bool = False
    # Streams that run when they can, and those that mostly wait for a turn.
    free: set[StreamName] = field(default_factory=set)
    gated: set[StreamName] = field(default_factory=set)

    def held(self, *, gated: bool) -> set[StreamName]:
        return self.gated if gated else self.free


class Supervisor:
    """Decides; never acts. The streams of `turns` are among `streams`, each at one table."""

    def __init__(
        self,
        streams: Sequence[StreamName],
        *,
        num_workers: int,
        streams_per_worker: int,
        max_deaths: int,
        turns: Sequence[Turns] = (),
    ) -> None:
        if len(set(streams)) != len(streams):
            raise InvariantError("a stream is planned twice")
        self._streams = {name: _Stream() for name in streams}
        for table in turns:
            for name in table.streams:
                self._streams[name].turns = table
        self._waiting = deque(name for name in streams if self._streams[name].turns is None)
        self._waiting_gated = deque(name for name in streams if self._streams[name].turns is not None)
        # Tables at which a turn may begin, or that were stopped.
        self._moved: list[Turns] = []
        self._workers: dict[int, _Worker] = {}
        self._num_workers = num_workers
        self._capacity = streams_per_worker
        self._max_deaths = max_deaths
        self._next_worker = 0
        # Workers lost since a task last ended anywhere: when none ever gets on, starting more is no remedy.
        self._lost_in_a_row = 0
        self._stopping = False

    # --- read --------------------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Nothing runs and nothing will."""
        return not any(stream.active for stream in self._streams.values())

    def state(self, name: StreamName) -> StreamState:
        """State of one stream."""
        return self._streams[name].state

    def streams_of(self, worker: int) -> tuple[StreamName, ...]:
        """Streams that run on `worker`; none when it was lost before."""
        found = self._workers.get(worker)
        return tuple(sorted(found.free | found.gated)) if found else ()

    def failures(self) -> dict[StreamName, str]:
        """Failed streams with their messages."""
        return {name: s.message for name, s in self._streams.items() if s.state is StreamState.FAILED}

    def stops_table(self, name: StreamName) -> bool:
        """A failure of `name` stops its table."""
        turns = self._streams[name].turns
        return turns is not None and turns.exact

    # --- events ------------------------------------------------------------------------------------------------------

    def start(self) -> list[Instruction]:
        """The first instructions."""
        return self._fill()

    def handle(self, event: Event) -> list[Instruction]:
        """Take one event in; what to do now.

        Raises:
            InvariantError: the event cannot happen in this state.
        """
        match event:
            case WorkerReady(worker):
                self._workers[worker].ready = True
            case WorkerLost(worker, reason):
                self._lost(worker, reason)
            case TaskDone(stream):
                self._streams[stream].deaths = self._lost_in_a_row = 0
                return []
            case StreamReady(worker, stream, num_ended):
                self._wait(worker, stream, num_ended)
                return self._grants()
            case StreamDone() | StreamStopped() | StreamFailed():
                self._leave(event)
            case StopRequested():
                return self._stop()
        return [*self._fill(), *self._grants()]

    def _wait(self, worker: int, name: StreamName, num_ended: int) -> None:
        stream = self._streams[name]
        # What a worker said before it was lost, or before its stream ended, no longer counts.
        if stream.turns is not None and stream.state is StreamState.RUNNING and stream.worker == worker:
            stream.turns.ready(name, num_ended)
            self._moved.append(stream.turns)

    def _grants(self) -> list[Instruction]:
        """Begin the turns that can begin now; end the streams that wait at a table that was stopped."""
        moved, self._moved = self._moved, []
        if self._stopping:
            return []
        given: list[Instruction] = []
        for table in moved:
            given += [StopStream(self._worker_of(name), name) for name in table.dismissed()]
            given += [GrantTask(self._worker_of(name), name) for name in table.next()]
        return given

    def _worker_of(self, name: StreamName) -> int:
        worker = self._streams[name].worker
        if worker is None:
            raise InvariantError(f"stream {name} waits for its turn and has no worker")
        return worker

    def _leave(self, event: StreamDone | StreamStopped | StreamFailed) -> None:
        name, state = event.stream, _STATE_AFTER[type(event)]
        stream = self._streams[name]
        if stream.state is not StreamState.RUNNING or stream.worker is None:
            raise InvariantError(f"stream {name} is {stream.state}, so it cannot become {state}")
        self._workers[stream.worker].held(gated=stream.turns is not None).discard(name)
        if isinstance(event, StreamFailed):
            stream.message = event.message
        self._end(name, state)

    def _end(self, name: StreamName, state: StreamState) -> None:
        stream = self._streams[name]
        stream.state, stream.worker = state, None
        if stream.turns is not None:
            stream.turns.leaves(name)
            self._moved.append(stream.turns)
            if state is StreamState.FAILED and stream.turns.exact:
                self._stop_table(stream.turns)

    def _stop_table(self, table: Turns) -> None:
        """Without the turns of a failed stream the others would learn what no undisturbed run learns."""
        table.stop()
        for name in [name for name in self._waiting_gated if self._streams[name].turns is table]:
            self._waiting_gated.remove(name)
            self._end(name, StreamState.STOPPED)

    def _lost(self, worker: int, reason: str) -> None:
        lost = self._workers.pop(worker, None)
        if lost is None:
            return
        for name in sorted(lost.free | lost.gated, reverse=True):
            self._lost_stream(name, reason)
        self._lost_in_a_row += 1
        if self._lost_in_a_row > self._max_deaths * self._num_workers:
            self._give_up(reason)

    def _lost_stream(self, name: StreamName, reason: str) -> None:
        stream = self._streams[name]
        # A stream that only waited for its turn killed no worker.
        if stream.turns is None or not stream.turns.lost(name):
            stream.deaths += 1
        if self._stopping or (stream.turns is not None and stream.turns.stopped):
            self._end(name, StreamState.STOPPED)
        elif stream.deaths > self._max_deaths:
            self._end(name, StreamState.FAILED)
            stream.message = f"its worker died {stream.deaths} times in a row without ending a task{_last(reason)}"
        else:
            stream.state, stream.worker, stream.worker_died = StreamState.WAITING, None, True
            (self._waiting if stream.turns is None else self._waiting_gated).appendleft(name)

    def _give_up(self, reason: str) -> None:
        message = f"{self._lost_in_a_row} workers died in a row without ending a task{_last(reason)}"
        for name in (*self._waiting, *self._waiting_gated):
            self._streams[name].message = message
        self._end_waiting(StreamState.FAILED)

    def _end_waiting(self, state: StreamState) -> None:
        names = (*self._waiting, *self._waiting_gated)
        self._waiting.clear()
        self._waiting_gated.clear()
        for name in names:
            self._end(name, state)

    def _stop(self) -> list[Instruction]:
        self._stopping = True
        self._end_waiting(StreamState.STOPPED)
        return [StopWorker(worker) for worker in sorted(self._workers)]

    def _fill(self) -> list[Instruction]:
        if self._stopping:
            return []
        return [*self._assign(), *self._start_workers()]

    def _assign(self) -> list[Instruction]:
        """Give waiting streams to ready workers, always to the one with the fewest.

        Those of bounded tables do not count against `streams_per_worker`, since one that is not claimed would hold up
        all of its table. They are dealt out evenly.
        """
        share = -(-sum(s.active and s.turns is not None for s in self._streams.values()) // max(1, self._wanted()))
        return [
            *self._place(self._waiting, self._capacity, gated=False),
            *self._place(self._waiting_gated, share, gated=True),
        ]

    def _place(self, waiting: deque[StreamName], limit: int, *, gated: bool) -> list[Instruction]:
        given: list[Instruction] = []
        while waiting:
            held = [(len(w.held(gated=gated)), n) for n, w in self._workers.items() if w.ready]
            fewest, worker = min(held, default=(limit, 0))
            if fewest >= limit:
                break
            name = waiting.popleft()
            stream = self._streams[name]
            stream.state, stream.worker = StreamState.RUNNING, worker
            self._workers[worker].held(gated=gated).add(name)
            given.append(RunStream(worker, name, stream.worker_died))
            stream.worker_died = False
        return given

    def _wanted(self) -> int:
        """Workers asked for, but no more than there are streams to run."""
        return min(self._num_workers, sum(stream.active for stream in self._streams.values()))

    def _start_workers(self) -> list[Instruction]:
        wanted = self._wanted()
        started: list[Instruction] = []
        while (self._waiting or self._waiting_gated) and len(self._workers) < wanted:
            self._workers[self._next_worker] = _Worker()
            started.append(StartWorker(self._next_worker))
            self._next_worker += 1
        return started


def _last(reason: str) -> str:
    return f" (the last: {reason})" if reason else ""
