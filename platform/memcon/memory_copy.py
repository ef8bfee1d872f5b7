"""Copies the memory of one stream into the file of another: every table that is not the stream's own.

Knows no backend: a table is taken as it stands, with its rows in their order and its indexes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from memcon.errors import ConfigError, ConflictError
from memcon.stream_file import OWN_TABLES, source_errors, stream_source

__all__ = ["copy_memory_tables"]

# Rows in memory at a time.
_CHUNK = 500


def copy_memory_tables(path: Path, target: sqlite3.Connection, *, num_ended: int | None = None) -> None:
    """Copy into `target`, inside its open transaction, what the memory of the stream file `path` holds.

    Args:
        path: the stream file; only read.
        target: of the stream that takes the memory.
        num_ended: tasks that the stream of `path` must have ended; None = any number.

    Raises:
        NotFoundError, DamagedFileError, SchemaVersionError, StorageError: `path` cannot be taken, as in
            `stream_source`.
        ConflictError: it has ended another number of tasks.
        ConfigError: a table cannot be copied, or `target` has another one under its name.
        sqlite3.Error: `target` refuses.
    """
    with stream_source(path) as source:
        _check_state(source, path, num_ended)
        for name, made_by in _tables(source, path):
            _make(target, name, made_by, path)
            columns = None
            for rows in _rows(source, name, path):
                columns = columns or ", ".join("?" * len(rows[0]))
                target.executemany(f"INSERT INTO {_quoted(name)} VALUES ({columns})", rows)
            for index, statement in _indexes(source, name, path):
                if not target.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (index,)).fetchone():
                    target.execute(statement)


def _check_state(source: sqlite3.Connection, path: Path, num_ended: int | None) -> None:
    with source_errors(path):
        (found,) = source.execute("SELECT COUNT(*) FROM episodes").fetchone()
    if num_ended is not None and found != num_ended:
        raise ConflictError(
            f"cannot copy the memory of {path}: its run has gone on, it had ended {num_ended} tasks when this run "
            f"looked, now {found}; put the file back as it was, or start a new run under another name"
        )


def _tables(source: sqlite3.Connection, path: Path) -> list[tuple[str, str]]:
    """Name and CREATE statement of each table of the memory, by name."""
    with source_errors(path):
        found = source.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
            "ORDER BY name"
        ).fetchall()
    tables = [(str(name), str(made_by)) for name, made_by in found if name not in OWN_TABLES]
    for name, made_by in tables:
        if made_by.upper().startswith("CREATE VIRTUAL"):
            raise ConfigError(f"{path}: its memory has the virtual table '{name}', which cannot be copied")
    return tables


def _make(target: sqlite3.Connection, name: str, made_by: str, path: Path) -> None:
    """Make the table, unless the backend has made the same one already and left it empty."""
    present = target.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone()
    if present is None:
        target.execute(made_by)
        return
    is_empty = target.execute(f"SELECT 1 FROM {_quoted(name)} LIMIT 1").fetchone() is None
    if present[0] != made_by or not is_empty:
        raise ConfigError(
            f"cannot copy the memory of {path}: this stream has a table '{name}' that is not the same or not empty; "
            "take the memory settings of that run"
        )


def _rows(source: sqlite3.Connection, name: str, path: Path) -> Iterator[list[tuple[object, ...]]]:
    with source_errors(path):
        # Along the table itself, never along an index: rows keep their order.
        cursor = source.execute(f"SELECT * FROM {_quoted(name)} NOT INDEXED")
    while True:
        with source_errors(path):
            rows = cursor.fetchmany(_CHUNK)
        if not rows:
            return
        yield rows


def _indexes(source: sqlite3.Connection, name: str, path: Path) -> list[tuple[str, str]]:
    """Name and CREATE statement of the indexes of a table, those that come with the table itself left out."""
    with source_errors(path):
        found = source.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL "
            "ORDER BY name",
            (name,),
        ).fetchall()
    return [(str(index), str(made_by)) for index, made_by in found]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
