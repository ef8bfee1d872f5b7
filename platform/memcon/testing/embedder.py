"""The embedder port under test: the contract body that every embedder passes, and a fake with chosen vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from memcon.protocols import Embedder

__all__ = ["EmbedderContract", "FixedEmbedder"]


class FixedEmbedder:
    """An `Embedder` that gives each text the vector that the test chose, scaled to length 1; zero for other texts."""

    def __init__(self, vectors: Mapping[str, Sequence[float]], *, dim: int, name: str = "fixed") -> None:
        self.name, self.dim = name, dim
        self._vectors = {text: np.asarray(vector, dtype=np.float64) for text, vector in vectors.items()}

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        found = np.zeros((len(texts), self.dim), dtype=np.float64)
        for place, text in enumerate(texts):
            vector = self._vectors.get(text)
            if vector is not None:
                found[place] = vector / np.linalg.norm(vector)
        return found.astype(np.float32)


class EmbedderContract:
    """What every Embedder does. Override the fixture `embedder`."""

    TEXTS = ("put a clean mug in the shelf", "heat some egg and put it in the fridge", "put a clean mug in the shelf")

    @pytest.fixture
    def embedder(self) -> Embedder:
        raise NotImplementedError

    def test_vectors_are_float32_of_the_declared_size(self, embedder: Embedder) -> None:
        vectors = embedder.embed(self.TEXTS)
        assert vectors.dtype == np.float32
        assert vectors.shape == (len(self.TEXTS), embedder.dim)

    def test_vectors_have_length_one(self, embedder: Embedder) -> None:
        assert np.allclose(np.linalg.norm(embedder.embed(self.TEXTS), axis=1), 1.0, atol=1e-6)

    def test_the_empty_text_is_the_zero_vector(self, embedder: Embedder) -> None:
        assert not embedder.embed([""]).any()

    def test_no_text_gives_no_vector(self, embedder: Embedder) -> None:
        assert embedder.embed([]).shape == (0, embedder.dim)

    def test_a_text_has_the_same_bits_alone_and_in_a_batch(self, embedder: Embedder) -> None:
        batch = embedder.embed(self.TEXTS)
        for text, vector in zip(self.TEXTS, batch, strict=True):
            assert embedder.embed([text])[0].tobytes() == vector.tobytes()

    def test_callers_cannot_change_what_the_next_caller_gets(self, embedder: Embedder) -> None:
        before = embedder.embed([self.TEXTS[0]]).tobytes()
        embedder.embed([self.TEXTS[0]])[:] = 0.0
        assert embedder.embed([self.TEXTS[0]]).tobytes() == before

    def test_texts_that_share_words_are_nearer_than_texts_that_do_not(self, embedder: Embedder) -> None:
        goal, near, far = embedder.embed(
            ["put a clean mug in the shelf", "put a clean plate in the shelf", "gardening outside during summer"]
        )
        assert goal @ near > goal @ far

    def test_the_name_tells_embedders_of_other_sizes_apart(self, embedder: Embedder) -> None:
        assert str(embedder.dim) in embedder.name or embedder.name == "fixed"
