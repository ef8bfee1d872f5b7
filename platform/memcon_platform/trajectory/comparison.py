"""compare: are two runs equal, byte for byte, outside the volatile columns? For `memcon data compare` and the tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from memcon_platform.trajectory.blocks import finished_blocks
from memcon_platform.trajectory.reader import read_run
from memcon_platform.trajectory.schemas import ADDED, ALL_TABLES, KEYS, SCHEMAS, is_volatile

__all__ = ["Difference", "compare"]

_Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One way in which two runs differ."""

    table: str
    # "" when whole rows are in one run only.
    column: str
    # "values", "only_in_first" or "only_in_second".
    kind: str
    num_rows: int
    # Key of the first such row, (cell, stream, ordinal, ...), and what the two runs hold there.
    key: _Key
    first: str = ""
    second: str = ""

    def __str__(self) -> str:
        place = ", ".join(f"{name} {value}" for name, value in zip(KEYS[self.table], self.key, strict=True))
        if self.kind == "values":
            column = f"{self.table}.{self.column}"
            return f"{column}: {self.num_rows} rows differ; first at {place}: {self.first} | {self.second}"
        where = "first" if self.kind == "only_in_first" else "second"
        return f"{self.table}: {self.num_rows} rows only in the {where} run; first at {place}"


def compare(run_a: Path, run_b: Path) -> list[Difference]:
    """Differences of all columns that are not volatile, rows matched by their key; empty = the runs are equal.

    Floats are compared by their bits, so that -0.0 is not 0.0 and NaN equals itself. Columns that files of an earlier
    schema version lack are left out: what is read in their place was never stored. So are single values of such columns
    that were not kept when their task was played.

    Raises:
        NotFoundError, DamagedFileError, SchemaVersionError: as in `read_run`.
    """
    found: list[Difference] = []
    for table in ALL_TABLES:
        sides = [_sorted(getattr(read_run(run, tables=(table,)), table), table) for run in (run_a, run_b)]
        found += _compare_table(table, sides[0], sides[1], left_out=_lacking(run_a, table) | _lacking(run_b, table))
    return found


def _lacking(run: Path, table: str) -> set[str]:
    """Columns that some file of the run's table was written without."""
    added = set(ADDED.get(table, ()))
    if not added:
        return set()
    files = (pq.read_schema(block.path(run, table), memory_map=False) for block in finished_blocks(run))
    return {column for schema in files for column in added - set(schema.names)}


def _sorted(rows: Any, table: str) -> Any:
    return rows.sort_by([(key, "ascending") for key in KEYS[table]])


def _keys(rows: Any, table: str) -> list[_Key]:
    return list(zip(*(rows[key].to_pylist() for key in KEYS[table]), strict=True))


def _compare_table(table: str, a: Any, b: Any, *, left_out: set[str]) -> list[Difference]:
    keys_a, keys_b = _keys(a, table), _keys(b, table)
    found = []
    if keys_a != keys_b:
        set_a, set_b = set(keys_a), set(keys_b)
        found += _lonely(table, "only_in_first", [key for key in keys_a if key not in set_b])
        found += _lonely(table, "only_in_second", [key for key in keys_b if key not in set_a])
        a = a.take(pa.array([i for i, key in enumerate(keys_a) if key in set_b], pa.int64()))
        b = b.take(pa.array([i for i, key in enumerate(keys_b) if key in set_a], pa.int64()))
        keys_a = [key for key in keys_a if key in set_b]
    for column in SCHEMAS[table].names:
        if not is_volatile(table, column) and column not in left_out:
            found += _compare_column(table, column, keys_a, first=a[column], second=b[column])
    return found


def _lonely(table: str, kind: str, keys: Sequence[_Key]) -> list[Difference]:
    if not keys:
        return []
    return [Difference(table=table, column="", kind=kind, num_rows=len(keys), key=keys[0])]


def _compare_column(table: str, column: str, keys: Sequence[_Key], *, first: Any, second: Any) -> list[Difference]:
    if not _holds_floats(first.type) and first.equals(second):
        return []
    values_a, values_b = first.to_pylist(), second.to_pylist()
    added = ADDED.get(table, {}).get(column)
    may_lack = added is not None and added.absent is None
    pairs = enumerate(zip(values_a, values_b, strict=False))
    wrong = [i for i, (a, b) in pairs if _bits(a) != _bits(b) and not (may_lack and (a is None or b is None))]
    if not wrong:
        return []
    at = wrong[0]
    return [
        Difference(
            table=table,
            column=column,
            kind="values",
            num_rows=len(wrong),
            key=keys[at],
            first=_shown(values_a[at]),
            second=_shown(values_b[at]),
        )
    ]


def _holds_floats(kind: Any) -> bool:
    if pa.types.is_map(kind):
        return _holds_floats(kind.item_type)
    return bool(pa.types.is_floating(kind))


def _bits(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, list | tuple):
        return tuple(_bits(item) for item in value)
    return value


def _shown(value: Any, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
