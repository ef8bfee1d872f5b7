"""Reads a YAML file and `key=value` overrides into plain data. The only module that knows OmegaConf."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError  # type: ignore[import-untyped]

from memcon.errors import ConfigError, nearest
from memcon_platform.config.sections import KeyPathError, join

__all__ = ["read_source", "to_yaml"]


def read_source(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The config at `path` with `overrides` (`key=value`, values in YAML) laid over it, as plain data.

    Raises:
        ConfigError: no such file, no valid YAML (names line and column), an override that does not apply, an
            interpolation that does not resolve.
        KeyPathError: a number that is not finite.
    """
    try:
        config = _load(path)
        for text in overrides:
            _apply(config, text)
        document = _plain(config, path)
        _refuse_infinite(document, "")
    except RecursionError:
        raise ConfigError(f"{path}: a value contains itself, or is nested too deep") from None
    return document


def to_yaml(document: Mapping[str, Any]) -> str:
    """`document` as YAML text, keys in their own order."""
    return OmegaConf.to_yaml(OmegaConf.create(dict(document)))


def _load(path: Path) -> DictConfig:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(_missing(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror}; check path and permissions") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read the config {path}: it is not UTF-8 text ({error.reason})") from error
    try:
        config = OmegaConf.create(text)
    except YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {_where(error)}") from error
    except OmegaConfBaseException as error:
        raise ConfigError(f"{path}: {_first_line(error)}") from error
    # OmegaConf reads a bare word as {word: None}; for a config file that is a mistake, which the key check names.
    if not isinstance(config, DictConfig):
        raise ConfigError(f"{path}: expected a mapping of settings (axes: ...), got a list")
    if not config:
        raise ConfigError(f"{path}: the file is empty; see the configs folder for complete examples")
    return config


def _missing(path: Path) -> str:
    beside = sorted(item.name for item in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
    guess = nearest(path.name, beside) or nearest(f"{path.name}.yaml", beside)
    hint = f" (did you mean '{path.parent / guess}'?)" if guess else ""
    listed = f"; {path.parent} holds: {', '.join(beside)}" if beside else f"; {path.parent} holds no .yaml file"
    return f"no config file at {path}{listed}{hint}"


def _apply(config: DictConfig, text: str) -> None:
    name, said = text.partition("=")[0].strip(), f"override {text!r}"
    if "=" not in text or not re.fullmatch(r"\w+(\.\w+|\[\d+\])*", name):
        raise ConfigError(f"{said}: expected key=value with a dotted key, such as axes.policy=[ucb,none] or limit=10")
    try:
        config.merge_with_dotlist([text])
    except YAMLError as error:
        raise ConfigError(f"{said}: the value is not valid YAML: {_where(error)}") from error
    except (OmegaConfBaseException, IndexError, TypeError, ValueError) as error:
        raise ConfigError(f"{said}: does not apply to the config: {_first_line(error)}") from error


def _plain(config: DictConfig, path: Path) -> dict[str, Any]:
    raw = OmegaConf.to_container(config, resolve=False)
    if "oc.env" in repr(raw):
        # The run folder keeps the resolved config; an environment value in it may be a secret.
        raise ConfigError(
            f"{path}: ${{oc.env:...}} is refused: the run folder keeps all values; give key=value instead"
        )
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{path}: {getattr(error, 'full_key', None) or 'config'}: {_first_line(error)}") from error
    return cast("dict[str, Any]", plain)


def _refuse_infinite(value: Any, path: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise KeyPathError(path, f"{path} = {value}: expected a finite number")
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_infinite(item, join(path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _refuse_infinite(item, f"{path}[{i}]")


def _where(error: YAMLError) -> str:
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return _first_line(error)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
