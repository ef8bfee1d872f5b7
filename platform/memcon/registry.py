"""Plug-ins by entry point: memory, embedder, policy, framework, backbone, benchmark.

A plug-in is a `Plugin`: its config dataclass and the function that builds the thing. Its module is imported only when
its name is asked for, so that a broken or heavy plug-in stops nobody else. What a package got wrong becomes one line
that names the package, the entry point and the cause. Objects never see OmegaConf.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import redirect_stdout
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from memcon import codec
from memcon.errors import ConfigError, MemconError, MissingExtraError, UnknownNameError, nearest
from memcon.protocols import AgentFramework, Benchmark, ChatModel, Embedder, MemoryBackend

__all__ = ["KINDS", "Plugin", "Registered", "build", "configure", "lacking", "names", "plugin", "registered", "strays"]

KINDS = ("backbone", "benchmark", "embedder", "framework", "memory", "policy")
_GROUP = "memcon."
# What `build` makes; a policy's rule is built by its table.
_PORTS: Mapping[str, type] = {
    "backbone": ChatModel,
    "benchmark": Benchmark,
    "embedder": Embedder,
    "framework": AgentFramework,
    "memory": MemoryBackend,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What an entry point of the group `memcon.<kind>` must be."""

    # A dataclass whose `__post_init__` checks ranges and finiteness (architecture: configs).
    config: type[Any]
    # build(config, **collaborators); the collaborators of each kind are named in docs/architecture.md.
    build: Callable[..., Any]
    # One line for `memcon plugins` and for reports.
    summary: str = ""
    # check(config) asks, before a run begins, whether what the config names can be used; raises MemconError when not.
    check: Callable[[Any], Awaitable[None]] | None = None
    # endpoint(config) gives where what it builds is asked, in this environment: scheme, host and path, never a
    # credential. It goes into the run's provenance; raises MemconError when there is none.
    endpoint: Callable[[Any], str] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """One entry point, as its package declares it. Whether it can be used is for `plugin` to say."""

    kind: str
    name: str
    # Module and attribute, such as "memcon.control.memory.empty:PLUGIN".
    entry_point: str
    # The distribution that declares it, and its version.
    package: str
    version: str


def names(kind: str) -> list[str]:
    """Registered names of `kind`, sorted."""
    return sorted(_entry_points(kind))


def registered(kind: str) -> list[Registered]:
    """Every entry point of `kind`, by name and package; nothing is imported.

    A name that several packages register stands there once for each.
    """
    return _listed(_declared(kind))


def strays() -> list[Registered]:
    """Entry points in groups that look like ours and are none, such as `memcon.memories`."""
    found = entry_points()
    groups = [group for group in found.groups if group.startswith(_GROUP) and group.removeprefix(_GROUP) not in KINDS]
    return [entry for group in sorted(groups) for entry in _listed(found.select(group=group))]


def plugin(kind: str, name: str) -> Plugin:
    """The plug-in `name` of `kind`.

    Raises:
        UnknownNameError: not registered; lists what is.
        ConfigError: several packages register it, its entry point cannot be imported, or is no `Plugin` of `kind`.
        MissingExtraError: an optional library is absent.
    """
    found = _entry_points(kind).get(name)
    if found is None:
        raise UnknownNameError(kind, name, _entry_points(kind))
    rivals = [point for point in _declared(kind) if point.name == name]
    if len(rivals) > 1:
        origins = " and ".join(sorted(_origin(point) for point in rivals))
        raise ConfigError(
            f"{kind} '{name}' is registered {len(rivals)} times: {origins}; uninstall all but one of them"
        )
    try:
        # Stdout is the command's own: what a module prints when it is imported must not lie in a JSON record.
        with redirect_stdout(sys.stderr):
            loaded = found.load()
    except MissingExtraError:
        raise
    # A module that ends the process when it is imported must not end ours.
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{kind} '{name}' ({_origin(found)}) cannot be imported: {_told(error)}; mend or uninstall that package"
        ) from error
    if problem := _unfit(kind, loaded):
        raise ConfigError(f"{kind} '{name}': {_origin(found)} {problem}")
    return typing.cast("Plugin", loaded)


def build(kind: str, name: str, parameters: Mapping[str, Any], **collaborators: Any) -> Any:
    """What the plug-in builds from `parameters` over its defaults, and from the collaborators of its kind.

    Raises:
        ConfigError: it cannot be built, or does not fit its port; names the plug-in and the cause.
        UnknownNameError: as in `plugin`.
    """
    config = configure(kind, name, parameters)
    point = _entry_points(kind).get(name)

    def origin() -> str:
        # Read only for an error: the package's metadata is parsed for it.
        return f" ({_origin(point)})" if point else ""

    try:
        built = plugin(kind, name).build(config, **collaborators)
    except MemconError:
        raise
    except Exception as error:
        raise ConfigError(f"{kind} '{name}' cannot be built: {_told(error)}{origin()}") from error
    port = _PORTS.get(kind)
    if port and (missing := lacking(port, built)):
        raise ConfigError(
            f"{kind} '{name}': its build gives a {type(built).__name__} without {', '.join(missing)}, which "
            f"{port.__module__}.{port.__name__} has{origin()}"
        )
    return built


def lacking(port: type, thing: object) -> list[str]:
    """Attributes and methods of the protocol `port` that `thing` has not."""
    methods = [name for name, value in vars(port).items() if callable(value) and not name.startswith("_")]
    return [name for name in (*port.__annotations__, *methods) if not hasattr(thing, name)]


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
    # A config of another package may refuse a value in its own way.
    except Exception as error:
        raise ConfigError(f"{path}: {kind} '{name}' refuses its parameters: {_told(error)}") from error


@cache
def _declared(kind: str) -> tuple[EntryPoint, ...]:
    if kind not in KINDS:
        raise UnknownNameError("plug-in kind", kind, KINDS)
    return tuple(entry_points(group=_GROUP + kind))


@cache
def _entry_points(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in _declared(kind)}


def _listed(points: Iterable[EntryPoint]) -> list[Registered]:
    found = [
        Registered(
            kind=point.group.removeprefix(_GROUP),
            name=point.name,
            entry_point=point.value,
            package=point.dist.name if point.dist else "",
            version=point.dist.version if point.dist else "",
        )
        for point in points
    ]
    return sorted(found, key=lambda entry: (entry.name, entry.package, entry.entry_point))


def _origin(point: EntryPoint) -> str:
    return f"{point.value} of {point.dist.name} {point.dist.version}" if point.dist else point.value


def _told(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _unfit(kind: str, loaded: object) -> str:
    """What makes `loaded` no plug-in of `kind`, or ""."""
    if not isinstance(loaded, Plugin):
        return f"is a {type(loaded).__name__}, not a memcon.registry.Plugin"
    config = loaded.config
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        return f"has the config {config!r}; it must be a dataclass"
    try:
        typing.get_type_hints(config)
    except Exception as error:  # noqa: BLE001 - whatever an annotation of another package raises
        return f"has a config whose annotations cannot be read: {_told(error)}; import its types at run time"
    if kind == "policy" and not callable(getattr(config, "learning_settings", None)):
        return f"has the config {config.__name__} without learning_settings(), which every policy needs"
    return ""
