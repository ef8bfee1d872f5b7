"""One entry of an axis: a name, `name:value`, or `{name: ..., **parameters}`; checked against the plug-in's config.

A policy entry may carry its own `control:` and `reward:`, laid over the sections of the same name; a preset policy
brings such values along, which the entry's own are laid over. A memory entry may carry `preload:`. A policy that names
no profile of Table 6 takes that of the backbone which it is paired with (`beside`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memcon import codec, registry
from memcon.control.settings import ControlSettings, PreloadSettings
from memcon.errors import UnknownNameError
from memcon.learning.credit import RewardSettings
from memcon.learning.exploration.learned import PROFILES, LearnedConfig
from memcon.policy_types import LearningSettings
from memcon_platform.config.identity import non_defaults
from memcon_platform.config.plan import Entry
from memcon_platform.config.sections import KeyPathError, as_mapping, check_fields, join, refusing, required, section

__all__ = ["POLICY_SECTIONS", "PRELOAD", "Choice", "beside", "parse_entry", "parse_matcher"]

# Sections that a policy entry may carry along; they may also stand at the top level.
POLICY_SECTIONS: Mapping[str, type[Any]] = {"control": ControlSettings, "reward": RewardSettings}
PRELOAD = "preload"
_PROFILE = "profile"
_ENTRY_SECTIONS: Mapping[str, Mapping[str, type[Any]]] = {
    "policy": POLICY_SECTIONS,
    "memory": {PRELOAD: PreloadSettings},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A parsed entry with all that a cell needs of it."""

    entry: Entry
    # All parameters of the plug-in, defaults included, JSON-able.
    resolved: Mapping[str, Any]
    # The entry's own section values, by section, and those that a preset policy brings along under them.
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    preset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # As it was written, and at which key path.
    written: Any = None
    path: str = ""
    # Column of Table 6 that a backbone's config names.
    profile: str | None = None

    def same_as(self, other: Choice) -> bool:
        """Both stand for equal settings."""
        return (self.entry, self.sections) == (other.entry, other.sections)


def parse_entry(kind: str, value: Any, path: str, *, profile: str | None = None) -> Choice:
    """The entry `value` at key path `path` of axis `kind`; `profile` stands in for one that a policy leaves open.

    Raises:
        KeyPathError: unknown plug-in, unknown key, wrong type, or a value that the plug-in refuses.
    """
    name, parameters = _split(kind, value, path)
    sections = {}
    for key, of in _ENTRY_SECTIONS.get(kind, {}).items():
        if key in parameters:
            sections[key] = as_mapping(parameters.pop(key), join(path, key))
            section(of, sections[key], join(path, key))
    with refusing(path):
        plugin = registry.plugin(kind, name)
    check_fields(plugin.config, parameters, path)
    if missing := [key for key in required(plugin.config) if key not in parameters]:
        known = ", ".join(missing)
        raise KeyPathError(path, f"{path}: {kind} '{name}' needs {known}; write {{name: {name}, {missing[0]}: value}}")
    if profile is not None and issubclass(plugin.config, LearnedConfig) and parameters.get(_PROFILE) is None:
        parameters[_PROFILE] = profile
    with refusing(path):
        config = registry.configure(kind, name, parameters, where=path)
        # Refuses what only the table's settings show, such as an arm that its action set does not have.
        learning = config.learning_settings() if kind == "policy" else None
    own = non_defaults(config)
    label = _label(name, plugin.config, _told(own, config, profile), sections)
    return Choice(
        entry=Entry(name=name, parameters=own, label=label),
        resolved=_resolved(config, learning),
        # An empty preload is one with all defaults; an empty control is none.
        sections={key: dict(item) for key, item in sections.items() if item or key == PRELOAD},
        preset=config.preset_sections() if hasattr(config, "preset_sections") else {},
        written=value,
        path=path,
        profile=_profile(config) if kind == "backbone" else None,
    )


def beside(policy: Choice, backbone: Choice) -> Choice:
    """`policy` as a cell of `backbone` has it: a profile that it leaves open is the backbone's, if that names one."""
    if backbone.profile is None:
        return policy
    return parse_entry("policy", policy.written, policy.path, profile=backbone.profile)


def parse_matcher(kind: str, value: Any, path: str) -> str | Choice:
    """What an `exclude` names: a bare name matches every entry of that plug-in, anything more matches exactly.

    Raises:
        KeyPathError: as in `parse_entry`.
    """
    if isinstance(value, str) and ":" not in value:
        with refusing(path):
            if value not in registry.names(kind):
                raise UnknownNameError(kind, value, registry.names(kind))
        return value
    return parse_entry(kind, value, path)


def _resolved(config: Any, learning: LearningSettings | None) -> dict[str, Any]:
    """All parameters with the values that are used (MC-30): what a profile gives stands in the table's settings."""
    resolved: dict[str, Any] = codec.encode(config)
    if learning is None:
        return resolved
    used = {**codec.encode(learning), **learning.rule_parameters}
    if isinstance(config, LearnedConfig):
        used[_PROFILE] = config.used_profile
    return {key: used.get(key) if value is None else value for key, value in resolved.items()}


def _profile(backbone: Any) -> str | None:
    named = getattr(backbone, _PROFILE, None)
    return named if isinstance(named, str) and named in PROFILES else None


def _told(own: Mapping[str, Any], config: Any, profile: str | None) -> Mapping[str, Any]:
    """Parameters of a label: the profile is told where it is another one than that of the backbone, `profile`."""
    if profile is None or not isinstance(config, LearnedConfig):
        return own
    if config.used_profile == profile:
        return {key: value for key, value in own.items() if key != _PROFILE}
    return {**own, _PROFILE: config.used_profile}


def _split(kind: str, value: Any, path: str) -> tuple[str, dict[str, Any]]:
    """Plug-in name and parameters of an entry in any of its three forms."""
    if isinstance(value, str):
        name, colon, argument = value.partition(":")
        if not colon:
            return name, {}
        with refusing(path):
            short = _short_parameter(registry.plugin(kind, name).config)
        if short is None:
            message = f"{path}: '{value}': {kind} '{name}' has no short form; write {{name: {name}, parameter: value}}"
            raise KeyPathError(path, message)
        return name, {short: argument.strip()}
    if not isinstance(value, Mapping):
        raise KeyPathError(path, f"{path}: expected a name or {{name: ..., parameters}}, got {value!r}")
    parameters = dict(value)
    name = parameters.pop("name", None)
    if not isinstance(name, str):
        allowed = ", ".join(registry.names(kind))
        problem = "an entry needs a name" if name is None else f"name must be text, got {name!r}"
        raise KeyPathError(path, f"{path}: {problem}; registered as {kind}: {allowed}")
    return name, parameters


def _short_parameter(config: type[Any]) -> str | None:
    """The one parameter without a default, which `name:value` sets."""
    needed = required(config)
    return needed[0] if len(needed) == 1 else None


def _label(name: str, config: type[Any], own: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> str:
    short = _short_parameter(config)
    head = f"{name}:{own[short]}" if short is not None else name
    told = {key: value for key, value in own.items() if key != short}
    told |= {f"{part}.{key}": value for part, values in sections.items() for key, value in values.items()}
    return " ".join([head, *(f"{key}={_text(value)}" for key, value in told.items())])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
