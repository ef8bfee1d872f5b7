"""Plug-ins by entry point: memory, embedder, policy, framework, backbone, benchmark.

A plug-in is a `Plugin`: its config dataclass and the function that builds the thing. Its module is imported only when
its name is asked for, so that a broken or heavy plug-in stops nobody else. Objects never see OmegaConf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from memcon import codec
from memcon.errors import ConfigError, MissingExtraError, UnknownNameError, nearest

__all__ = ["KINDS", "Plugin", "configure", "names", "plugin"]

KINDS = ("backbone", "benchmark", "embedder", "framework", "memory", "policy")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What an entry point of the group `memcon.<kind>` must be."""

    # A dataclass whose `__post_init__` checks ranges and finiteness (architecture: configs).
    config: type[Any]
    # build(config, **collaborators); the collaborators of each kind are named in docs/architecture.md.
    build: Callable[..., Any]
    # One line for `memcon benchmarks list` and for errors.
    summary: str = ""


def names(kind: str) -> list[str]:
    """Registered names of `kind`, sorted."""
    return sorted(_entry_points(kind))


def plugin(kind: str, name: str) -> Plugin:
    """The plug-in `name` of `kind`.

    Raises:
        UnknownNameError: not registered; lists what is.
        ConfigError: its entry point cannot be imported, or is no `Plugin`.
        MissingExtraError: an optional library is absent.
    """
    found = _entry_points(kind).get(name)
    if found is None:
        raise UnknownNameError(kind, name, _entry_points(kind))
    try:
        loaded = found.load()
    except MissingExtraError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{kind} '{name}' ({found.value}) cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(loaded, Plugin):
        raise ConfigError(f"{kind} '{name}': {found.value} is a {type(loaded).__name__}, not a memcon.registry.Plugin")
    return loaded


def configure(kind: str, name: str, parameters: Mapping[str, Any], *, where: str = "") -> Any:
    """The plug-in's config with `parameters` over its defaults.

    Raises:
        ConfigError: unknown key, wrong type or refused value; names the key path and the allowed keys.
        UnknownNameError: as in `plugin`.
    """
    config = plugin(kind, name).config
    path = where or f"{kind} '{name}'"
    known = [field.name for field in dataclasses.fields(config)]
    for key in map(str, parameters):
        if key not in known:
            guess = nearest(key, known)
            hint = f" (did you mean '{guess}'?)" if guess else ""
            raise ConfigError(f"{path}: unknown key '{key}'; allowed: {', '.join(known) or 'none'}{hint}")
    try:
        return codec.decode(config, dict(parameters), path)
    except codec.CodecError as error:
        raise ConfigError(str(error)) from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


@cache
def _entry_points(kind: str) -> dict[str, EntryPoint]:
    if kind not in KINDS:
        raise UnknownNameError("plug-in kind", kind, KINDS)
    return {point.name: point for point in entry_points(group=f"memcon.{kind}")}
