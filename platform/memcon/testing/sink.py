"""The sink port under test: the contract body that every sink passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from memcon.protocols import EpisodeSink
from memcon.testing.contract import Contract, expect_equal, to_give
from memcon.testing.memory import episode_of
from memcon.types import Episode

__all__ = ["EpisodeSinkContract", "ReadBack"]

# ReadBack(cell, stream) -> ordinals of all episodes that the place holds of the stream, in order of their blocks.
ReadBack = Callable[[str, int], list[int]]


def _episodes(count: int, *, cell: str = "cell", stream: int = 0) -> list[Episode]:
    return [replace(episode_of(ordinal), cell=cell, stream=stream) for ordinal in range(count)]


class EpisodeSinkContract(Contract):
    """What every EpisodeSink does. Override the fixtures `sink` and `read_back`, which reads what `sink` wrote."""

    @pytest.fixture
    def sink(self) -> EpisodeSink:
        """The sink under test."""
        to_give(self, "sink", "EpisodeSink", "the sink under test, over an empty place")

    @pytest.fixture
    def read_back(self) -> ReadBack:
        """Reads what `sink` wrote."""
        to_give(
            self, "read_back", "ReadBack", "read_back(cell, stream) gives the ordinals of the episodes that are stored"
        )

    def test_a_block_is_read_back_whole_and_in_order(self, sink: EpisodeSink, read_back: ReadBack) -> None:
        sink.write_block("cell", 0, 0, _episodes(3))
        expect_equal(
            read_back("cell", 0), [0, 1, 2], "EpisodeSink.write_block", wants="keeps every episode of a block, in order"
        )

    def test_a_partial_block_is_rewritten_in_place(self, sink: EpisodeSink, read_back: ReadBack) -> None:
        sink.write_block("cell", 0, 0, _episodes(2))
        sink.write_block("cell", 0, 0, _episodes(4))
        expect_equal(
            read_back("cell", 0),
            [0, 1, 2, 3],
            "EpisodeSink.write_block",
            wants="replaces a block that is written again under its number",
        )

    def test_streams_and_cells_do_not_touch_each_other(self, sink: EpisodeSink, read_back: ReadBack) -> None:
        sink.write_block("cell", 0, 0, _episodes(2))
        sink.write_block("cell", 1, 0, _episodes(1, stream=1))
        sink.write_block("other", 0, 0, _episodes(3, cell="other"))
        expect_equal(
            [read_back("cell", 0), read_back("cell", 1), read_back("other", 0)],
            [[0, 1], [0], [0, 1, 2]],
            "EpisodeSink.write_block",
            wants="keeps the blocks of each cell and stream apart",
        )
