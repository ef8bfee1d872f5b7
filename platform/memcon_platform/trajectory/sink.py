"""ParquetSink: finished episodes to Parquet blocks. A crash leaves an old file or a whole new one, never half a file.

Each file is encoded in memory, written under a temporary name, synced and renamed. The temporary name is a function of
the block, so that the rewrite after a crash takes the leftover's place. The stream's lock makes the writer single.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from memcon.errors import InvariantError
from memcon.files import replace_file
from memcon.types import Episode
from memcon_platform.trajectory.blocks import Block
from memcon_platform.trajectory.rows import decision_rows, episode_row, step_rows, trial_rows
from memcon_platform.trajectory.schemas import BLOCK_TASKS, SCHEMAS, TABLES

__all__ = ["ParquetSink", "SinkFactory"]

_Rows = Callable[[Episode], list[dict[str, Any]]]

# The episodes file last: it marks the block as finished (memcon_platform.trajectory.blocks).
_WRITING_ORDER: tuple[tuple[str, _Rows], ...] = (
    ("steps", step_rows),
    ("decisions", decision_rows),
    ("trials", trial_rows),
    ("episodes", lambda episode: [episode_row(episode)]),
)


class ParquetSink:
    """An `EpisodeSink` over a local run folder; files are zstd-compressed, equal bytes for equal rows."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def write_block(self, cell: str, stream: int, block: int, episodes: Sequence[Episode]) -> None:
        """Write block `block` of the stream whole, in place of an earlier, partial one.

        Raises:
            StorageError: the place cannot be written; earlier files stay as they are.
            InvariantError: the episodes are not the first ones of this block, in order.
        """
        _require_block(cell, stream, block, episodes)
        place = Block(cell, stream, block)
        for table, rows in _WRITING_ORDER:
            found = [row for episode in episodes for row in rows(episode)]
            if found or table in TABLES:
                replace_file(place.path(self.run_dir, table), _encode(table, found))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFactory:
    """Picklable: makes the sink inside a worker process."""

    run_dir: Path

    def __call__(self) -> ParquetSink:
        """A sink over the run folder."""
        return ParquetSink(self.run_dir)


def _require_block(cell: str, stream: int, block: int, episodes: Sequence[Episode]) -> None:
    first = block * BLOCK_TASKS
    found = [(episode.cell, episode.stream, episode.ordinal) for episode in episodes]
    expected = [(cell, stream, first + offset) for offset in range(len(episodes))]
    if not 0 < len(episodes) <= BLOCK_TASKS or found != expected:
        wrong = next((pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), None)
        detail = f"{wrong[0]} stands where {wrong[1]} belongs" if wrong else f"{len(episodes)} episodes"
        raise InvariantError(
            f"block {block} of cell {cell}, stream {stream} holds ordinals {first}..{first + BLOCK_TASKS - 1}: {detail}"
        )


def _encode(table: str, rows: list[dict[str, Any]]) -> Any:
    schema = SCHEMAS[table]
    buffer = pa.BufferOutputStream()
    content = pa.Table.from_pylist(rows, schema=schema)
    # Page checksums: a flipped bit must be an error at reading, not another number in a report.
    pq.write_table(content, buffer, compression="zstd", row_group_size=max(len(rows), 1), write_page_checksum=True)
    return buffer.getvalue()
