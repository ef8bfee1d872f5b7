"""Where a learned row gains: success against its best static arm family by family, and with each family left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memcon_platform.report.grouping import STATIC_ARM
from memcon_platform.report.measures import FamilyGain, Gains
from memcon_platform.report.rows import Row, family_of, nearest, paired
from memcon_platform.report.samples import Matrices, common, pair
from memcon_platform.report.yardsticks import BEST, ONLY, best_static

__all__ = ["gains"]


def gains(row: Row, rows: Sequence[Row]) -> Gains | None:
    """Gains of a learned row; None where no static arm ran."""
    static = nearest(row, rows, STATIC_ARM)
    if not static:
        return None
    best = best_static(static)[0]
    by, families_of = family_of([row, best])
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
                without=paired(pairs.where(labels != family)),
            )
            for family in sorted(set(labels.tolist()))
        ),
        quarters=tuple(paired(pairs.where(pairs.quarter == quarter), with_quarter=False) for quarter in range(4)),
    )


def _rate(matrices: Matrices, of_family: NDArray[np.bool_]) -> float | None:
    inside = matrices.where(of_family)
    return float(np.nanmean(inside.success)) if inside.num_values else None
