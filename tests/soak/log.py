"""The log of a client: one line a thing that it knows, written at once, so that it survives a `kill -9` of its writer.

A thing that is not in the log was not acknowledged to the client. Times are the machine's monotonic clock, which all
processes share.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from memcon import codec

__all__ = ["Began", "Decided", "Ended", "Failed", "LogReader", "LogWriter", "Record", "Told"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A life of the client began; from here on SIGTERM ends it in order."""

    life: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision was answered."""

    decision_id: str
    shard: int
    action_id: str
    is_fallback: bool
    asked: float
    answered: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An outcome was acknowledged: by the client's spool ("spooled"), or by the owner with this status."""

    decision_id: str
    status: str
    reward: float
    position: int
    num_decisions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A call raised."""

    what: str
    decision_id: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The client ended by itself: nothing was lost, unless these say so."""

    # Messages that its spool still held, and what the server had refused.
    waiting: int
    refused: tuple[str, ...]


Record: TypeAlias = Began | Decided | Told | Failed | Ended
_KINDS: dict[str, type[Record]] = {kind.__name__: kind for kind in (Began, Decided, Told, Failed, Ended)}


class LogWriter:
    """Appends to the log at `path`; several lives of a client write into one file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        # A life that was killed inside a line.
        if path.stat().st_size:
            os.write(self._file, b"\n")

    def write(self, record: Record) -> None:
        """Add one line; it is the system's when this returns."""
        os.write(self._file, f"{type(record).__name__} {codec.encode_json(record)}\n".encode())


class LogReader:
    """Reads what was appended since the last look; what a kill cut off is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._place = 0

    def new(self) -> list[Record]:
        """The records since the last look."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._place)
                content = file.read()
        except FileNotFoundError:
            return []
        lines = content[: content.rfind(b"\n") + 1]
        self._place += len(lines)
        return [record for line in lines.decode().splitlines() if (record := _record(line)) is not None]


def _record(line: str) -> Record | None:
    kind, _, body = line.partition(" ")
    try:
        return codec.decode_json(_KINDS[kind], body)
    except (KeyError, codec.CodecError):
        return None
