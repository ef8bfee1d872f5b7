"""How a row departs from the paper's protocol: pooled statistics, a warm start, a policy that is ours (A-31, RO-15)."""

from __future__ import annotations

from collections.abc import Iterator

from memcon_platform.config import Cell
from memcon_platform.config.plan import MemoryStart, TableStart
from memcon_platform.report.grouping import LEARNED, NO_MEMORY, OUR_POLICIES, PlannedGroup

__all__ = ["OURS", "POOLED", "WARM", "levels", "origins", "tags"]

# One table sees what several streams or several keys bring.
POOLED = "pooled"
# The table or the memory has seen tasks of an earlier run.
WARM = "warm"
OURS = "ours"


def tags(planned: PlannedGroup) -> tuple[str, ...]:
    """POOLED, WARM and OURS, as far as they hold for a cell of the row."""
    cells = planned.cells
    found = {
        POOLED: planned.role == LEARNED and any(True for cell in cells for _ in _pooled(cell)),
        WARM: any(True for cell in cells for _ in _warm(cell, planned.role)),
        OURS: planned.first.policy.name in OUR_POLICIES,
    }
    return tuple(tag for tag, holds in found.items() if holds)


def origins(planned: PlannedGroup) -> tuple[str, ...]:
    """What stands behind the tags, one phrase each."""
    learned = planned.role == LEARNED
    phrases = [
        phrase for cell in planned.cells for phrase in (*(_pooled(cell) if learned else ()), *_warm(cell, planned.role))
    ]
    if planned.first.policy.name in OUR_POLICIES:
        phrases.append(f"policy '{planned.first.policy.name}' is defined by this project, not by the paper")
    return tuple(dict.fromkeys(phrases))


def levels(cell: Cell) -> tuple[str, ...]:
    """Labels of the state-key schemas over which the cell's policy pools, finest first, without the key's own."""
    pooling = cell.settings.get("policy", {}).get("pooling") or ()
    return tuple(pooling)


def _pooled(cell: Cell) -> Iterator[str]:
    if cell.table_scope not in {"cell", "stream"}:
        yield f"pooled: cells share the table '{cell.table_scope}'"
    elif cell.table_scope == "cell" and cell.streams > 1:
        yield f"pooled: {cell.streams} streams share one table, which sees {cell.streams} times the feedback of one"
    if levels(cell):
        key = cell.settings.get("policy", {}).get("state_key", "its state key")
        yield f"pooled: statistics of {key} over {' > '.join(levels(cell))}"


def _warm(cell: Cell, role: str) -> Iterator[str]:
    start = cell.start_from
    if start.policy is not None and role == LEARNED:
        yield f"warm: starts from the table of {_source(start.policy)}, {_counts(start.policy)}"
    if start.memory is not None and role != NO_MEMORY:
        yield f"warm: starts from the memory of {_source(start.memory)}{', frozen' if start.memory.frozen else ''}"


def _source(start: TableStart | MemoryStart) -> str:
    return f"{start.run}, {f'cell {start.cell}' if start.cell else 'its matching cell'}"


def _counts(start: TableStart) -> str:
    counts = "all counts" if start.cap is None else f"counts capped at {start.cap}"
    return f"{counts}, frozen" if start.frozen else counts
