"""Fixtures of the tests of memory control: a stream's file, and backends that count their calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memcon.store import StreamStore
from memcon.testing.memory import SpyBackend
from support.controller import BACKENDS


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StreamStore]:
    store = StreamStore(tmp_path / "stream.sqlite", identity="cell/0")
    yield store
    store.close()


@pytest.fixture(params=list(BACKENDS))
def any_backend(request: pytest.FixtureRequest, store: StreamStore) -> SpyBackend:
    return SpyBackend(BACKENDS[request.param](store))


@pytest.fixture
def metagpt(store: StreamStore) -> SpyBackend:
    return SpyBackend(BACKENDS["metagpt"](store))
