"""Learned tables of earlier runs: read from their journals, and held against the cell that wants them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from memcon import codec, ids, registry
from memcon.control.settings import OBSERVING
from memcon.errors import DamagedFileError, NotFoundError
from memcon.learning import transfer
from memcon_platform.assembly import learning_settings
from memcon_platform.config.plan import Cell, Entry, RunPlan
from memcon_platform.sweep.run_folder import policy_folder
from memcon_policy_server.journal.fold import folded
from memcon_policy_server.sharding import journal_path

__all__ = [
    "EarlierTables",
    "cell_difference",
    "cell_fingerprint",
    "fingerprint_id",
    "shards_filled",
    "sharers_difference",
]

_REMEDY = "restore it from a copy, or leave start_from.policy out; nothing was written over it"


class EarlierTables:
    """The tables of a run that nobody drives, folded from its journals; nothing is written.

    Raises:
        MemconError: a journal is missing or damaged.
    """

    def __init__(self, plan: RunPlan) -> None:
        directory, num_shards = policy_folder(plan), plan.settings.policy_server.shards
        for path in (journal_path(directory, shard) for shard in range(num_shards)):
            if not path.exists():
                raise DamagedFileError(path, "it is missing, though a run starts from its table", _REMEDY)
        shards = [folded(directory, shard, num_shards) for shard in range(num_shards)]
        self._shards = [core for core, _ in shards]
        # By shard.
        self.last_events = tuple(last_seq for _, last_seq in shards)

    def numbers(self, table: str, *, cap: int | None) -> Mapping[str, Mapping[str, Mapping[str, str | int]]]:
        """The numbers of `table`, its keys from all shards, with at most `cap` outcomes a (key, arm).

        Raises:
            NotFoundError: no stream of the run has ever learned in it.
        """
        numbers: dict[str, Any] = {}
        count_cap = None
        for core in self._shards:
            dump = core.dump(table)
            numbers |= dump["numbers"]["keys"]
            count_cap = dump["settings"].get("count_cap")
        return transfer.capped(dict(sorted(numbers.items())), cap, count_cap=count_cap)


def shards_filled(plan: RunPlan, tables: Iterable[str]) -> dict[str, int]:
    """Shards at which earlier launches of `plan` have filled each of `tables` from another run.

    Raises:
        MemconError: a journal of the run is damaged.
    """
    directory, num_shards = policy_folder(plan), plan.settings.policy_server.shards
    filled = dict.fromkeys(tables, 0)
    # A table is opened at all shards before it is filled at the first.
    if not filled or not all(journal_path(directory, shard).exists() for shard in range(num_shards)):
        return filled
    for shard in range(num_shards):
        core, _ = folded(directory, shard, num_shards)
        for table in filled:
            with suppress(NotFoundError):
                filled[table] += "imported" in core.dump(table)
    return filled


def cell_fingerprint(cell: Cell, *, with_preload: bool = True) -> Mapping[str, Any]:
    """What the numbers of the cell's table are about; empty for a cell without a table."""
    settings = learning_settings(cell)
    if settings is None:
        return {}
    return transfer.table_fingerprint(
        goal_types=_goal_types(cell.benchmark.name, codec.encode_json(cell.benchmark.parameters)),
        settings=settings,
        reward=cell.reward,
        control={name: value for name, value in codec.encode(cell.control).items() if name not in OBSERVING},
        agent={"framework": _described(cell.framework), "backbone": _described(cell.backbone)},
        backend={
            "memory": _described(cell.memory),
            "embedder": _described(cell.embedder),
            "preload": codec.encode(cell.preload) if with_preload else None,
        },
    )


def sharers_difference(recorded: Sequence[Cell], asked: Sequence[Cell]) -> str:
    """Why a table that the cells `asked` share cannot start from one that the cells `recorded` have learned in; or "".

    Each side must have a cell like each of the other: a table is about all that has fed it.
    """
    for ours, theirs in ((asked, recorded), (recorded, asked)):
        for cell in ours:
            pairs = [(other, cell) if ours is asked else (cell, other) for other in theirs]
            differences = [cell_difference(*pair) for pair in pairs]
            if all(differences):
                side = "asks" if ours is asked else "has fed it"
                return f"cell '{cell.label}' {side}, and none is like it on the other side: {min(differences, key=len)}"
    return ""


def cell_difference(recorded: Cell, asked: Cell) -> str:
    """Why `asked` cannot start from the table of `recorded`, a cell of an earlier run; "" when it can."""
    # A memory that is taken over holds its own preload, whatever the config says of one.
    with_preload = asked.start_from.memory is None
    fingerprint = cell_fingerprint(recorded, with_preload=with_preload)
    if not fingerprint:
        return f"policy '{recorded.policy.name}' keeps no table"
    return transfer.fingerprint_difference(fingerprint, cell_fingerprint(asked, with_preload=with_preload))


def fingerprint_id(fingerprint: Mapping[str, Any]) -> str:
    """16 hex digits that stand for `fingerprint`."""
    return ids.stable_hash("table fingerprint", fingerprint)


def _described(entry: Entry) -> dict[str, Any]:
    return {"name": entry.name, **entry.parameters}


@functools.cache
def _goal_types(benchmark: str, parameters: str) -> tuple[str, ...]:
    built = registry.build("benchmark", benchmark, codec.decode_json(dict[str, Any], parameters))
    goal_types: tuple[str, ...] = built.goal_types
    return goal_types
