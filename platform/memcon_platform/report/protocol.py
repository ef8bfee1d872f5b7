"""How a row departs from the paper's protocol: shared table, pooled keys, warm start, a policy of ours (A-31)."""

from __future__ import annotations

from collections.abc import Iterator

from memcon_platform.config import Cell
from memcon_platform.config.plan import MemoryStart, TableStart
from memcon_platform.report.grouping import LEARNED, NO_MEMORY, OUR_POLICIES, PlannedGroup

__all__ = ["LETTERS", "OURS", "POOLED_KEYS", "SHARED", "WARM", "levels", "origins", "tags"]

# One table sees what several streams, or several cells, bring.
SHARED = "shared table"
# The numbers of a key are shrunk towards those of coarser keys, or draw on them.
POOLED_KEYS = "pooled keys"
# The table or the memory has seen tasks of an earlier run.
WARM = "warm"
OURS = "ours"
# Tags in one letter, where a table has no room; `OURS` is in the row's name.
LETTERS = {SHARED: "S", POOLED_KEYS: "K", WARM: "W"}


def tags(planned: PlannedGroup) -> tuple[str, ...]:
    """SHARED, POOLED_KEYS, WARM and OURS, as far as they hold for a cell of the row."""
    found = {tag for tag, _ in _departures(planned)}
    return tuple(tag for tag in (SHARED, POOLED_KEYS, WARM, OURS) if tag in found)


def origins(planned: PlannedGroup) -> tuple[str, ...]:
    """What stands behind the tags, one phrase each, which begins with its tag."""
    return tuple(dict.fromkeys(f"{tag}: {phrase}" for tag, phrase in _departures(planned)))


def levels(cell: Cell) -> tuple[str, ...]:
    """Labels of the state-key schemas over which the cell's policy pools, finest first, without the key's own."""
    pooling = cell.settings.get("policy", {}).get("pooling") or ()
    return tuple(pooling)


def _departures(planned: PlannedGroup) -> Iterator[tuple[str, str]]:
    """Each tag that holds, and why."""
    for cell in planned.cells:
        if planned.role == LEARNED:
            yield from _pooled(cell)
        yield from _warm(cell, planned.role)
    if planned.first.policy.name in OUR_POLICIES:
        yield OURS, f"policy '{planned.first.policy.name}' is defined by this project, not by the paper"


def _pooled(cell: Cell) -> Iterator[tuple[str, str]]:
    if cell.table_scope not in {"cell", "stream"}:
        yield SHARED, f"cells share the table '{cell.table_scope}'"
    elif cell.table_scope == "cell" and cell.streams > 1:
        yield SHARED, f"{cell.streams} streams share one, which sees {cell.streams} times the feedback of one stream"
    if levels(cell):
        key = cell.settings.get("policy", {}).get("state_key", "its state key")
        yield POOLED_KEYS, f"statistics of {key} are pooled over {' > '.join(levels(cell))}"


def _warm(cell: Cell, role: str) -> Iterator[tuple[str, str]]:
    start = cell.start_from
    if start.policy is not None and role == LEARNED:
        yield WARM, f"starts from the table of {_source(start.policy)}, {_counts(start.policy)}"
    if start.memory is not None and role != NO_MEMORY:
        yield WARM, f"starts from the memory of {_source(start.memory)}{', frozen' if start.memory.frozen else ''}"


def _source(start: TableStart | MemoryStart) -> str:
    return f"{start.run}, {f'cell {start.cell}' if start.cell else 'its matching cell'}"


def _counts(start: TableStart) -> str:
    counts = "all counts" if start.cap is None else f"counts capped at {start.cap}"
    return f"{counts}, frozen" if start.frozen else counts
