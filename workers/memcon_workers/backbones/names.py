"""Names of things in action and observation texts: "mug 1", "b3", and the placeholders "[mug A]" and "[mug]".

Everything here is a pure function of one text, memoised with a bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Name", "ParsedAction", "named_things", "names_in", "parse_action", "plain_words"]

_NAME = re.compile(r"\[([a-z][a-z_-]*)(?: (\w+))?\]|\b([a-z][a-z_-]*?) ?(\d+)\b")
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class Name:
    """One named thing. `identity` is "" for a placeholder without a letter: which of its kind is not known."""

    category: str
    identity: str


@dataclass(frozen=True, slots=True, eq=False)
class ParsedAction:
    """An action text taken apart; equal texts share one object."""

    text: str
    # The text with every name replaced by "_".
    skeleton: str
    names: tuple[Name, ...]
    categories: tuple[str, ...]
    identities: frozenset[str]
    # Words before the first name.
    verb: frozenset[str]


def _name(match: re.Match[str]) -> Name:
    holder, letter, category, number = match.groups()
    if category is not None:
        return Name(category, f"{category} {number}")
    return Name(holder, f"[{holder} {letter}]" if letter else "")


def names_in(text: str) -> tuple[Name, ...]:
    """All names of `text` in order, repeats included; case is ignored."""
    return tuple(_name(match) for match in _NAME.finditer(text.lower()))


@lru_cache(maxsize=16384)
def named_things(observation: str) -> frozenset[str]:
    """Identities named in `observation`."""
    return frozenset(name.identity for name in names_in(observation))


@lru_cache(maxsize=16384)
def parse_action(text: str) -> ParsedAction:
    """`text` with its names found."""
    lowered = " ".join(text.lower().split())
    names = names_in(lowered)
    skeleton = _NAME.sub("_", lowered)
    return ParsedAction(
        text=lowered,
        skeleton=skeleton,
        names=names,
        categories=tuple(name.category for name in names),
        identities=frozenset(name.identity for name in names),
        verb=frozenset(_WORD.findall(skeleton.split("_", 1)[0])),
    )


def plain_words(text: str) -> list[str]:
    """Words of `text` in order, every name read as its category."""
    return _WORD.findall(_NAME.sub(lambda match: f" {match.group(1) or match.group(3)} ", text.lower()))
