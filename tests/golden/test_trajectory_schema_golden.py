"""A change of the stored columns must raise the schema version: files of earlier runs are read by it."""

from __future__ import annotations

from memcon import ids
from memcon_platform.trajectory.schemas import SCHEMA_VERSION, SCHEMAS, TABLES

# Version -> fingerprint of each table's columns, types, nullability and volatility. Add a line, never change one.
FINGERPRINTS = {1: {"episodes": "fdc349d75b2955f0", "steps": "4ef291bbd15c0faa", "decisions": "b246c750565dc25b"}}


def test_the_columns_are_those_of_their_version() -> None:
    found = {
        table: ids.stable_hash([[f.name, str(f.type), f.nullable, bool(f.metadata)] for f in SCHEMAS[table]])
        for table in TABLES
    }

    assert found == FINGERPRINTS[SCHEMA_VERSION]
