"""How far a run is, read from the stream files without claiming them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from memcon.errors import DamagedFileError, StorageError
from memcon.stream_file import DAMAGE_REMEDY, SEEDED

__all__ = ["StreamStatus", "error_path", "stream_path", "stream_status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """One stream as its file shows it."""

    num_ended: int
    num_success: int
    num_unevaluable: int
    # Outcomes that are not acknowledged yet, or a cancel that may not be.
    unsettled: bool
    # Why the last try at the stream ended, or "".
    error: str
    # What the memory begins with is there (`preload`, `start_from.memory`).
    is_seeded: bool = False
    # Outcomes that are not acknowledged yet: their tokens fit the key of the machine that made them alone.
    undelivered: int = 0

    def done(self, num_tasks: int) -> bool:
        """Nothing is left to run or to tell the policy."""
        return self.num_ended >= num_tasks and not self.unsettled


def stream_path(run_dir: Path, cell: str, stream: int) -> Path:
    """File of a stream."""
    return run_dir / "streams" / cell / f"{stream:03d}.sqlite"


def error_path(run_dir: Path, cell: str, stream: int) -> Path:
    """Where the reason of a failed stream stands until its next try."""
    return stream_path(run_dir, cell, stream).with_suffix(".error")


def stream_status(run_dir: Path, cell: str, stream: int) -> StreamStatus:
    """Status of one stream; an absent file is a stream that has not begun.

    Raises:
        DamagedFileError: the file is no sound stream file.
        StorageError: the file cannot be read now.
    """
    path, failed = stream_path(run_dir, cell, stream), error_path(run_dir, cell, stream)
    try:
        error = failed.read_text().strip() if failed.exists() else ""
        if not path.exists():
            return StreamStatus(num_ended=0, num_success=0, num_unevaluable=0, unsettled=False, error=error)
        if path.stat().st_size == 0:
            # A stream file gets its name when it is complete, so an empty one has lost what it held.
            raise DamagedFileError(path, "it is empty", DAMAGE_REMEDY)
        return _read(path, error)
    except OSError as problem:
        raise _unreadable(path, problem.strerror or str(problem)) from problem
    except sqlite3.OperationalError as problem:
        # The statements are ours: one that does not fit meets tables that are not.
        if getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF != sqlite3.SQLITE_ERROR:
            raise _unreadable(path, str(problem)) from problem
        raise DamagedFileError(path, str(problem), DAMAGE_REMEDY) from problem
    except sqlite3.DatabaseError as problem:
        raise DamagedFileError(path, str(problem), DAMAGE_REMEDY) from problem


def _unreadable(path: Path, problem: str) -> StorageError:
    return StorageError(f"cannot read {path}: {problem}; mend space, permissions or the disk and run it again")


def _read(path: Path, error: str) -> StreamStatus:
    # A stream that nobody has open is read without making files beside it.
    how = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)
    try:
        classes = dict(
            connection.execute(
                "SELECT json_extract(record, '$.outcome.outcome_class'), COUNT(*) FROM episodes GROUP BY 1"
            ).fetchall()
        )
        last = connection.execute(
            "SELECT json_extract(record, '$.outcome.outcome_class') FROM episodes ORDER BY ordinal DESC LIMIT 1"
        ).fetchone()
        waiting = connection.execute("SELECT COUNT(*) FROM outbox").fetchone()[0]
        seeded = connection.execute("SELECT 1 FROM meta WHERE key = ?", (SEEDED,)).fetchone()
    finally:
        connection.close()
    return StreamStatus(
        num_ended=sum(classes.values()),
        num_success=classes.get("success", 0),
        num_unevaluable=classes.get("unevaluable", 0),
        unsettled=waiting > 0 or (last is not None and last[0] == "unevaluable"),
        error=error,
        is_seeded=seeded is not None,
        undelivered=waiting,
    )
