"""The memory reader port under test: the contract body that the controller's side of a task passes."""

from __future__ import annotations

import pytest

from memcon.protocols import MemoryReader
from memcon.testing.contract import Contract, Run, expect, expect_equal, to_give
from memcon.testing.memory import trajectory_of
from memcon.types import MemoryContext

__all__ = ["MemoryReaderContract"]


class MemoryReaderContract(Contract):
    """What every MemoryReader does. Override the fixture `reader`: a task that has not begun to act."""

    @pytest.fixture
    def reader(self) -> MemoryReader:
        """The reader under test."""
        to_give(self, "reader", "MemoryReader", "the reader under test, of a task that has not begun to act")

    def test_there_is_a_block_at_task_start(self, run: Run, reader: MemoryReader) -> None:
        block = run(reader.context([]))
        expect(isinstance(block, MemoryContext), "MemoryReader.context", "gives a block before any step", met=block)

    def test_the_block_stands_while_nothing_happens(self, run: Run, reader: MemoryReader) -> None:
        first = run(reader.context([]))
        expect_equal(
            run(reader.context([])), first, "MemoryReader.context", wants="gives the block that stands for equal steps"
        )

    def test_it_is_asked_before_every_model_call_with_all_steps_so_far(self, run: Run, reader: MemoryReader) -> None:
        steps = trajectory_of("put some mug on the shelf", [f"go to shelf {place}" for place in range(20)]).steps
        for count in range(len(steps) + 1):
            block = run(reader.context(steps[:count]))
            expect(
                isinstance(block, MemoryContext),
                "MemoryReader.context",
                f"gives a block at every step, here after {count}",
                met=block,
            )
