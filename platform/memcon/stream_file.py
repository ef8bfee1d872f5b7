"""The file of a stream on disk: its lock, how it is made, opened and checked. `memcon.store` owns what is done with it.

A damaged file is refused and left as it is.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from memcon.errors import (
    ConfigError,
    DamagedFileError,
    LockedError,
    NotFoundError,
    SchemaVersionError,
    StorageError,
)
from memcon.files import sync_folder

__all__ = ["DAMAGE_REMEDY", "OWN_TABLES", "SEEDED", "lock_stream", "open_stream", "source_errors", "stream_source"]

SCHEMA_VERSION = 1
# "memc": tells a stream file from any other SQLite file.
APPLICATION_ID = 0x6D656D63
# A stream cannot begin anew inside its run: its decision ids stand in the journal already.
DAMAGE_REMEDY = "restore it from a copy, or start a new run under another name; nothing was written over it"

_SOURCE_REMEDY = "restore it from a copy, or start without it; nothing was copied and nothing was written over it"

# Key of `meta` that says that what the memory began with is there.
SEEDED = "seeded"
# The stream's own tables; every other one belongs to a memory.
OWN_TABLES = frozenset({"meta", "started", "episodes", "outbox"})
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE started (ordinal INTEGER NOT NULL, epoch INTEGER NOT NULL, worker_deaths INTEGER NOT NULL,
                      PRIMARY KEY (ordinal, epoch)) WITHOUT ROWID;
CREATE TABLE episodes (ordinal INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE outbox (decision_id TEXT PRIMARY KEY, ordinal INTEGER NOT NULL, record TEXT NOT NULL) WITHOUT ROWID;
"""


def lock_stream(path: Path) -> IO[str]:
    """Take the lock file at `path` for this process; closing the handle frees it.

    Raises:
        LockedError: another process holds it.
        OSError: the place cannot be written.
    """
    handle = path.open("a+")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.seek(0)
        owner = handle.read().strip() or "unknown"
        handle.close()
        raise LockedError(f"{path} is held by process {owner}; wait for it or end it") from None
    except BaseException:
        handle.close()
        raise
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


def open_stream(path: Path, identity: str) -> sqlite3.Connection:
    """The stream file at `path`, checked, or made when there is none.

    Raises:
        DamagedFileError: the file is no sound stream file.
        SchemaVersionError: another schema version wrote it.
        ConfigError: the file belongs to another stream.
        StorageError: the place cannot be written.
    """
    try:
        if not path.exists():
            _create(path, identity)
        elif path.stat().st_size == 0:
            # A new file gets its name when it is complete, so an empty one has lost what it held.
            raise DamagedFileError(path, "it is empty", DAMAGE_REMEDY)
        # One stream is driven by one task of the event loop, but commits run in the process's writer thread.
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.OperationalError) as error:
        raise StorageError(f"cannot open {path}: {error}; check permissions and space") from error
    try:
        _check_sound(connection, path, DAMAGE_REMEDY)
        _check_identity(connection, path, identity)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.OperationalError):
            raise StorageError(f"cannot open {path}: {error}; check permissions and space") from error
        if isinstance(error, sqlite3.DatabaseError):
            raise DamagedFileError(path, str(error), DAMAGE_REMEDY) from error
        raise
    return connection


def _create(path: Path, identity: str) -> None:
    """Make the file under another name and rename it, so that `path` is never half a stream file."""
    log = path.with_name(path.name + "-wal")
    if log.exists():
        # SQLite would play the orphan's pages into the new file.
        raise DamagedFileError(log, f"its database {path.name} is missing", "put it back, or move both files away")
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    connection = sqlite3.connect(fresh, isolation_level=None)
    try:
        connection.executescript(
            f"PRAGMA synchronous = FULL; BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID};"
            f"PRAGMA user_version = {SCHEMA_VERSION}; {_SCHEMA}"
        )
        connection.execute("INSERT INTO meta VALUES ('identity', ?)", (identity,))
        connection.execute("COMMIT")
    finally:
        connection.close()
    fresh.replace(path)
    sync_folder(path.parent)


@contextmanager
def stream_source(path: Path) -> Iterator[sqlite3.Connection]:
    """The stream file at `path` for reading only, checked and in one transaction: the state of one commit.

    Its owner, if it has one, goes on undisturbed. Without one the file cannot get one while the block runs, and nothing
    is made beside it, so that it may lie on media that take no writes; only a log that a killed owner left needs more.

    Raises:
        NotFoundError: no such file.
        DamagedFileError, SchemaVersionError: as in `open_stream`.
        StorageError: the file cannot be read.
    """
    if not path.is_file():
        raise NotFoundError(f"no stream file {path}; check the run folder and the cell that the memory comes from")
    if path.stat().st_size == 0:
        raise DamagedFileError(path, "it is empty", _SOURCE_REMEDY)
    with _kept_from_owners(path.with_suffix(".lock")) as is_free:
        how = "mode=ro&immutable=1" if is_free and not _has_log(path) else "mode=ro"
        with source_errors(path):
            connection = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, isolation_level=None)
        with closing(connection):
            with source_errors(path):
                connection.execute("BEGIN")
                _check_sound(connection, path, _SOURCE_REMEDY)
            yield connection


@contextmanager
def _kept_from_owners(lock: Path) -> Iterator[bool]:
    """Keep a stream from being claimed while the block runs, as far as its place allows; False when it has an owner."""
    try:
        handle = lock.open("rb")
    except OSError:
        # It was copied without its lock, or the lock is not ours to read: nobody claims it from here.
        yield True
        return
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            # A place that knows no locks has never had an owner.
            yield True
            return
        yield True


def _has_log(path: Path) -> bool:
    """Some commits of a killed owner may stand in the log beside the file only."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


@contextmanager
def source_errors(path: Path) -> Iterator[None]:
    """Tell errors of reading `path` by what the caller does next.

    Raises:
        StorageError: the file cannot be read.
        DamagedFileError: the file is broken.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        # The log of an owner needs its two side files, so that even a reader needs a folder that can be written.
        raise StorageError(f"cannot read {path}: {error}; check permissions of the file and its folder") from error
    except sqlite3.DatabaseError as error:
        raise DamagedFileError(path, " ".join(str(error).split()), _SOURCE_REMEDY) from error


def _check_sound(connection: sqlite3.Connection, path: Path, remedy: str) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise DamagedFileError(path, "it is no memcon stream file", remedy)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise SchemaVersionError(path, version, SCHEMA_VERSION)
    problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise DamagedFileError(path, " ".join(str(problem).split()), remedy)


def _check_identity(connection: sqlite3.Connection, path: Path, identity: str) -> None:
    found = connection.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
    if found is None or found[0] != identity:
        raise ConfigError(f"{path} belongs to another stream ({json.dumps(found and found[0])}, not {identity!r})")
