"""What lets a run go on elsewhere: files that are whole in themselves, no outcome on its way, and a key of one's own.

The key that signs decision tokens never leaves its machine. A run whose outcomes are all delivered needs it no more, so
that another machine goes on with a key of its own.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from memcon.errors import ConflictError, StorageError
from memcon_platform.config import has_plan, read_plan
from memcon_platform.sweep.events import StreamName
from memcon_platform.sweep.status import stream_status
from memcon_platform.trajectory import BLOCK_TASKS
from memcon_platform.trajectory.blocks import Block, blocks_of
from memcon_platform.trajectory.reader import read_file
from memcon_platform.trajectory.schemas import ALL_TABLES
from memcon_policy_server.secret import adopt_folder
from memcon_policy_server.sharding import secret_path

__all__ = ["adopt", "close_databases", "drop_unbacked_blocks", "undelivered"]


def close_databases(run_dir: Path) -> None:
    """Bring the logs that killed owners left beside their SQLite files into these, so that each is whole without.

    One that still has an owner, or is damaged, stays as it is.
    """
    for path in sorted((*run_dir.glob("streams/*/*.sqlite"), *run_dir.glob("policy/*.sqlite"))):
        if path.with_name(f"{path.name}-wal").exists():
            with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=1.0)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def undelivered(run_dir: Path) -> list[StreamName]:
    """Streams with outcomes that the policy has not acknowledged; none where there is no run.

    Raises:
        MemconError: plan or streams cannot be read.
    """
    if not has_plan(run_dir):
        return []
    names = [(cell.cell_id, stream) for cell in read_plan(run_dir).cells for stream in range(cell.streams)]
    return [name for name in names if stream_status(run_dir, *name).undelivered]


def drop_unbacked_blocks(run_dir: Path) -> list[Path]:
    """Remove blocks that hold tasks which their streams have not ended; returns their files.

    Blocks are published one by one and streams with the end of a launch, so that a driver which died has left newer
    blocks. Those tasks are played again; a run that stops before would else report two lives of a stream.

    Raises:
        MemconError: a stream cannot be read, or a file cannot be removed.
    """
    found = sorted({block for table in ALL_TABLES for block in blocks_of(run_dir, table)})
    ended = {
        name: stream_status(run_dir, *name).num_ended
        for name in dict.fromkeys((block.cell, block.stream) for block in found)
    }
    unbacked = [block for block in found if not _is_backed(run_dir, block, ended[block.cell, block.stream])]
    # The episodes mark a block as finished, so that they go first.
    tables = sorted(ALL_TABLES, key=lambda name: name != "episodes")
    paths = [block.path(run_dir, table) for block in unbacked for table in tables]
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"cannot remove {path}: {error.strerror}; mend permissions") from error
    return paths


def _is_backed(run_dir: Path, block: Block, num_ended: int) -> bool:
    start = block.block * BLOCK_TASKS
    if start + BLOCK_TASKS <= num_ended:
        return True
    path = block.path(run_dir, "episodes")
    return start < num_ended and path.exists() and read_file(path, "episodes", ()).num_rows <= num_ended - start


def adopt(run_dir: Path) -> None:
    """Let this machine go on with a run that it has fetched.

    Raises:
        ConflictError: outcomes are on their way, which only the machine that made them can deliver.
        MemconError: a file of the run cannot be read or written.
    """
    policy = run_dir / "policy"
    if secret_path(policy).exists() or not any(policy.glob("shard-*.sqlite")):
        return
    if waiting := undelivered(run_dir):
        cell, stream = waiting[0]
        raise ConflictError(
            f"{len(waiting)} streams of {run_dir}, such as stream {stream} of cell {cell}, hold outcomes that the "
            "policy has not acknowledged, and only the machine that last drove the run can deliver them: run the same "
            "command there once, or start a new run under another name (run=NAME)"
        )
    adopt_folder(policy)
