"""Outcomes that a live agent has told and the server has not yet acknowledged: one SQLite file, standard library only.

What was added survives the process and a power cut. Delivering twice is safe, since owners know decisions by their
ids; so several processes may share a file. What a server refused is kept apart with its reason, never dropped.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from memcon import codec
from memcon.errors import DamagedFileError, MemconError, SchemaVersionError, StorageError
from memcon.policy_types import CancelRequest, OutcomeRequest

__all__ = ["Message", "Refusal", "Spool", "Spooled"]

Message: TypeAlias = OutcomeRequest | CancelRequest

SCHEMA_VERSION = 1
# "memo": tells a spool from any other SQLite file.
APPLICATION_ID = 0x6D656D6F
BUSY_TIMEOUT_S = 5.0
_KINDS: dict[str, type[Message]] = {"outcome": OutcomeRequest, "cancel": CancelRequest}
_SCHEMA = f"""
BEGIN IMMEDIATE;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE waiting (seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE refused (seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, body TEXT NOT NULL,
                      error TEXT NOT NULL, reason TEXT NOT NULL);
COMMIT;
"""
_REMEDY = "restore it from a copy, or move it away and lose what was not delivered; nothing was written over it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """One message that waits, with its place in the file."""

    seq: int
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One message that the server will never take, and why."""

    message: Message
    # Name of the error's class: what to do about it (`memcon.errors`).
    error: str
    reason: str


class Spool:
    """The open file at `path`, made with mode 0600 (tokens stand in it); None = in memory, lost with the process.

    One thread at a time.

    Raises:
        DamagedFileError: the file is no sound spool.
        SchemaVersionError: another version wrote it.
        StorageError: the place cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        with self._boundary():
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._file = sqlite3.connect(
                path or ":memory:", isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S
            )
        try:
            with self._boundary():
                self._prepare()
        except BaseException:
            self._file.close()
            raise

    def add(self, messages: Sequence[Message]) -> None:
        """Keep `messages` to be delivered, in order; they are durable when this returns.

        Raises:
            StorageError: the file cannot be written; none of them is kept.
        """
        rows = [(_kind_of(message), codec.encode_json(message)) for message in messages]
        with self._transaction():
            self._file.executemany("INSERT INTO waiting (kind, body) VALUES (?, ?)", rows)

    def waiting(self, after: int, limit: int) -> list[Spooled]:
        """The oldest messages behind place `after` that wait, at most `limit`.

        Raises:
            DamagedFileError: a row has not the form of its message.
        """
        with self._boundary():
            query = "SELECT seq, kind, body FROM waiting WHERE seq > ? ORDER BY seq LIMIT ?"
            rows = self._file.execute(query, (after, limit)).fetchall()
        return [Spooled(seq=seq, message=self._message(kind, body)) for seq, kind, body in rows]

    def settle(self, delivered: Sequence[Spooled], refused: Sequence[tuple[Spooled, MemconError]]) -> None:
        """Forget what was delivered and put what was refused aside, in one commit.

        Raises:
            StorageError: the file cannot be written; all of them wait on.
        """
        rows = [(type(error).__name__, str(error), item.seq) for item, error in refused]
        gone = [(item.seq,) for item in (*delivered, *[item for item, _ in refused])]
        with self._transaction():
            # Once, though another process that shares the file was refused too.
            self._file.executemany(
                "INSERT INTO refused (kind, body, error, reason) SELECT kind, body, ?, ? FROM waiting WHERE seq = ?",
                rows,
            )
            self._file.executemany("DELETE FROM waiting WHERE seq = ?", gone)

    def refused(self) -> list[Refusal]:
        """All that a server refused, oldest first."""
        with self._boundary():
            rows = self._file.execute("SELECT kind, body, error, reason FROM refused ORDER BY seq").fetchall()
        return [
            Refusal(message=self._message(kind, body), error=error, reason=reason) for kind, body, error, reason in rows
        ]

    def __len__(self) -> int:
        """How many messages wait."""
        with self._boundary():
            return int(self._file.execute("SELECT count(*) FROM waiting").fetchone()[0])

    def close(self) -> None:
        """Free the file; may be called twice."""
        self._file.close()

    # --- the file ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        # Looked at before anything is changed: the path may be another program's file.
        if self._version() == (0, 0) and self._is_empty():
            self._make()
        application, version = self._version()
        if application != APPLICATION_ID:
            raise DamagedFileError(self._path, "it is another program's SQLite file", "give another path")
        if version != SCHEMA_VERSION:
            raise SchemaVersionError(self._path, version, SCHEMA_VERSION)
        if self._file.execute("PRAGMA quick_check").fetchone()[0] != "ok":
            raise DamagedFileError(self._path, "its pages do not fit together", _REMEDY)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = FULL")

    def _make(self) -> None:
        try:
            self._file.executescript(_SCHEMA)
        except sqlite3.OperationalError:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
            # Another process made it in the same moment; if that is not so, the checks behind this say what is wrong.
            if self._is_empty():
                raise

    def _is_empty(self) -> bool:
        return bool(self._file.execute("SELECT count(*) = 0 FROM sqlite_master").fetchone()[0])

    def _version(self) -> tuple[int, int]:
        [application], [version] = (
            self._file.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        return int(application), int(version)

    def _message(self, kind: str, body: str) -> Message:
        try:
            return codec.decode_json(_KINDS[kind], body)
        except (KeyError, codec.CodecError) as error:
            raise DamagedFileError(self._path, f"a row of kind '{kind}': {error}", _REMEDY) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._boundary():
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                raise

    @contextmanager
    def _boundary(self) -> Iterator[None]:
        """SQLite's and the system's errors as ours."""
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.ProgrammingError, OSError) as error:
            raise StorageError(f"spool {self._path}: {error}; check the path, permissions and space") from error
        except sqlite3.DatabaseError as error:
            raise DamagedFileError(self._path, str(error), _REMEDY) from error


def _kind_of(message: Message) -> str:
    return "outcome" if isinstance(message, OutcomeRequest) else "cancel"
