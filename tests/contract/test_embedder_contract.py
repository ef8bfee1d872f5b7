"""Every embedder passes the contract body."""

from __future__ import annotations

import pytest

from memcon import registry
from memcon.protocols import Embedder
from memcon.testing import EmbedderContract
from memcon.testing.embedder import FixedEmbedder


class TestHashing(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return _built("hashing")


class TestHashingWithNumbers(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return _built("hashing", numbers=True, dim=64)


class TestWordLlama(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return _built("wordllama", cached_texts=2)


class TestFixed(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        vectors = {
            "put a clean mug in the shelf": (1.0, 0.1, 0.0),
            "put a clean plate in the shelf": (1.0, 0.2, 0.0),
            "heat some egg and put it in the fridge": (0.0, 1.0, 0.0),
            "gardening outside during summer": (0.0, 0.0, 1.0),
        }
        return FixedEmbedder(vectors, dim=3)


def test_other_vectors_have_another_name() -> None:
    names = {_built("hashing", **given).name for given in ({}, {"dim": 64}, {"numbers": True})}
    assert len(names) == 3


def _built(name: str, **parameters: object) -> Embedder:
    built: Embedder = registry.plugin("embedder", name).build(registry.configure("embedder", name, parameters))
    return built
