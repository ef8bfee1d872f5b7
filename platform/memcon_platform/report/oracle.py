"""Headroom: what an arm for each family, chosen on other seeds and other tasks, gains over the best arm for all.

For each seed and each fold of the tasks, the arm with the best success on all other seeds and the tasks of all other
folds (ties: fewer injected tokens, then the order of the rows) is chosen for each family; what it came to is read off
that static arm's row on the seed and the fold themselves. So the choice has seen nothing of what it is measured on,
neither outcomes nor tasks. The one arm for all is the best in hindsight, which errs against headroom, as in
`memcon study headroom`. Only tasks that every static arm ran are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from memcon_platform.report.folds import task_folds
from memcon_platform.report.grouping import STATIC_ARM
from memcon_platform.report.measures import Headroom
from memcon_platform.report.rows import Row, differs, family_of, mean_injected, paired, success_of
from memcon_platform.report.samples import Matrices, common, pair

__all__ = ["Oracle", "headroom", "oracle", "static_blocks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """A choice of static arms and what it came to."""

    # "family" or "goal type".
    by: str
    # "" or why there is no choice.
    missing: str
    matrices: Matrices | None = None
    # The best arm for all families in hindsight, and its name.
    static: Matrices | None = None
    static_arm: str = ""
    # Family -> arm -> seeds x folds of tasks.
    choices: Mapping[str, Counter[str]] | None = None


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
    """The best of `static` for each family, chosen for each seed and fold of tasks on the others."""
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
    folds = _folds(aligned[0])
    if len(set(folds.tolist())) < 2:
        return Oracle(by=by, missing="it chooses on other tasks, and one ran")
    names = [row.planned.name for row in static]
    chosen = _Choice(aligned=aligned, seeds=seeds, folds=folds)
    best, choices = chosen.by(families_of(aligned[0]), names)
    single = chosen.best_single()
    return Oracle(by=by, missing="", matrices=best, static=aligned[single], static_arm=names[single], choices=choices)


def headroom(static: Sequence[Row], found: Oracle) -> Headroom:
    """The oracle of a block of static arms against the best one for all families."""
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
        static_arm=found.static_arm,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Static arms on the same units and tasks, the seed of each unit and the fold of each task."""

    aligned: Sequence[Matrices]
    seeds: NDArray[np.int64]
    folds: NDArray[np.int64]

    def by(self, families: Sequence[str], names: Sequence[str]) -> tuple[Matrices, dict[str, Counter[str]]]:
        """What the arm of each family, seed and fold came to, and how often each was chosen."""
        first, labels = self.aligned[0], np.array(families)
        success, injected = np.full_like(first.success, np.nan), np.full_like(first.success, np.nan)
        choices: dict[str, Counter[str]] = {family: Counter() for family in sorted(set(families))}
        for seed, fold, family in product(np.unique(self.seeds), np.unique(self.folds), choices):
            of_family = labels == family
            place = (self.seeds == seed)[:, np.newaxis] & (self.folds == fold) & of_family
            if not place.any():
                continue
            elsewhere = (self.seeds != seed)[:, np.newaxis] & (self.folds != fold)
            arm = self._best(elsewhere & of_family)
            if arm is None:
                # No other seed has another task of the family: the arm that is best over all families there.
                arm = self._best(elsewhere) or 0
            success = np.where(place, self.aligned[arm].success, success)
            injected = np.where(place, self.aligned[arm].injected, injected)
            choices[family][names[arm]] += 1
        # A choice of fixed arms learns nothing on the seed that it is measured on.
        return replace(first, success=success, injected=injected), choices

    def best_single(self) -> int:
        """Index of the arm that is best over everything."""
        return self._best(np.ones_like(self.aligned[0].success, dtype=np.bool_)) or 0

    def _best(self, where: NDArray[np.bool_]) -> int | None:
        """Index of the arm with the highest success at `where`; of equals that with the fewest tokens."""
        seen = where & ~np.isnan(self.aligned[0].success)
        if not seen.any():
            return None
        ranks = [(-float(arm.success[seen].mean()), float(arm.injected[seen].mean())) for arm in self.aligned]
        return min(range(len(ranks)), key=ranks.__getitem__)


def _folds(matrices: Matrices) -> NDArray[np.int64]:
    """Fold of each task; the passes over one task, "section/task id", are of one fold."""
    names = [task.partition("/")[2] for task in matrices.tasks]
    fold_of = task_folds(zip(matrices.families, matrices.goal_types, names, strict=True))
    return np.array([fold_of[name] for name in names], dtype=np.int64)


def _number(count: int) -> str:
    return {0: "none", 1: "one"}.get(count, str(count))
