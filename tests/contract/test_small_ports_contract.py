"""The small ports: clock, memory reader and sink, fakes included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memcon.clock import SystemClock
from memcon.protocols import Clock, EpisodeSink, MemoryReader
from memcon.store import StreamStore
from memcon.testing.clock import ClockContract
from memcon.testing.framework import FixedMemory
from memcon.testing.reader import MemoryReaderContract
from memcon.testing.sink import EpisodeSinkContract, ReadBack
from memcon_platform.trajectory import ParquetSink, read_run
from support.control import ScriptedPolicy
from support.controller import BACKENDS, begin, controller_of
from support.streams import MemorySink


class TestSystemClock(ClockContract):
    @pytest.fixture
    def clock(self) -> Clock:
        return SystemClock()


class TestFixedMemory(MemoryReaderContract):
    @pytest.fixture
    def reader(self) -> MemoryReader:
        return FixedMemory()


class TestTaskMemory(MemoryReaderContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[StreamStore]:
        store = StreamStore(tmp_path / "stream.sqlite", identity="cell/0")
        yield store
        store.close()

    @pytest.fixture(params=["learned", "static"])
    def reader(self, request: pytest.FixtureRequest, store: StreamStore) -> MemoryReader:
        policy = ScriptedPolicy("noop", "retrieve_shallow") if request.param == "learned" else None
        return begin(controller_of(BACKENDS["metagpt"](store), store, policy))


class TestParquetSink(EpisodeSinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> EpisodeSink:
        return ParquetSink(tmp_path)

    @pytest.fixture
    def read_back(self, tmp_path: Path) -> ReadBack:
        def read(cell: str, stream: int) -> list[int]:
            rows = read_run(tmp_path, tables=("episodes",)).episodes.to_pylist()
            return [row["ordinal"] for row in rows if (row["cell"], row["stream"]) == (cell, stream)]

        return read


class TestMemorySink(EpisodeSinkContract):
    @pytest.fixture
    def sink(self) -> MemorySink:
        return MemorySink()

    @pytest.fixture
    def read_back(self, sink: MemorySink) -> ReadBack:
        def read(cell: str, stream: int) -> list[int]:
            blocks = sorted(key for key in sink.blocks if key[:2] == (cell, stream))
            return [episode.ordinal for key in blocks for episode in sink.blocks[key]]

        return read
