"""A journal's database file: all that knows SQLite. Another store gives the same few names.

WAL, synchronous = FULL: a commit is on the disk when it returns. Who writes begins its transaction as a writer, since a
reader that turns writer can be refused halfway; who reads takes a view of the last commit and keeps nobody out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa

from memcon.errors import DamagedFileError, LockedError, MemconError, StorageError

__all__ = ["Prepared", "Store", "damaged"]

# A commit waits this long for another process's transaction.
BUSY_TIMEOUT_S = 5.0

_REMEDY = "restore it from a copy, or start a new run under another name; nothing was written over it"


class Prepared:
    """A Core statement as the driver takes it; its values are given by name."""

    def __init__(self, statement: Any, dialect: sa.Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        self.text, self._order = str(compiled), tuple(compiled.positiontup)

    def values(self, **named: object) -> tuple[object, ...]:
        """The values in the statement's order."""
        return tuple([named[name] for name in self._order])


class Store:
    """The file at `path`: one connection that writes, a fresh one for each reading.

    Raises:
        StorageError: the place cannot be read or written.
    """

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self._reader = self._engine("BEGIN", "ro" if read_only else "rw", sa.pool.NullPool)
        self._writer: sa.Connection | None = None
        if not read_only:
            self._writer = self._open_writer()

    def prepared(self, statement: Any) -> Prepared:
        """`statement` for `driver`."""
        return Prepared(statement, self._reader.dialect)

    @contextmanager
    def reading(self, doing: str = "read") -> Iterator[sa.Connection]:
        """A view of the last commit. From any thread."""
        # The writer's own file changes under its readers, who see one commit nevertheless.
        unlocked = self._unlocked() if self._writer is None else None
        try:
            with self.translated(doing), self._reader.connect() as connection, connection.begin():
                yield connection
        except Exception as error:
            if unlocked is not None and unlocked != self._unlocked():
                # What looks like damage is one page from before a commit and one from after it.
                problem = "another process began to write it meanwhile; run the same command again"
                raise LockedError(f"cannot {doing} {self.path}: {problem}") from error
            raise

    @contextmanager
    def writing(self, doing: str) -> Iterator[sa.Connection]:
        """A transaction that no other writer is in; one thread at a time."""
        connection = self._writable()
        with self.translated(doing), connection.begin():
            yield connection

    @contextmanager
    def committing(self) -> Iterator[sqlite3.Connection]:
        """`writing` for an owner's commit, straight at the driver.

        32 us of the interpreter a commit against 90 through Core (measured); an owner's event loop waits for each.
        """
        driver = self._driver()
        with self.translated("commit to"):
            driver.execute("BEGIN IMMEDIATE")
            try:
                yield driver
                driver.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    driver.execute("ROLLBACK")
                raise

    def set_patience(self, seconds: float) -> None:
        """How long the writer waits for another writer."""
        self._driver().execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    def shrink(self) -> None:
        """Give the room of removed rows back to the disk, if nobody writes and there is space for it."""
        with suppress(LockedError, StorageError), self.translated("shrink"):
            self._driver().execute("VACUUM")

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._reader.dispose()
        if self._writer is not None:
            self._writer.close()
            self._writer.engine.dispose()

    @contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Map what the database raises to memcon's errors."""
        try:
            yield
        except MemconError:
            raise
        except (sa.exc.DBAPIError, sqlite3.Error) as error:
            cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
            if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
                raise LockedError(
                    f"cannot {doing} {self.path}: another process is writing it; end that process"
                ) from error
            if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}:
                raise damaged(self.path, str(cause)) from error
            raise StorageError(f"cannot {doing} {self.path}: {cause}; check permissions and space") from error

    def _open_writer(self) -> sa.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            place = self.path.parent
            raise StorageError(f"cannot write {place}: {error.strerror}; check permissions and space") from error
        engine = self._engine("BEGIN IMMEDIATE", "rwc", sa.pool.StaticPool)
        with self.translated("open"):
            return engine.connect()

    def _writable(self) -> sa.Connection:
        if self._writer is None:
            raise StorageError(f"{self.path} was opened to be read only; open it to be written")
        return self._writer

    def _driver(self) -> sqlite3.Connection:
        driver: Any = self._writable().connection.driver_connection
        return cast("sqlite3.Connection", driver)

    def _engine(self, begin: str, mode: str, pool: type[sa.pool.Pool]) -> sa.Engine:
        def _connect() -> sqlite3.Connection:
            # autocommit (isolation_level None): the "begin" hook below says how each transaction starts. The owner
            # opens the file in one thread and commits in its writer thread, never in both at once.
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={self._mode(mode)}",
                uri=True,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
            )
            # WAL is a lasting property of the file: set once, and never on a file that may be someone else's.
            if mode == "rwc" and self.path.stat().st_size == 0:
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            return connection

        engine = sa.create_engine("sqlite://", creator=_connect, poolclass=pool)

        @sa.event.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql(begin)

        return engine

    def _mode(self, mode: str) -> str:
        # A journal that was closed in order is read without making a lock file beside it.
        return "ro&immutable=1" if mode == "ro" and self._unlocked() else mode

    def _unlocked(self) -> tuple[int, int] | None:
        """Size and time of a journal that nobody has open; reading takes no lock there."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return None if Path(f"{self.path}-wal").exists() else (found.st_size, found.st_mtime_ns)


def damaged(path: Path, problem: str) -> DamagedFileError:
    """The error of a journal that cannot be trusted."""
    return DamagedFileError(path, problem, _REMEDY)
