"""Every memory backend passes the contract body, the toy one included (MC-37)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from memcon import registry
from memcon.control.memory.embedder_hashing import HashingConfig, HashingEmbedder
from memcon.protocols import MemoryBackend
from memcon.store import StreamStore
from memcon.testing import MemoryBackendContract
from memcon.testing.memory import SpyBackend, ToyBackend

Make = Callable[[StreamStore], MemoryBackend]


def make_registered(name: str, **parameters: object) -> Make:
    def make(store: StreamStore) -> MemoryBackend:
        config = registry.configure("memory", name, parameters)
        built: MemoryBackend = registry.plugin("memory", name).build(
            config, store=store, embedder=HashingEmbedder(HashingConfig())
        )
        return built

    return make


class TestEmpty(MemoryBackendContract):
    keeps = False

    @pytest.fixture
    def make(self) -> Make:
        return make_registered("empty")


class TestMetaGPT(MemoryBackendContract):
    @pytest.fixture
    def make(self) -> Make:
        return make_registered("metagpt")


class TestMetaGPTWithFailures(MemoryBackendContract):
    @pytest.fixture
    def make(self) -> Make:
        return make_registered("metagpt", top_k=3, failed_top_k=2)


class TestMetaGPTWithMaintenance(MemoryBackendContract):
    @pytest.fixture
    def make(self) -> Make:
        return make_registered("metagpt", maintenance=True)


class TestMetaGPTWithFailuresInOneIndex(MemoryBackendContract):
    @pytest.fixture
    def make(self) -> Make:
        return make_registered("metagpt", top_k=3, index_failures=True, maintenance=True)


class TestToy(MemoryBackendContract):
    @pytest.fixture
    def make(self) -> Make:
        return lambda store: ToyBackend()

    def test_it_is_at_most_twenty_lines_long(self) -> None:
        lines = [line for line in inspect.getsource(ToyBackend).splitlines() if line.strip()]
        assert len(lines) <= 20


class TestSpy(MemoryBackendContract):
    @pytest.fixture
    def make(self) -> Make:
        return lambda store: SpyBackend(make_registered("metagpt")(store))


@pytest.mark.parametrize("name", ["empty", "metagpt"])
def test_undeclared_parameters_are_refused(name: str, tmp_path: Path) -> None:
    # Capability lookup would be a lie otherwise (MC-15).
    store = StreamStore(tmp_path / "stream.sqlite", identity="cell/0")
    try:
        backend = make_registered(name)(store)
        with pytest.raises(TypeError, match="hop"):
            backend.retrieve("goal", hop=1)
    finally:
        store.close()
