"""How a run in an object store is named, and which folder of this machine stands for it. Touches neither."""

from __future__ import annotations

import re
from pathlib import Path

from memcon.errors import ConfigError
from memcon_platform.objects import is_uri

__all__ = ["SCHEME", "local_folder", "place_in_store", "run_in_store"]

SCHEME = "s3://"

# Each part of a place is a folder of the working copy too, so that "." and ".." are none.
_PART = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._=+-]{1,255}")
_FORM = f"{SCHEME}BUCKET/PREFIX of letters, digits, '.', '_', '-', '=' and '+'"


def place_in_store(value: str) -> str:
    """The place that `value` names, in the one form that it is written in: no slash at its end.

    Raises:
        ConfigError: it names none; a value that may hold a key is not repeated.
    """
    if "@" in value:
        raise ConfigError(
            f"a place in an object store holds no credentials: give {SCHEME}BUCKET/PREFIX, and the credentials by "
            "AWS_PROFILE or the other ways of boto3"
        )
    parts = value[len(SCHEME) :].removesuffix("/").split("/")
    if not is_uri(value) or not all(_PART.fullmatch(part) for part in parts):
        raise ConfigError(f"expected {_FORM}, got {value!r}")
    return SCHEME + "/".join(parts)


def run_in_store(value: str) -> str:
    """The run that `value` names: a place below a bucket.

    Raises:
        ConfigError: it names none.
    """
    place = place_in_store(value)
    if "/" not in place[len(SCHEME) :]:
        raise ConfigError(f"'{place}' is a bucket, not a run: give {SCHEME}BUCKET/PREFIX/RUN")
    return place


def local_folder(base: Path, place: str) -> Path:
    """The folder below `base` that stands for `place`: one folder a bucket, then the parts of the prefix."""
    return base.joinpath(*place[len(SCHEME) :].split("/"))
