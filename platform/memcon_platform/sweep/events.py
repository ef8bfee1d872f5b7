"""What happens in a sweep, and what the Supervisor has done about it: the values between it and the pools."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Event",
    "GrantTask",
    "Instruction",
    "RunStream",
    "StartWorker",
    "StopRequested",
    "StopStream",
    "StopWorker",
    "StreamDone",
    "StreamFailed",
    "StreamName",
    "StreamReady",
    "StreamStopped",
    "TaskDone",
    "WorkerLost",
    "WorkerReady",
]

# (cell id, stream index)
StreamName = tuple[str, int]

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
class StreamReady:
    """A stream of a bounded table is claimed, owes the table nothing, and waits to begin its next task."""

    worker: int
    stream: StreamName
    num_ended: int


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


Event = WorkerReady | WorkerLost | TaskDone | StreamReady | StreamDone | StreamStopped | StreamFailed | StopRequested

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
class GrantTask:
    """Let a stream that waits begin its next task."""

    worker: int
    stream: StreamName


@dataclass(frozen=True, slots=True)
class StopStream:
    """End a stream that waits for its next task, here."""

    worker: int
    stream: StreamName


@dataclass(frozen=True, slots=True)
class StopWorker:
    """Ask a worker's streams to end at their next task boundary."""

    worker: int


Instruction = StartWorker | RunStream | GrantTask | StopStream | StopWorker
