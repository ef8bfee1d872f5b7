"""What is particular to each embedder."""

from __future__ import annotations

import numpy as np
import pytest

from memcon import registry
from memcon.control.memory.embedder_hashing import HashingConfig, HashingEmbedder
from memcon.control.memory.embedder_wordllama import WordLlamaConfig, WordLlamaEmbedder
from memcon.errors import ConfigError, MissingExtraError
from memcon.protocols import Embedder


def test_hashing_leaves_numbers_out_unless_told() -> None:
    words, numbers = HashingEmbedder(HashingConfig()), HashingEmbedder(HashingConfig(numbers=True))
    texts = ["put mug 1 in shelf 2", "put mug 7 in shelf 9"]
    assert np.array_equal(*words.embed(texts))
    assert not np.array_equal(*numbers.embed(texts))
    assert words.name != numbers.name


def test_hashing_ignores_case_and_order_and_counts_words() -> None:
    embedder = HashingEmbedder(HashingConfig())
    one, other, twice = embedder.embed(["Mug in Shelf", "shelf in mug", "mug mug in shelf"])
    assert np.array_equal(one, other)
    assert not np.array_equal(one, twice)


def test_hashing_gives_the_same_bits_on_every_machine() -> None:
    vector = HashingEmbedder(HashingConfig(dim=8)).embed(["put a clean mug in the shelf"])[0]
    assert vector.tolist() == [0.30151134729385376, 0.0, 0.0, 0.0, 0.9045340418815613, -0.30151134729385376, 0.0, 0.0]


@pytest.mark.parametrize("dim", [1, 70000])
def test_hashing_bounds_its_size(dim: int) -> None:
    with pytest.raises(ConfigError, match=f"dim = {dim}"):
        HashingConfig(dim=dim)


class CountingModel:
    """Stands for the library: counts calls, gives vectors that are not unit."""

    def __init__(self) -> None:
        self.embedding = np.zeros((10, 3))
        self.texts: list[str] = []

    def embed(self, texts: list[str]) -> np.ndarray:
        self.texts += texts
        return np.array([[3.0, 4.0, 0.0] if text else [0.0, 0.0, 0.0] for text in texts], dtype=np.float32)


def test_wordllama_embeds_a_repeated_text_once_and_scales_it() -> None:
    model = CountingModel()
    embedder = WordLlamaEmbedder(WordLlamaConfig(cached_texts=2), model)
    for _ in range(3):
        assert embedder.embed(["goal", "", "goal"]).tolist() == pytest.approx(
            np.array([[0.6, 0.8, 0.0], [0.0, 0.0, 0.0], [0.6, 0.8, 0.0]])
        )
    assert model.texts == ["goal", ""]


def test_wordllama_forgets_texts_beyond_its_bound() -> None:
    model = CountingModel()
    embedder = WordLlamaEmbedder(WordLlamaConfig(cached_texts=1), model)
    embedder.embed(["a", "b", "a"])
    assert model.texts == ["a", "b", "a"]


def test_wordllama_knows_that_other_words_can_mean_the_same() -> None:
    plugin = registry.plugin("embedder", "wordllama")
    embedder: Embedder = plugin.build(plugin.config())
    goal, paraphrase, other = embedder.embed(
        ["put a clean mug on the shelf", "place a washed cup onto the rack", "repair the flat tyre of the car"]
    )
    assert goal @ paraphrase > goal @ other + 0.1


def test_wordllama_names_its_extra_when_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wordllama", None)
    plugin = registry.plugin("embedder", "wordllama")
    with pytest.raises(MissingExtraError, match=r"memcon\[embed\]"):
        plugin.build(plugin.config())
