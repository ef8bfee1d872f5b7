"""Where a learned row gains: success against its best static arm family by family, and with each family left out.

Left out means out of the choice of the best static arm too: one family may be all that makes an arm the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memcon_platform.report.grouping import STATIC_ARM
from memcon_platform.report.measures import FamilyGain, Gains
from memcon_platform.report.rows import Row, family_of, nearest, paired
from memcon_platform.report.samples import Matrices, common, pair
from memcon_platform.report.yardsticks import BEST, ONLY, best_static

__all__ = ["gains"]

# Family of each task of matrices.
FamiliesOf: TypeAlias = Callable[[Matrices], tuple[str, ...]]


def gains(row: Row, rows: Sequence[Row]) -> Gains | None:
    """Gains of a learned row; None where no static arm ran."""
    static = nearest(row, rows, STATIC_ARM)
    if not static:
        return None
    best = best_static(static)[0]
    by, families_of = family_of([row, *static])
    mine, theirs = common([row.matrices, best.matrices])
    pairs = pair(mine, theirs)
    labels = np.array(families_of(pairs))
    return Gains(
        by=by,
        kind=BEST if len(static) > 1 else ONLY,
        name=best.planned.name,
        families=tuple(
            FamilyGain(
                family=str(family),
                rate=_rate(mine, labels == family),
                other_rate=_rate(theirs, labels == family),
                difference=paired(pairs.where(labels == family)),
                without=paired(_without(row, rest, families_of, family)) if rest else None,
                rest_name=rest.planned.name if rest else "",
            )
            for family in sorted(set(labels.tolist()))
            for rest in [_best_of_rest(static, families_of, family)]
        ),
        quarters=tuple(paired(pairs.where(pairs.quarter == quarter), with_quarter=False) for quarter in range(4)),
    )


def _best_of_rest(static: Sequence[Row], families_of: FamiliesOf, family: str) -> Row | None:
    """The static arm with the highest success outside `family`, of equals the first; None without a task there."""
    rates = [_rate(row.matrices, np.array(families_of(row.matrices)) != family) for row in static]
    known = [(rate, row) for rate, row in zip(rates, static, strict=True) if rate is not None]
    return max(known, key=lambda found: found[0])[1] if known else None


def _without(row: Row, rest: Row, families_of: FamiliesOf, family: str) -> Matrices:
    """Pairs of `row` and `rest` outside `family`."""
    pairs = pair(row.matrices, rest.matrices)
    return pairs.where(np.array(families_of(pairs)) != family)


def _rate(matrices: Matrices, of_family: NDArray[np.bool_]) -> float | None:
    inside = matrices.where(of_family)
    return float(np.nanmean(inside.success)) if inside.num_values else None
