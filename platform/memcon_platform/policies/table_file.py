"""Tables in a file: the JSON that `memcon policy export` writes, and `import` and `diff` take.

Numbers and settings only. Which decisions made them, and those that are still open, stand in the journal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from memcon import codec, ids
from memcon.errors import DamagedFileError, MemconError, SchemaVersionError, StorageError, UnknownNameError
from memcon.files import replace_file
from memcon.learning import transfer
from memcon.learning.q_table import Numbers
from memcon.learning.settings import encode_settings
from memcon.policy_types import LearningSettings
from memcon_platform.policies.record import TableRecord

__all__ = ["TABLE_FILE_VERSION", "TableFile", "write_tables"]

TABLE_FILE_VERSION = 1

_CELL = {"q": str, "taken": int, "credited": int, "squares": str}
_KIND = "memcon policy tables"
_REMEDY = "export it again"


def write_tables(path: Path, records: Iterable[TableRecord]) -> None:
    """Put `records` into the file `path`, whole or not at all.

    Raises:
        StorageError: the place cannot be written; what stood there still stands.
    """
    tables = {record.table: _encoded(record) for record in records}
    document = {
        "kind": _KIND,
        "schema_version": TABLE_FILE_VERSION,
        "checksum": _checksum(tables),
        "tables": tables,
    }
    replace_file(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


class TableFile:
    """The tables in the file at `path`.

    Raises:
        StorageError: it cannot be read.
        DamagedFileError: it is no such file, or was altered.
        SchemaVersionError: another version of memcon wrote it.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        tables = _read(path)
        try:
            self._records = {table: _decoded(table, content) for table, content in tables.items()}
        except (MemconError, KeyError, TypeError, AttributeError) as error:
            raise DamagedFileError(path, f"{type(error).__name__}: {error}", _REMEDY) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def tables(self) -> list[str]:
        """Names of the tables, sorted."""
        return sorted(self._records)

    def table(self, table: str) -> TableRecord:
        """One table.

        Raises:
            UnknownNameError: there is none of that name.
        """
        record = self._records.get(table)
        if record is None:
            raise UnknownNameError(f"table in {self.name}", table, self._records)
        return record


def _encoded(record: TableRecord) -> dict[str, Any]:
    taken, credited = record.totals()
    return {
        "settings": encode_settings(record.settings),
        "fingerprint": transfer.settings_fingerprint(record.settings),
        "imported": record.source,
        "version": record.version,
        "taken": taken,
        "credited": credited,
        "open": record.open,
        "numbers": record.numbers,
    }


def _decoded(table: str, content: Mapping[str, Any]) -> TableRecord:
    return TableRecord(
        table=table,
        settings=codec.decode(LearningSettings, content["settings"], where=f"settings of table '{table}'"),
        source=content["imported"],
        numbers=_checked(content["numbers"]),
        open=content["open"],
        version=content["version"],
    )


def _checked(numbers: Numbers) -> Numbers:
    """`numbers` if they have the form of a dump's; by hand, since the general decoder takes 20 times as long.

    Raises:
        TypeError: they have not.
    """
    for key, arms in numbers.items():
        for arm, cell in arms.items():
            if {name: type(value) for name, value in cell.items()} != _CELL:
                raise TypeError(f"'{arm}' at '{key}' has no numbers: {cell}")
    return numbers


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {error.strerror}; give a file that `memcon policy export` wrote"
        ) from (error)
    except ValueError as error:
        raise DamagedFileError(path, f"it is no JSON ({error})", _REMEDY) from error
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise DamagedFileError(path, "it holds no exported tables", "give a file that `memcon policy export` wrote")
    version, tables = document.get("schema_version"), document.get("tables")
    if version != TABLE_FILE_VERSION:
        raise SchemaVersionError(path, version, TABLE_FILE_VERSION, remedy="use the memcon that wrote it")
    if not isinstance(tables, dict) or document.get("checksum") != _checksum(tables):
        raise DamagedFileError(path, "its checksum does not fit: it was altered or torn", _REMEDY)
    return tables


def _checksum(tables: Mapping[str, Any]) -> str:
    return ids.stable_hash(_KIND, tables, size=16)
