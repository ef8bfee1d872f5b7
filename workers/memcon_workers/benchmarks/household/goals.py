"""Goal sentences of the six types, and the type of a sentence (MC-11)."""

from __future__ import annotations

import re

from memcon.seeds import Generator

__all__ = ["GOAL_TYPES", "OTHER", "goal_sentence", "goal_type"]

OTHER = "other"

# Two wordings a type; {item} and {place} are kinds, never numbered instances.
_WORDINGS: dict[str, tuple[str, str]] = {
    "put": ("put some {item} in {place}.", "find some {item} and put it in {place}."),
    "examine": ("look at {item} under the {place}.", "examine the {item} with the {place}."),
    "clean": ("put a clean {item} in {place}.", "clean some {item} and put it in {place}."),
    "heat": ("put a hot {item} in {place}.", "heat some {item} and put it in {place}."),
    "cool": ("put a cool {item} in {place}.", "cool some {item} and put it in {place}."),
    "puttwo": ("put two {item} in {place}.", "find two {item} and put them in {place}."),
}
GOAL_TYPES = tuple(_WORDINGS)

# Whole words only, the most telling first: "put two clean mugs" is a two-object goal, "put a hot mug" a heat goal.
_SIGNS = (
    ("puttwo", re.compile(r"\btwo\b")),
    ("examine", re.compile(r"\b(?:examine|look at)\b")),
    ("clean", re.compile(r"\bclean\b")),
    ("heat", re.compile(r"\b(?:heat|hot)\b")),
    ("cool", re.compile(r"\b(?:cool|cold)\b")),
    ("put", re.compile(r"\b(?:put|place)\b")),
)


def goal_sentence(kind: str, item: str, place: str, generator: Generator) -> str:
    """One of the two wordings of the goal type `kind`."""
    return generator.choice(_WORDINGS[kind]).format(item=item, place=place)


def goal_type(sentence: str) -> str:
    """The goal type that `sentence` words, or "other"; case is ignored, parts of words never count."""
    text = sentence.lower()
    return next((kind for kind, sign in _SIGNS if sign.search(text)), OTHER)
