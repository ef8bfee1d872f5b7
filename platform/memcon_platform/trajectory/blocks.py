"""Where the blocks of a run lie. The episodes file of a block is written last: it marks the block as finished."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from memcon.files import TEMPORARY_SUFFIX
from memcon_platform.trajectory.schemas import ALL_TABLES

__all__ = ["Block", "blocks_of", "finished_blocks", "leftovers"]

_FILE = re.compile(r"stream-(\d{3,})-block-(\d{4,})\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """One block of a stream."""

    cell: str
    stream: int
    block: int

    def path(self, run_dir: Path, table: str) -> Path:
        """The block's file of `table`."""
        return run_dir / table / f"cell={self.cell}" / f"stream-{self.stream:03d}-block-{self.block:04d}.parquet"


def blocks_of(run_dir: Path, table: str) -> list[Block]:
    """Blocks that have a file in `table`, in order of (cell, stream, block)."""
    found = []
    for path in (run_dir / table).glob("cell=*/stream-*-block-*.parquet"):
        match = _FILE.fullmatch(path.name)
        if match:
            found.append(Block(path.parent.name.removeprefix("cell="), int(match[1]), int(match[2])))
    return sorted(found)


def finished_blocks(run_dir: Path) -> list[Block]:
    """Blocks whose last file was written, in order of (cell, stream, block)."""
    return blocks_of(run_dir, "episodes")


def leftovers(run_dir: Path) -> list[Path]:
    """Temporary files that a killed writer left; readers never look at them."""
    return sorted(path for table in ALL_TABLES for path in (run_dir / table).glob(f"cell=*/*{TEMPORARY_SUFFIX}"))
