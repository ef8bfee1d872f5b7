"""Checks of config values, used by every config dataclass in `__post_init__`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from memcon.errors import ConfigError, UnknownNameError

__all__ = ["choice", "in_range"]


def in_range(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Refuse NaN, infinity and anything outside [low, high].

    Raises:
        ConfigError: names the key, the value and the range.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"{name} = {value!r}: expected a number")
    if not math.isfinite(value) or not low <= value <= high:
        bound = f"in [{low:g}, {high:g}]" if math.isfinite(high) else f">= {low:g}"
        raise ConfigError(f"{name} = {value}: expected a finite number {bound}")


def choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a value that is none of `allowed`.

    Raises:
        UnknownNameError: lists the allowed values and the nearest one.
    """
    options = list(allowed)
    if value not in options:
        raise UnknownNameError(name, value, options)
