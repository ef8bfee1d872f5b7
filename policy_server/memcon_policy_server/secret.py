"""What only the owner of a policy folder may read: the key that signs decision tokens, and the token of its listeners.

Both are made once a folder, beside the journal, with mode 0600. Neither ever stands in a log, a reply or an argument.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from memcon.errors import DamagedFileError, StorageError
from memcon_policy_server.sharding import secret_path, token_path

__all__ = ["adopt_folder", "load_secret", "load_token"]

SECRET_BYTES = 32


def load_secret(directory: Path) -> bytes:
    """The run's HMAC key, 32 bytes; made on first use, by exactly one of several processes.

    Raises:
        DamagedFileError: the file is no key, or it is gone while journals that it signed for are there.
        StorageError: the folder cannot be written.
    """
    path = secret_path(directory)
    if not path.exists() and any(directory.glob("shard-*.sqlite")):
        raise DamagedFileError(path, "it is missing, though journals exist", "restore it from a copy of the run")
    return bytes.fromhex(_load(path, "restore it from a copy of the run"))


def adopt_folder(directory: Path) -> None:
    """Make a key for a folder whose journals came without theirs; one that is there stays.

    Tokens that the earlier key signed are refused from then on: only for journals without outcomes on their way.

    Raises:
        StorageError: the folder cannot be written.
    """
    _load(secret_path(directory), "restore it from a copy of the run")


def load_token(directory: Path) -> str:
    """The bearer token of the folder's listeners and gateway, 64 hex digits; made on first use.

    A new one may be had by removing the file while nothing is served.

    Raises:
        DamagedFileError: the file holds no token.
        StorageError: the folder cannot be written.
    """
    return _load(token_path(directory), "remove it to have a new token made, and give that to the clients")


def _load(path: Path, remedy: str) -> str:
    """The 32 random bytes of `path` in hex; made on first use, by exactly one of several processes."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _make(path)
        text = path.read_text(encoding="ascii").strip()
        size = len(bytes.fromhex(text))
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}; check permissions and space") from error
    except ValueError as error:
        raise DamagedFileError(path, "it holds no key in hex", remedy) from error
    if size != SECRET_BYTES:
        raise DamagedFileError(path, f"it holds {size} bytes, not {SECRET_BYTES}", remedy)
    return text


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
