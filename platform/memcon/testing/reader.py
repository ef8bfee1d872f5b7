"""The memory reader port under test: the contract body that the controller's side of a task passes."""

from __future__ import annotations

import pytest

from memcon.protocols import MemoryReader
from memcon.testing.memory import trajectory_of
from memcon.types import MemoryContext

__all__ = ["MemoryReaderContract"]


class MemoryReaderContract:
    """What every MemoryReader does. Override the fixture `reader`: a task that has not begun to act."""

    @pytest.fixture
    def reader(self) -> MemoryReader:
        raise NotImplementedError

    async def test_there_is_a_block_at_task_start(self, reader: MemoryReader) -> None:
        assert isinstance(await reader.context([]), MemoryContext)

    async def test_the_block_stands_while_nothing_happens(self, reader: MemoryReader) -> None:
        first = await reader.context([])
        assert await reader.context([]) == first

    async def test_it_is_asked_before_every_model_call_with_all_steps_so_far(self, reader: MemoryReader) -> None:
        steps = trajectory_of("put some mug on the shelf", [f"go to shelf {place}" for place in range(20)]).steps
        blocks = [await reader.context(steps[:count]) for count in range(len(steps) + 1)]
        assert all(isinstance(block, MemoryContext) for block in blocks)
