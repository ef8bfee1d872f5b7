"""read_run: the finished blocks of a run as Arrow tables. A file that cannot be trusted is named, never skipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from memcon.errors import DamagedFileError, NotFoundError, SchemaVersionError, StorageError
from memcon_platform.config.plan_file import no_run
from memcon_platform.trajectory.blocks import finished_blocks
from memcon_platform.trajectory.schemas import ALL_TABLES, SCHEMAS, TABLES, lacking, readable_versions, version_of

__all__ = ["RunTables", "read_file", "read_run"]

_REMEDY = "restore it from a copy; `memcon data check RUN` lists every damaged file"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTables:
    """The tables of a run, rows by (cell, stream, ordinal, index | position | arm); empty where not asked for."""

    # pyarrow.Table
    episodes: Any
    steps: Any
    decisions: Any
    # Empty too where the run has none.
    trials: Any


def read_run(
    run_dir: Path, *, tables: Sequence[str] = TABLES, columns: Mapping[str, Sequence[str]] | None = None
) -> RunTables:
    """All finished blocks of the run; `columns` narrows a table (key columns `cell`, `stream`, `ordinal` always come).

    Files of earlier schema versions are read with the defaults of the columns that they lack.

    Raises:
        NotFoundError: no such run folder, or no finished task in it yet.
        DamagedFileError: names the file that is broken or missing.
        SchemaVersionError: a file of a newer schema version.
    """
    if not run_dir.is_dir():
        raise no_run(run_dir)
    blocks = finished_blocks(run_dir)
    if not blocks:
        raise NotFoundError(
            f"{run_dir} has no finished task in Parquet yet; start or continue it with `memcon sweep CONFIG`"
        )
    wanted = {name: _selection(name, (columns or {}).get(name)) for name in ALL_TABLES}
    parts: dict[str, list[Any]] = {name: [_schema(name, wanted[name]).empty_table()] for name in ALL_TABLES}
    for block in blocks:
        marks = read_file(block.path(run_dir, "episodes"), "episodes", (*wanted["episodes"], "num_trials"))
        parts["episodes"].append(marks.select(list(wanted["episodes"])))
        for name in tables:
            if name != "episodes" and _has_file(name, marks):
                parts[name].append(_finished_rows(block.path(run_dir, name), name, wanted[name], marks["ordinal"]))
    return RunTables(**{name: pa.concat_tables(found) for name, found in parts.items()})


def read_file(path: Path, table: str, columns: Sequence[str] | None = None) -> Any:
    """One block file as a table with our schema.

    Raises:
        DamagedFileError: missing, truncated, or without our columns.
        SchemaVersionError: a newer schema version, or not a memcon table.
        StorageError: the file may not be read.
    """
    selection = _selection(table, columns)
    try:
        # Memory mapping off: a file that is replaced while it is read must not change under the reader.
        with pq.ParquetFile(path, memory_map=False, page_checksum_verification=True) as file:
            version = _version(path, table, file.schema_arrow)
            absent = lacking(table, version)
            content = file.read(columns=[name for name in selection if name not in absent])
        for name in selection:
            if name in absent:
                kind = SCHEMAS[table].field(name).type
                content = content.append_column(name, pa.array([absent[name]] * content.num_rows, kind))
        return content.select(list(selection)).cast(_schema(table, selection))
    except FileNotFoundError as error:
        raise DamagedFileError(path, "the file is missing although its block is finished", _REMEDY) from error
    except PermissionError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; mend its permissions") from error
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise DamagedFileError(path, str(error).splitlines()[0], _REMEDY) from error


def _version(path: Path, table: str, schema: Any) -> str:
    name, version = version_of(schema)
    known = readable_versions(table)
    if name != table or version not in known:
        raise SchemaVersionError(path, f"{name} {version}".strip() or "none", f"{table} {', '.join(known)}")
    return version


def _has_file(table: str, episodes: Any) -> bool:
    """The block has a file of `table`: of `trials` only where its episodes have any."""
    return table in TABLES or bool(pc.any(pc.greater(episodes["num_trials"], 0)).as_py())


def _finished_rows(path: Path, table: str, columns: Sequence[str], ordinals: Any) -> Any:
    """Rows of the ordinals that the block's episodes file names.

    A crash between the files of one block leaves newer steps and decisions beside older episodes; what has no episode
    is not finished.
    """
    rows = read_file(path, table, columns)
    finished = pc.is_in(rows["ordinal"], value_set=ordinals.combine_chunks())
    return rows.filter(finished)


def _selection(table: str, columns: Sequence[str] | None) -> tuple[str, ...]:
    names: list[str] = SCHEMAS[table].names
    if columns is None:
        return tuple(names)
    keep = {"cell", "stream", "ordinal", *columns}
    return tuple(name for name in names if name in keep)


def _schema(table: str, columns: Sequence[str]) -> Any:
    whole = SCHEMAS[table]
    return pa.schema([whole.field(name) for name in columns], metadata=whole.metadata)
