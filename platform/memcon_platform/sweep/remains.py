"""What a run still owes after a launch that was cut short: streams to run or to export, and served tables to write.

A kill between a stream's last commit and its last block, or between the last outcome and a shard's export, leaves
nothing to run; the next launch must still write what is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from memcon.errors import DamagedFileError
from memcon_platform.config.plan import RunPlan
from memcon_platform.sweep.events import StreamName
from memcon_platform.sweep.run_folder import policy_folder
from memcon_platform.sweep.status import StreamStatus
from memcon_platform.trajectory import TABLES
from memcon_platform.trajectory.blocks import Block, finished_blocks
from memcon_platform.trajectory.reader import read_file
from memcon_policy_server.client.local import LocalClientFactory
from memcon_policy_server.owner.exports import is_exported
from memcon_policy_server.sharding import journal_path

__all__ = ["streams_left", "write_served_tables"]


def streams_left(plan: RunPlan, found: Mapping[StreamName, tuple[StreamStatus, int]]) -> list[StreamName]:
    """Streams with tasks to run, outcomes to deliver or ended tasks that Parquet lacks, in the order of the plan."""
    exported = _exported(plan)
    return [
        name
        for name, (status, num_tasks) in found.items()
        if not status.done(num_tasks) or exported[name] < status.num_ended
    ]


async def write_served_tables(plan: RunPlan) -> None:
    """Write the served tables of shards whose owner was killed before its export; the journals hold all of them.

    Raises:
        MemconError: a journal cannot be read or claimed, or the folder cannot be written.
    """
    directory, num_shards = policy_folder(plan), plan.settings.policy_server.shards
    shards = [shard for shard in range(num_shards) if journal_path(directory, shard).exists()]
    if all(is_exported(directory, shard, num_shards) for shard in shards):
        return
    # Its end is its export.
    await LocalClientFactory(directory=directory, num_shards=num_shards)().close()


def _exported(plan: RunPlan) -> Counter[StreamName]:
    """Tasks in whole blocks of Parquet; a block with a file that is missing or broken counts as none."""
    rows: Counter[StreamName] = Counter()
    for block in finished_blocks(plan.run_dir):
        try:
            rows[block.cell, block.stream] += _tasks_of(plan.run_dir, block)
        except DamagedFileError:
            continue
    return rows


def _tasks_of(run_dir: Path, block: Block) -> int:
    """Tasks of a block whose files can all be read; one of trials it has only where its tasks have some.

    Raises:
        DamagedFileError: a file is missing or broken.
    """
    episodes = read_file(block.path(run_dir, "episodes"), "episodes", ("num_trials",))
    more = ("trials",) if any(episodes["num_trials"].to_pylist()) else ()
    for table in (*TABLES, *more):
        read_file(block.path(run_dir, table), table, ())
    return int(episodes.num_rows)
