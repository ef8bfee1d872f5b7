"""Estimated tokens for text that no provider has counted. A provider's own usage always goes before this estimate."""

from __future__ import annotations

__all__ = ["CHARACTERS_PER_TOKEN", "estimate_tokens"]

# The usual rule of thumb for English; the unit is named so in every table that prints it.
CHARACTERS_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Characters / 4, rounded up; 0 for the empty text."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)
