"""The key that signs decision tokens: made once a run, beside the journal, readable by its owner only."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from memcon.errors import DamagedFileError, StorageError
from memcon_policy_server.sharding import secret_path

__all__ = ["load_secret"]

SECRET_BYTES = 32


def load_secret(directory: Path) -> bytes:
    """The run's HMAC key, 32 bytes; made on first use, by exactly one of several processes.

    Raises:
        DamagedFileError: the file is no key, or it is gone while journals that it signed for are there.
        StorageError: the folder cannot be written.
    """
    path = secret_path(directory)
    try:
        if not path.exists():
            if any(directory.glob("shard-*.sqlite")):
                raise DamagedFileError(
                    path, "it is missing, though journals exist", "restore it from a copy of the run"
                )
            directory.mkdir(parents=True, exist_ok=True)
            _make(path)
        secret = bytes.fromhex(path.read_text(encoding="ascii"))
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}; check permissions and space") from error
    except ValueError as error:
        raise DamagedFileError(path, "it holds no key in hex", "restore it from a copy of the run") from error
    if len(secret) != SECRET_BYTES:
        raise DamagedFileError(
            path, f"it holds {len(secret)} bytes, not {SECRET_BYTES}", "restore it from a copy of the run"
        )
    return secret


def _make(path: Path) -> None:
    """Write a key under a temporary name (mode 0600) and link it: the first process wins, nobody reads half a key."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".secret-")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        Path(path).hardlink_to(temporary)
    except FileExistsError:
        pass
    finally:
        Path(temporary).unlink()
