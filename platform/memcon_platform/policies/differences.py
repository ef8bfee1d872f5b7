"""Two tables held against each other: the settings that differ, and the cells, the largest difference of q first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memcon import codec
from memcon.policy_types import LearningSettings
from memcon_platform.policies.record import TableRecord

__all__ = ["Cell", "CellDifference", "TableDifference", "table_difference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One (key, arm) of a table."""

    q: float
    taken: int
    credited: int
    # Sum of the squared returns, weighted as q.
    squares: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDifference:
    """A cell that is another one in the second table."""

    key: str
    arm: str
    # None = the table does not have the arm.
    first: Cell | None
    second: Cell | None

    @property
    def q_difference(self) -> float:
        """How much larger q is in the second; 0 where one does not have the arm."""
        return 0.0 if self.first is None or self.second is None else self.second.q - self.first.q


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDifference:
    """How two tables differ; equal when both are empty."""

    # Name -> both values, JSON-able.
    settings: Mapping[str, tuple[Any, Any]]
    # Sorted: by |difference of q|, falling; then by key, and by arm in the tables' order.
    cells: tuple[CellDifference, ...]

    @property
    def equal(self) -> bool:
        """Both have the same settings and numbers, bit for bit."""
        return not (self.settings or self.cells)


def table_difference(first: TableRecord, second: TableRecord) -> TableDifference:
    """How `second` differs from `first`; a key that one has never met has its priors there."""
    one, other = codec.encode(first.settings), codec.encode(second.settings)
    arms = list(dict.fromkeys((*first.settings.action_ids, *second.settings.action_ids)))
    priors = _fresh(first.settings), _fresh(second.settings)
    cells = []
    for key in sorted({*first.numbers, *second.numbers}):
        mine, theirs = first.numbers.get(key, priors[0]), second.numbers.get(key, priors[1])
        cells += [
            CellDifference(key=key, arm=arm, first=_cell(mine.get(arm)), second=_cell(theirs.get(arm)))
            for arm in arms
            if mine.get(arm) != theirs.get(arm)
        ]
    # Stable: what is equally far apart stays by key and arm.
    cells.sort(key=lambda cell: -abs(cell.q_difference))
    return TableDifference(
        settings={name: (one[name], other[name]) for name in one if one[name] != other[name]}, cells=tuple(cells)
    )


def _fresh(settings: LearningSettings) -> dict[str, dict[str, str | int]]:
    """The arms of a key that was never met (MC-28)."""
    return {
        arm: {"q": float(prior).hex(), "taken": 0, "credited": 0, "squares": (0.0).hex()}
        for arm, prior in zip(settings.action_ids, settings.priors, strict=True)
    }


def _cell(cell: Mapping[str, str | int] | None) -> Cell | None:
    if cell is None:
        return None
    return Cell(
        q=float.fromhex(str(cell["q"])),
        taken=int(cell["taken"]),
        credited=int(cell["credited"]),
        squares=float.fromhex(str(cell["squares"])),
    )
