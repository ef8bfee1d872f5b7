"""The served tables as a file, written when an owner stops: what `memcon replay verify` holds against the journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memcon.files import replace_file
from memcon.learning.shard import PolicyShard
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import export_path, journal_path

__all__ = ["EXPORT_SCHEMA_VERSION", "is_exported", "served_tables", "write_export"]

EXPORT_SCHEMA_VERSION = 1


def served_tables(
    core: PolicyShard, shard: int, num_shards: int, last_seq: int, *, key: str | None = None
) -> dict[str, Any]:
    """The export's form of a shard's tables after event `last_seq`; with `key` as `PolicyShard.dump_keys`."""
    return {
        "schema_version": EXPORT_SCHEMA_VERSION,
        "shard": shard,
        "num_shards": num_shards,
        "last_seq": last_seq,
        "tables": {table: core.dump(table) if key is None else core.dump_keys(table, key) for table in core.tables()},
    }


def write_export(path: Path, served: dict[str, Any]) -> None:
    """Put the `served` tables in place of the file at `path`, durably."""
    replace_file(path, json.dumps(served, sort_keys=True, indent=1, allow_nan=False))


def is_exported(directory: Path, shard: int, num_shards: int) -> bool:
    """The served tables reach to the end of the shard's journal: its last owner was not killed before its export.

    Raises:
        MemconError: the journal cannot be read.
    """
    journal = SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards, read_only=True)
    try:
        last_seq = journal.end()
    finally:
        journal.close()
    try:
        return bool(json.loads(export_path(directory, shard).read_text(encoding="utf-8"))["last_seq"] == last_seq)
    except (OSError, ValueError, KeyError, TypeError):
        return False
