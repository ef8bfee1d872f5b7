"""Embedder `wordllama`: static word vectors whose weights lie inside the wheel, so that nothing is downloaded."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memcon import checks
from memcon.errors import MissingExtraError
from memcon.registry import Plugin

__all__ = ["PLUGIN", "WordLlamaConfig", "WordLlamaEmbedder"]


@dataclass(slots=True, kw_only=True)
class WordLlamaConfig:
    """How many texts are remembered."""

    # Goals repeat over decisions, cells and streams: one vector of 1 KiB each.
    cached_texts: int = 4096

    def __post_init__(self) -> None:
        checks.in_range("cached_texts", self.cached_texts, 1, 10**6)


class WordLlamaEmbedder:
    """An `Embedder` over the mean of static word vectors."""

    def __init__(self, config: WordLlamaConfig, model: Any) -> None:
        self._model = model
        self.dim = int(model.embedding.shape[1])
        self.name = f"wordllama/{self.dim}"
        self._vector = lru_cache(maxsize=config.cached_texts)(self._embed_one)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors, float32, shape (len(texts), dim); zero for a text without a token."""
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for place, text in enumerate(texts):
            vectors[place] = self._vector(text)
        return vectors

    def _embed_one(self, text: str) -> NDArray[np.float32]:
        # One text at a time: padding a batch must not move the last bits. Its own `norm=True` divides by zero.
        raw = np.asarray(self._model.embed([text])[0], dtype=np.float64)
        length = float(np.linalg.norm(raw))
        return (raw / length if length > 0 else np.zeros_like(raw)).astype(np.float32)


def _build(config: WordLlamaConfig) -> WordLlamaEmbedder:
    try:
        wordllama = importlib.import_module("wordllama")
    except ImportError as error:
        raise MissingExtraError("wordllama", "embed") from error
    # Its default cache folder does not fit its own wheel: only the package folder has tokenizer and weights.
    folder = Path(str(wordllama.__file__)).parent
    return WordLlamaEmbedder(config, wordllama.WordLlama.load(cache_dir=folder, disable_download=True))


PLUGIN = Plugin(config=WordLlamaConfig, build=_build, summary="static word vectors shipped in a wheel (extra: embed)")
