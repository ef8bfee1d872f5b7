"""The config of `memcon serve`: a YAML file and overrides to a `ServingPlan`, with every mistake named in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from memcon import checks
from memcon.errors import ConfigError, NotFoundError
from memcon.policy_types import LearningSettings
from memcon_platform.config.entries import parse_entry
from memcon_platform.config.loading import check_name, explained
from memcon_platform.config.policies import policy_learning
from memcon_platform.config.sections import KeyPathError, as_mapping, check_keys, section
from memcon_policy_server.options import Limits, OwnerOptions
from memcon_policy_server.sharding import shards_in

__all__ = ["SERVING_KEYS", "ServingPlan", "load_serving"]

_ROOT = Path("serve")
_MAX_SHARDS = 64
# One owner takes a core. The number cannot grow later, and two are quicker than one on the smallest machines.
NEW_SHARDS = 2


@dataclass(slots=True, kw_only=True)
class _Settings:
    """The keys of a serving config that have a default and a range of their own; `name` and `tables` come on top."""

    # Number of shard owners, each a process; fixed for the life of the folder. Null: the folder's, or NEW_SHARDS.
    shards: int | None = None
    # Gateway processes: with two, one that dies is not missed (0.2 s in place of 5 to 10 s).
    gateways: int = 1
    # Where the gateway listens. Every request needs the token, on any host.
    host: str = "127.0.0.1"
    port: int = 8000
    # Null starts a Ray of its own; "auto" or an address attaches to one that runs.
    ray_address: str | None = None
    durable_decides: bool = False
    flush_every_s: float = 0.05
    expire_after_s: float | None = None
    default_reward: float | None = None
    snapshot_every: int = 10_000
    # Ended decisions that a table remembers at each shard; null = all.
    closed_kept: int | None = 1_000_000
    # Microseconds that an owner stays awake for a client that asks one thing after the other.
    busy_poll_us: int = 50
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.shards is not None:
            checks.in_range("shards", self.shards, 1, _MAX_SHARDS)
        checks.in_range("gateways", self.gateways, 1, _MAX_SHARDS)
        checks.in_range("port", self.port, 1, 65535)
        if not self.host or any(letter.isspace() for letter in self.host):
            raise ConfigError(f"host = {self.host!r}: expected an address of this machine, such as 127.0.0.1")
        if self.closed_kept is not None:
            checks.in_range("closed_kept", self.closed_kept, 1, 1 << 40)

    def owner_options(self) -> OwnerOptions:
        return OwnerOptions(**{item.name: getattr(self, item.name) for item in fields(OwnerOptions)})


_OWN_KEYS = tuple(item.name for item in fields(_Settings))
# All keys of a serving config.
SERVING_KEYS = ("name", "directory", "tables", *_OWN_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """A serving config, whole and checked."""

    name: str
    # Journals, secret and token; absolute.
    directory: Path
    shards: int
    gateways: int
    host: str
    port: int
    ray_address: str | None
    options: OwnerOptions
    # What each table of the config is created with.
    tables: Mapping[str, LearningSettings]


def load_serving(path: Path, overrides: Sequence[str] = ()) -> ServingPlan:
    """The serving config at `path` with `key=value` overrides laid over it; the name defaults to the file's.

    Raises:
        ConfigError: anything is wrong with file, overrides or values; one line that names the key path, the value, what
            is allowed and the nearest name.
    """
    return explained(path, overrides, _plan)


def _plan(path: Path, overrides: Sequence[str]) -> ServingPlan:
    from memcon_platform.config.source import read_source

    document = read_source(path, overrides)
    check_keys(document, SERVING_KEYS, "")
    name = check_name(document.get("name", path.stem), "name")
    settings = section(_Settings, {key: document[key] for key in _OWN_KEYS if key in document}, "")
    try:
        options = settings.owner_options()
    except ConfigError as error:
        raise KeyPathError("", str(error)) from error
    directory = _directory(document.get("directory"), name)
    return ServingPlan(
        name=name,
        directory=directory,
        shards=settings.shards or _shards(directory),
        gateways=settings.gateways,
        host=settings.host,
        port=settings.port,
        ray_address=settings.ray_address,
        options=options,
        tables=_tables(document.get("tables"), settings),
    )


def _shards(directory: Path) -> int:
    """The number of shards that the folder was made with."""
    try:
        return shards_in(directory)
    except NotFoundError:
        return NEW_SHARDS


def _directory(value: Any, name: str) -> Path:
    if value is None:
        return (_ROOT / name).resolve()
    if not isinstance(value, str) or not value.strip() or "\0" in value or "://" in value:
        raise KeyPathError("directory", f"directory: expected a local folder, got {value!r}")
    return Path(value).expanduser().resolve()


def _tables(value: Any, settings: _Settings) -> dict[str, LearningSettings]:
    entries = {} if value is None else as_mapping(value, "tables")
    limit = settings.limits.max_tables
    if len(entries) > limit:
        raise KeyPathError("tables", f"tables: {len(entries)} of them; limits.max_tables allows {limit}")
    return {_table_name(name, settings): _learning(name, entry, settings) for name, entry in entries.items()}


def _table_name(name: Any, settings: _Settings) -> str:
    limit = settings.limits.max_text_chars
    if not isinstance(name, str) or not 0 < len(name) <= limit:
        raise KeyPathError("tables", f"tables: a table's name is text of 1 to {limit} characters; got {name!r}")
    return name


def _learning(name: Any, entry: Any, settings: _Settings) -> LearningSettings:
    path = f"tables.{name}"
    choice = parse_entry("policy", entry, path)
    if choice.sections:
        given = ", ".join(choice.sections)
        raise KeyPathError(path, f"{path}: {given} belongs to a sweep's tasks; a served table has none, take it out")
    learning = policy_learning(choice.entry)
    if learning is None:
        raise KeyPathError(
            path, f"{path}: policy '{choice.entry.name}' keeps no table, so there is nothing to serve; take ucb"
        )
    return replace(learning, closed_kept=settings.closed_kept)
