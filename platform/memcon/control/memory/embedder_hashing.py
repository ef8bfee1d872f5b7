"""Embedder `hashing`: a bag of words in a fixed number of signed slots, for tests and machines without `wordllama`.

Word order is lost, and no two words are alike unless they are equal: texts are near when they share words.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from memcon import checks
from memcon.registry import Plugin

__all__ = ["PLUGIN", "HashingConfig", "HashingEmbedder"]

_WORD = re.compile(r"[^\W\d_]+")
_WORD_OR_NUMBER = re.compile(r"[^\W_]+")


@dataclass(slots=True, kw_only=True)
class HashingConfig:
    """Size of the vectors, and what counts as a word."""

    # Slots; more slots mean fewer words that share one.
    dim: int = 256
    # Numbers are words too. Off by default: "mug 1" and "mug 2" name other things in each task.
    numbers: bool = False

    def __post_init__(self) -> None:
        checks.in_range("dim", self.dim, 2, 65536)


class HashingEmbedder:
    """An `Embedder` that depends on nothing but the text: equal bits on every machine."""

    def __init__(self, config: HashingConfig) -> None:
        self.dim = config.dim
        self.name = f"hashing/{config.dim}" + ("/numbers" if config.numbers else "")
        self._word = _WORD_OR_NUMBER if config.numbers else _WORD

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of word counts, float32, shape (len(texts), dim); zero for a text without a word."""
        vectors = np.zeros((len(texts), self.dim), dtype=np.float64)
        for vector, text in zip(vectors, texts, strict=True):
            for word in self._word.findall(text.casefold()):
                slot, sign = _slot(word, self.dim)
                vector[slot] += sign
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


@lru_cache(maxsize=65536)
def _slot(word: str, dim: int) -> tuple[int, float]:
    number = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
    # The lowest bit is the sign: words that share a slot cancel as often as they add up.
    return (number >> 1) % dim, 1.0 if number & 1 else -1.0


def _build(config: HashingConfig) -> HashingEmbedder:
    return HashingEmbedder(config)


PLUGIN = Plugin(config=HashingConfig, build=_build, summary="hashed bag of words, standard library and numpy only")
