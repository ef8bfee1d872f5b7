"""The served tables as a file, written when an owner stops: what `memcon replay verify` holds against the journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memcon.learning.shard import PolicyShard
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import export_path, journal_path

__all__ = ["EXPORT_SCHEMA_VERSION", "is_exported", "served_tables"]

EXPORT_SCHEMA_VERSION = 1


def served_tables(core: PolicyShard, shard: int, num_shards: int, last_seq: int) -> dict[str, Any]:
    """The export's form of a shard's tables after event `last_seq`."""
    return {
        "schema_version": EXPORT_SCHEMA_VERSION,
        "shard": shard,
        "num_shards": num_shards,
        "last_seq": last_seq,
        "tables": {table: core.dump(table) for table in core.tables()},
    }


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
