"""Headroom: what an arm for each family gains over one arm for all, both chosen on the other seeds.

For each seed, the arm with the best success on the tasks of all other seeds (ties: fewer injected tokens, then the
order of the rows) is chosen for each family, and once for all families; what it came to is read off that static arm's
row on the seed itself. So neither has seen what it is measured on. Only tasks that every static arm ran are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memcon_platform.report.grouping import STATIC_ARM
from memcon_platform.report.measures import Headroom
from memcon_platform.report.rows import Row, differs, family_of, mean_injected, paired, success_of
from memcon_platform.report.samples import Matrices, common, pair

__all__ = ["Oracle", "headroom", "oracle", "static_blocks"]

_ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """A choice of static arms and what it came to."""

    # "family" or "goal type".
    by: str
    # "" or why there is no choice.
    missing: str
    matrices: Matrices | None = None
    # One arm for all families, chosen the same way.
    static: Matrices | None = None
    # Family -> arm -> seeds.
    choices: Mapping[str, Counter[str]] | None = None
    static_choices: Counter[str] | None = None


def static_blocks(rows: Sequence[Row]) -> list[list[Row]]:
    """Static arms that ran under the same conditions on the same memory, block by block."""
    blocks: list[list[Row]] = []
    for row in rows:
        if row.planned.role != STATIC_ARM:
            continue
        home = next((block for block in blocks if _is_alike(block[0], row)), None)
        if home is None:
            blocks.append([row])
        else:
            home.append(row)
    return blocks


def _is_alike(row: Row, other: Row) -> bool:
    same = row.planned.arena == other.planned.arena and row.planned.first.memory == other.planned.first.memory
    return same and not differs(row, other)


def oracle(static: Sequence[Row]) -> Oracle:
    """The best of `static` for each family, chosen for each seed on the other seeds."""
    static = [row for row in static if row.has_tasks]
    by, families_of = family_of(static)
    if len(static) < 2:
        return Oracle(by=by, missing=f"it chooses between static arms, and {_number(len(static))} ran")
    aligned = common([row.matrices for row in static])
    if not aligned[0].num_values:
        return Oracle(by=by, missing="no task was run by every static arm")
    seeds = np.array([seed for seed, _ in aligned[0].units])
    if len(set(seeds.tolist())) < 2:
        return Oracle(by=by, missing="it chooses on other seeds, and one ran")
    names = [row.planned.name for row in static]
    chosen = _Choice(aligned=aligned, seeds=seeds)
    best, choices = chosen.by(families_of(aligned[0]), names)
    one_for_all, static_choices = chosen.by((_ALL,) * len(aligned[0].tasks), names)
    return Oracle(
        by=by, missing="", matrices=best, static=one_for_all, choices=choices, static_choices=static_choices[_ALL]
    )


def headroom(static: Sequence[Row], found: Oracle) -> Headroom:
    """The oracle of a block of static arms against the one arm chosen for all families."""
    first = static[0].planned
    whole = Headroom(
        arena=first.arena,
        memory=first.first.memory.label,
        streams=first.first.streams,
        by=found.by,
        arms=tuple(row.planned.name for row in static),
        missing=found.missing,
    )
    if found.matrices is None or found.static is None:
        return whole
    return replace(
        whole,
        oracle=success_of(found.matrices),
        static=success_of(found.static),
        oracle_injected=mean_injected(found.matrices),
        static_injected=mean_injected(found.static),
        difference=paired(pair(found.matrices, found.static)),
        choices=found.choices or {},
        static_choices=found.static_choices or {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Static arms on the same units and tasks, and the seed of each unit."""

    aligned: Sequence[Matrices]
    seeds: NDArray[np.int64]

    def by(self, families: Sequence[str], names: Sequence[str]) -> tuple[Matrices, dict[str, Counter[str]]]:
        """What the arm of each family and seed came to, and how often each was chosen."""
        first, labels = self.aligned[0], np.array(families)
        success, injected = np.full_like(first.success, np.nan), np.full_like(first.success, np.nan)
        choices: dict[str, Counter[str]] = {family: Counter() for family in sorted(set(families))}
        for seed in sorted(set(self.seeds.tolist())):
            mine = (self.seeds == seed)[:, np.newaxis]
            for family, counts in choices.items():
                of_family = labels == family
                arm = self._best(~mine & of_family)
                if arm is None:
                    # No other seed has the family: the arm that is best over all of them.
                    arm = self._best(~mine & np.ones_like(of_family)) or 0
                place = mine & of_family
                success = np.where(place, self.aligned[arm].success, success)
                injected = np.where(place, self.aligned[arm].injected, injected)
                counts[names[arm]] += 1
        # A choice of fixed arms learns nothing on the seed that it is measured on.
        return replace(first, success=success, injected=injected), choices

    def _best(self, where: NDArray[np.bool_]) -> int | None:
        """Index of the arm with the highest success at `where`; of equals that with the fewest tokens."""
        seen = where & ~np.isnan(self.aligned[0].success)
        if not seen.any():
            return None
        ranks = [(-float(arm.success[seen].mean()), float(arm.injected[seen].mean())) for arm in self.aligned]
        return min(range(len(ranks)), key=ranks.__getitem__)


def _number(count: int) -> str:
    return {0: "none", 1: "one"}.get(count, str(count))
