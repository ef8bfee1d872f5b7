"""What a user names as the place of a policy: the URL of a server, a folder or a name, or an exported file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from memcon.errors import ConfigError, StorageError
from memcon_platform.objects import is_uri
from memcon_platform.policies.folder import PolicyFolder
from memcon_platform.policies.served import ServedPolicy
from memcon_platform.policies.table_file import TableFile

__all__ = ["Place", "Readable", "is_url", "open_place", "open_readable", "read_token"]

# What can be changed, and what can be read.
Place: TypeAlias = ServedPolicy | PolicyFolder
Readable: TypeAlias = Place | TableFile


def is_url(value: str) -> bool:
    """`value` names a server, and no place on this machine's disk or in an object store."""
    return "://" in value and not is_uri(value)


def open_place(value: str, token: str | None, *, find: Callable[[str], Path], say: Callable[[str], None]) -> Place:
    """The policy that `value` names; `find` gives the folder of one that is no server.

    Raises:
        ConfigError: a URL that is none of a server.
        NotFoundError: there is no such policy.
    """
    if not is_url(value):
        return PolicyFolder(find(value), say)
    if not value.startswith(("http://", "https://")):
        raise ConfigError(f"url {value!r}: expected http://HOST:PORT or https://HOST, as `memcon serve` prints it")
    return ServedPolicy(value, token, say)


def open_readable(
    value: str, token: str | None, *, find: Callable[[str], Path], say: Callable[[str], None]
) -> Readable:
    """As `open_place`; an exported file too.

    Raises:
        MemconError: as `open_place` and `TableFile`.
    """
    path = Path(value)
    if "://" not in value and (path.is_file() or path.suffix == ".json"):
        return TableFile(path)
    return open_place(value, token, find=find, say=say)


def read_token(path: Path) -> str:
    """The bearer token in a file.

    Raises:
        StorageError: the file cannot be read.
        ConfigError: it holds no token.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise StorageError(f"cannot read the token file {path}: {error.strerror}; mend its path or permissions") from (
            error
        )
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable():
        raise ConfigError(f"--token-file {path} holds no token; give the file `token` of the served folder")
    return token
