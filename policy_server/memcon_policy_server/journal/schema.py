"""The tables of a journal, version 2, and how its rows are chained. Plain SQLAlchemy Core: no database is named here.

Version 1 had one row an event, as JSON; `migration` reads it. Version 2 has one row a commit.
"""

from __future__ import annotations

import hashlib
import struct

import sqlalchemy as sa

__all__ = ["GENESIS", "SCHEMA", "SCHEMA_VERSION", "chained", "commits", "meta"]

SCHEMA_VERSION = 2
CHECKSUM_BYTES = 16
# The checksum before the first commit.
GENESIS = bytes(CHECKSUM_BYTES)

# SQLite keeps a table in the order of a key that is an INTEGER, and needs an index of its own for any other.
_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")

SCHEMA = sa.MetaData()
meta = sa.Table(
    "meta",
    SCHEMA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("num_shards", sa.Integer, nullable=False),
    # Raised by every claim; a commit under an older epoch is refused.
    sa.Column("epoch", sa.BigInteger, nullable=False),
    # Process id and its start in clock ticks, so that a reused id is told apart; "" once it has closed the journal.
    sa.Column("owner", sa.String, nullable=False),
    # Last event and the checksum of its commit: finds a removed tail.
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("head", sa.LargeBinary, nullable=False),
    # Last event that was compacted away, with the checksum of its commit.
    sa.Column("base_seq", sa.BigInteger, nullable=False),
    sa.Column("base_head", sa.LargeBinary, nullable=False),
    # Last event that an export holds durably; what lies behind it is never compacted away.
    sa.Column("exported_seq", sa.BigInteger, nullable=False),
)
commits = sa.Table(
    "commits",
    SCHEMA,
    sa.Column("first_seq", _ROW_NUMBER, primary_key=True, autoincrement=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    # `packing.pack` of the events.
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("checksum", sa.LargeBinary, nullable=False),
)


def chained(before: bytes, first_seq: int, last_seq: int, body: bytes) -> bytes:
    """Checksum of a commit, 16 bytes: it covers the commit and the checksum before it."""
    digest = hashlib.blake2b(before, digest_size=CHECKSUM_BYTES)
    digest.update(struct.pack(">qq", first_seq, last_seq))
    digest.update(body)
    return digest.digest()
