"""Files that a run had and has no more. Going on without them would start them empty, so the launch is refused."""

from __future__ import annotations

from collections.abc import Mapping

from memcon.errors import DamagedFileError
from memcon.store import DAMAGE_REMEDY
from memcon_platform.assembly import learning_settings
from memcon_platform.config.plan import RunPlan
from memcon_platform.sweep.events import StreamName
from memcon_platform.sweep.run_folder import policy_folder
from memcon_platform.sweep.status import StreamStatus, stream_path
from memcon_platform.trajectory.blocks import finished_blocks
from memcon_policy_server.sharding import journal_path

__all__ = ["refuse_lost_journals", "refuse_lost_streams"]


def refuse_lost_streams(plan: RunPlan) -> None:
    """Every stream with tasks in Parquet has its file.

    Decision ids come from the stream's own counters: a stream that began anew would meet its old ids in the journal.

    Raises:
        DamagedFileError: names the file that is missing.
    """
    for block in finished_blocks(plan.run_dir):
        path = stream_path(plan.run_dir, block.cell, block.stream)
        if not path.exists():
            raise DamagedFileError(path, "it is missing, though tasks of this stream are in Parquet", DAMAGE_REMEDY)


def refuse_lost_journals(plan: RunPlan, found: Mapping[StreamName, tuple[StreamStatus, int]]) -> None:
    """Every shard has its journal once a task of a learned or counted policy has ended.

    Raises:
        DamagedFileError: names the journal that is missing or empty.
    """
    learning = {cell.cell_id for cell in plan.cells if learning_settings(cell) is not None}
    if not any(status.num_ended for (cell, _), (status, _) in found.items() if cell in learning):
        return
    for shard in range(plan.settings.policy_server.shards):
        path = journal_path(policy_folder(plan), shard)
        # A journal is committed with its first table, before any task begins.
        if not path.exists() or path.stat().st_size == 0:
            problem = "it is empty" if path.exists() else "it is missing"
            raise DamagedFileError(path, f"{problem}, though tasks that it decided have ended", DAMAGE_REMEDY)
