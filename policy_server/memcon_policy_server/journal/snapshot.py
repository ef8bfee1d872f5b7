"""A snapshot: the whole state of one shard after some event, so that an owner need not fold its journal from the start.

A shortcut, never the truth: it names the journal and the commit that it stands for, and one that does not fit is not
used (`memcon_policy_server.journal.fold`). The file is seen whole or not at all, and a flipped byte is found.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from memcon.errors import DamagedFileError, SchemaVersionError, StorageError
from memcon.files import replace_file

__all__ = ["SNAPSHOT_VERSION", "Snapshot", "read_snapshot", "write_snapshot"]

SNAPSHOT_VERSION = 1

_MAGIC = b"memcon snapshot\n"
_VERSION = struct.Struct(">I")
_LENGTH = struct.Struct(">I")
_DIGEST_BYTES = 32
_HEADER_BYTES = len(_MAGIC) + _VERSION.size + _DIGEST_BYTES
_REMEDY = "move it away: the journal is the truth, and the next owner folds it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a shard after event `seq` of its journal."""

    shard: int
    num_shards: int
    seq: int
    # Checksum of the journal's commit that ends at `seq` (`SqliteJournal.head_at`): which journal this is of.
    head: bytes
    # `memcon.learning.shard.PolicyShard.state`.
    state: Mapping[str, Any]


# A sequence that makes its items when it is read is written as a list of them.
_ENCODER = msgspec.msgpack.Encoder(enc_hook=list)
# Things that are encoded in one go: the interpreter is held meanwhile, and the owner's event loop waits.
_PART = 256
_DECODER = msgspec.msgpack.Decoder(Snapshot)


def write_snapshot(
    path: Path,
    *,
    shard: int,
    num_shards: int,
    seq: int,
    head: bytes,
    state: Mapping[str, Any],
    between: Callable[[], object] = lambda: None,
) -> int:
    """Put a snapshot in place of the one at `path`, durably; returns its size in bytes. The fields are `Snapshot`'s.

    `between` is called after every few hundred things: a thread can let others have the interpreter there.

    Raises:
        StorageError: the place cannot be written; what stood there still stands.
    """
    # Encoded behind the room of the header: a large state is held once, not twice.
    content = bytearray(_HEADER_BYTES)
    _encode(content, {"shard": shard, "num_shards": num_shards, "seq": seq, "head": head, "state": state}, between)
    with memoryview(content) as view, view[_HEADER_BYTES:] as body:
        view[:_HEADER_BYTES] = _MAGIC + _VERSION.pack(SNAPSHOT_VERSION) + _digest(body)
        replace_file(path, view)
    return len(content)


def read_snapshot(path: Path) -> Snapshot | None:
    """The snapshot at `path`; None when there is none.

    Raises:
        DamagedFileError: it is torn, altered, or no snapshot.
        SchemaVersionError: another version of memcon wrote it.
        StorageError: the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; mend its permissions") from error
    if len(content) < _HEADER_BYTES or not content.startswith(_MAGIC):
        raise DamagedFileError(path, "it is no memcon snapshot, or only a part of one", _REMEDY)
    (version,) = _VERSION.unpack_from(content, len(_MAGIC))
    if version != SNAPSHOT_VERSION:
        raise SchemaVersionError(path, version, SNAPSHOT_VERSION)
    body = memoryview(content)[_HEADER_BYTES:]
    if _digest(body) != content[_HEADER_BYTES - _DIGEST_BYTES : _HEADER_BYTES]:
        raise DamagedFileError(path, "its checksum does not fit: it was altered or torn", _REMEDY)
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise DamagedFileError(path, f"it cannot be read: {error}", _REMEDY) from error


def _encode(content: bytearray, value: object, between: Callable[[], object]) -> None:
    """Append `value` in msgpack's form, long lists part by part."""
    if isinstance(value, Mapping):
        content += b"\xdf" + _LENGTH.pack(len(value))
        for key, item in value.items():
            content += _ENCODER.encode(key)
            _encode(content, item, between)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) > _PART:
        content += b"\xdd" + _LENGTH.pack(len(value))
        for begin in range(0, len(value), _PART):
            part = value[begin : begin + _PART]
            # Without its own header, of one byte below 16 items and three bytes above.
            content += memoryview(_ENCODER.encode(part))[1 if len(part) < 16 else 3 :]
            between()
    else:
        content += _ENCODER.encode(value)


def _digest(body: memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
