"""Supervisor: who runs which stream. A pure state machine: events in, instructions out; no clock, no Ray.

    event ──▶ handle() ──▶ [instructions]        a pool carries them out and turns what happens into events

A stream is waiting, running on one worker, done, stopped or failed. A stream whose worker died goes back to the front
of the queue, and is told so; one whose workers die again and again without ending a task fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from memcon.errors import InvariantError

__all__ = [
    "Event",
    "Instruction",
    "RunStream",
    "StartWorker",
    "StopRequested",
    "StopWorker",
    "StreamDone",
    "StreamFailed",
    "StreamState",
    "StreamStopped",
    "Supervisor",
    "TaskDone",
    "WorkerLost",
    "WorkerReady",
]

# (cell id, stream index)
StreamName = tuple[str, int]


class StreamState(StrEnum):
    """Where a stream is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A started worker can take streams."""

    worker: int


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker's process is gone, with all that ran in it."""

    worker: int
    # One line, for the user.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TaskDone:
    """A stream has ended a task: its worker is alive and getting on."""

    stream: StreamName


@dataclass(frozen=True, slots=True)
class StreamDone:
    """A stream has no task left."""

    stream: StreamName


@dataclass(frozen=True, slots=True)
class StreamStopped:
    """A stream ended at a task boundary because it was asked to."""

    stream: StreamName


@dataclass(frozen=True, slots=True)
class StreamFailed:
    """A stream cannot go on; the message says why."""

    stream: StreamName
    message: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """End every stream at its next task boundary."""


Event = WorkerReady | WorkerLost | TaskDone | StreamDone | StreamStopped | StreamFailed | StopRequested

# --- instructions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start a worker under a number that was never used before."""

    worker: int


@dataclass(frozen=True, slots=True)
class RunStream:
    """Run a stream on a worker; `worker_died` = the stream's last worker died under it."""

    worker: int
    stream: StreamName
    worker_died: bool


@dataclass(frozen=True, slots=True)
class StopWorker:
    """Ask a worker's streams to end at their next task boundary."""

    worker: int


Instruction = StartWorker | RunStream | StopWorker


@dataclass(slots=True)
class _Stream:
    state: StreamState = StreamState.WAITING
    worker: int | None = None
    worker_died: bool = False
    # Worker deaths since the stream last ended a task.
    deaths: int = 0
    message: str = ""


@dataclass(slots=True)
class _Worker:
    ready: bool = False
    streams: set[StreamName] = field(default_factory=set)


class Supervisor:
    """Decides; never acts."""

    def __init__(
        self, streams: Sequence[StreamName], *, num_workers: int, streams_per_worker: int, max_deaths: int
    ) -> None:
        if len(set(streams)) != len(streams):
            raise InvariantError("a stream is planned twice")
        self._streams = {name: _Stream() for name in streams}
        self._waiting = deque(streams)
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
        active = {StreamState.WAITING, StreamState.RUNNING}
        return not any(stream.state in active for stream in self._streams.values())

    def state(self, name: StreamName) -> StreamState:
        """State of one stream."""
        return self._streams[name].state

    def streams_of(self, worker: int) -> tuple[StreamName, ...]:
        """Streams that run on `worker`; none when it was lost before."""
        found = self._workers.get(worker)
        return tuple(sorted(found.streams)) if found else ()

    def failures(self) -> dict[StreamName, str]:
        """Failed streams with their messages."""
        return {name: s.message for name, s in self._streams.items() if s.state is StreamState.FAILED}

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
            case StreamDone(stream):
                self._leave(stream, StreamState.DONE)
            case StreamStopped(stream):
                self._leave(stream, StreamState.STOPPED)
            case StreamFailed(stream, message):
                self._leave(stream, StreamState.FAILED, message)
            case StopRequested():
                return self._stop()
        return self._fill()

    def _leave(self, name: StreamName, state: StreamState, message: str = "") -> None:
        stream = self._streams[name]
        if stream.state is not StreamState.RUNNING or stream.worker is None:
            raise InvariantError(f"stream {name} is {stream.state}, so it cannot become {state}")
        self._workers[stream.worker].streams.discard(name)
        stream.state, stream.worker, stream.message = state, None, message

    def _lost(self, worker: int, reason: str) -> None:
        lost = self._workers.pop(worker, None)
        if lost is None:
            return
        for name in sorted(lost.streams, reverse=True):
            stream = self._streams[name]
            stream.deaths += 1
            if self._stopping:
                self._leave_lost(stream, StreamState.STOPPED)
            elif stream.deaths > self._max_deaths:
                self._leave_lost(stream, StreamState.FAILED)
                stream.message = f"its worker died {stream.deaths} times in a row without ending a task{_last(reason)}"
            else:
                stream.worker_died = True
                self._leave_lost(stream, StreamState.WAITING)
                self._waiting.appendleft(name)
        self._lost_in_a_row += 1
        if self._lost_in_a_row > self._max_deaths * self._num_workers:
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        message = f"{self._lost_in_a_row} workers died in a row without ending a task{_last(reason)}"
        for name in self._waiting:
            self._streams[name].state = StreamState.FAILED
            self._streams[name].message = message
        self._waiting.clear()

    @staticmethod
    def _leave_lost(stream: _Stream, state: StreamState) -> None:
        stream.state, stream.worker = state, None

    def _stop(self) -> list[Instruction]:
        self._stopping = True
        for name in self._waiting:
            self._streams[name].state = StreamState.STOPPED
        self._waiting.clear()
        return [StopWorker(worker) for worker in sorted(self._workers)]

    def _fill(self) -> list[Instruction]:
        if self._stopping:
            return []
        return [*self._assign(), *self._start_workers()]

    def _assign(self) -> list[Instruction]:
        """Give waiting streams to ready workers, always to the one with the fewest."""
        given: list[Instruction] = []
        while self._waiting:
            free = [
                (len(w.streams), n) for n, w in self._workers.items() if w.ready and len(w.streams) < self._capacity
            ]
            if not free:
                break
            worker = min(free)[1]
            name = self._waiting.popleft()
            stream = self._streams[name]
            stream.state, stream.worker = StreamState.RUNNING, worker
            self._workers[worker].streams.add(name)
            given.append(RunStream(worker, name, stream.worker_died))
            stream.worker_died = False
        return given

    def _start_workers(self) -> list[Instruction]:
        """Start workers up to the number asked for, but no more than there are streams to run."""
        active = sum(s.state in {StreamState.WAITING, StreamState.RUNNING} for s in self._streams.values())
        started: list[Instruction] = []
        while self._waiting and len(self._workers) < min(self._num_workers, active):
            self._workers[self._next_worker] = _Worker()
            started.append(StartWorker(self._next_worker))
            self._next_worker += 1
        return started


def _last(reason: str) -> str:
    return f" (the last: {reason})" if reason else ""
