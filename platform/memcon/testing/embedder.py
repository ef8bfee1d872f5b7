"""The embedder port under test: the contract body that every embedder passes, and a fake with chosen vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from memcon.protocols import Embedder
from memcon.testing.contract import Contract, expect, expect_equal, expect_port, to_give

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


class EmbedderContract(Contract):
    """What every Embedder does. Override the fixture `embedder`."""

    TEXTS = ("put a clean mug in the shelf", "heat some egg and put it in the fridge", "put a clean mug in the shelf")

    @pytest.fixture
    def embedder(self) -> Embedder:
        """The embedder under test."""
        to_give(self, "embedder", "Embedder", "the embedder under test, as its plug-in builds it")

    def test_vectors_are_float32_of_the_declared_size(self, embedder: Embedder) -> None:
        expect_port(embedder, Embedder)
        vectors = embedder.embed(self.TEXTS)
        expect_equal(
            (str(getattr(vectors, "dtype", "")), np.shape(vectors)),
            ("float32", (len(self.TEXTS), embedder.dim)),
            "Embedder.embed",
            wants="gives float32 of shape (len(texts), dim)",
        )

    def test_vectors_have_length_one(self, embedder: Embedder) -> None:
        lengths = np.linalg.norm(embedder.embed(self.TEXTS), axis=1).tolist()
        expect(np.allclose(lengths, 1.0, atol=1e-6), "Embedder.embed", "gives vectors of length 1", met=lengths)

    def test_the_empty_text_is_the_zero_vector(self, embedder: Embedder) -> None:
        found = embedder.embed([""])
        expect(not found.any(), "Embedder.embed", "gives the zero vector for a text without any token", met=found)

    def test_no_text_gives_no_vector(self, embedder: Embedder) -> None:
        expect_equal(
            embedder.embed([]).shape, (0, embedder.dim), "Embedder.embed", wants="gives shape (0, dim) for no text"
        )

    def test_a_text_has_the_same_bits_alone_and_in_a_batch(self, embedder: Embedder) -> None:
        batch = embedder.embed(self.TEXTS)
        for text, vector in zip(self.TEXTS, batch, strict=True):
            expect(
                embedder.embed([text])[0].tobytes() == vector.tobytes(),
                "Embedder.embed",
                "gives a text the same bits alone and in a batch: a resumed run asks in other batches",
                met=text,
            )

    def test_callers_cannot_change_what_the_next_caller_gets(self, embedder: Embedder) -> None:
        before = embedder.embed([self.TEXTS[0]]).tobytes()
        embedder.embed([self.TEXTS[0]])[:] = 0.0
        expect(
            embedder.embed([self.TEXTS[0]]).tobytes() == before,
            "Embedder.embed",
            "gives each caller an array of its own, not the cached one",
            met="a caller set its array to 0, and the next one got zeros",
        )

    def test_texts_that_share_words_are_nearer_than_texts_that_do_not(self, embedder: Embedder) -> None:
        goal, near, far = embedder.embed(
            ["put a clean mug in the shelf", "put a clean plate in the shelf", "gardening outside during summer"]
        )
        expect(
            bool(goal @ near > goal @ far),
            "Embedder.embed",
            "puts texts that share words nearer than texts that share none",
            met={"near": float(goal @ near), "far": float(goal @ far)},
        )

    def test_it_has_a_name(self, embedder: Embedder) -> None:
        wants = "is a text that changes whenever the vectors do: vectors of two kinds must not be mixed in one memory"
        expect(isinstance(embedder.name, str) and embedder.name != "", "Embedder.name", wants, met=embedder.name)
