"""What stands beside a learned row whatever it shows: best, default and noop arm, random arm, oracle, no memory.

And beside every row that of the policy which the plan names as its reference.

The best static arm is chosen with hindsight, on the very tasks that it is compared on, which flatters it; the arms of
the oracle are chosen on other seeds and other tasks (`memcon_platform.report.oracle`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memcon_platform.report.conventions import DEFAULT_ARM, NOOP_ARM
from memcon_platform.report.grouping import NO_MEMORY, RANDOM_ARM, STATIC_ARM
from memcon_platform.report.measures import Yardstick
from memcon_platform.report.oracle import Oracle
from memcon_platform.report.rows import Row, difference, differs, mean_injected, nearest, paired, references
from memcon_platform.report.samples import Matrices, pair

__all__ = [
    "BEST",
    "DEFAULT",
    "NOOP",
    "ONLY",
    "ORACLE",
    "REFERENCE",
    "beside_reference",
    "best_static",
    "marks",
    "no_memory",
    "yardsticks",
]

BEST = "best static arm"
# Where one static arm ran, "best" would claim a comparison that was not made.
ONLY = "only static arm"
DEFAULT = "default static arm"
NOOP = "noop arm"
ORACLE = "oracle from other seeds"
REFERENCE = "reference"

Block = tuple[Sequence[Row], Oracle]


def yardsticks(row: Row, rows: Sequence[Row], blocks: Sequence[Block]) -> tuple[tuple[Yardstick, ...], tuple[str, ...]]:
    """What a learned row is measured against, and which of it is missing and why, as "kind (reason)"."""
    static = nearest(row, rows, STATIC_ARM)
    found: list[Yardstick] = []
    missing: list[str] = []
    asked = [
        (ONLY if len(static) == 1 else BEST, best_static(static), "no static arm ran"),
        (RANDOM_ARM, nearest(row, rows, RANDOM_ARM), "uniform did not run"),
        (NO_MEMORY, nearest(row, rows, NO_MEMORY), "no cell without memory ran"),
        (DEFAULT, _with_arm(static, DEFAULT_ARM), f"fixed:{DEFAULT_ARM} did not run"),
        (NOOP, _with_arm(static, NOOP_ARM), f"fixed:{NOOP_ARM} did not run"),
    ]
    for kind, others, reason in asked:
        if others:
            found.append(_yardstick(kind, row, others[0]))
        else:
            missing.append(f"{kind} ({reason})")
    oracle = _oracle_beside(static, blocks)
    if oracle is None or oracle.matrices is None:
        missing.append(f"{ORACLE} ({oracle.missing if oracle else 'no static arm ran'})")
    else:
        found.append(_oracle_yardstick(row, oracle, oracle.matrices))
    return tuple(found), tuple(missing)


def beside_reference(row: Row, rows: Sequence[Row], policy: str | None) -> tuple[Yardstick, ...]:
    """`row` against the row or rows of the policy with the label `policy`; none of that policy's own rows has one."""
    return tuple(_yardstick(REFERENCE, row, other) for other in references(row, rows, policy)) if policy else ()


def best_static(static: Sequence[Row]) -> list[Row]:
    """Static arms with the highest success rate: all of them when they tie exactly (RP-3)."""
    best = max((row.rate for row in static), default=None)
    return [row for row in static if row.rate == best]


def no_memory(row: Row, rows: Sequence[Row]) -> Row | None:
    """The row without memory that is most like `row`."""
    return next(iter(nearest(row, rows, NO_MEMORY)), None)


def marks(blocks: Sequence[Block]) -> dict[str, str]:
    """Id of a row's first cell -> "best static arm" within its block, with "(tie)" for all that share the rate."""
    found: dict[str, str] = {}
    for block, _ in blocks:
        static = [row for row in block if row.has_tasks]
        best = best_static(static)
        mark = (BEST if len(static) > 1 else ONLY) + (" (tie)" if len(best) > 1 else "")
        found |= {row.planned.first.cell_id: mark for row in best}
    return found


def _with_arm(static: Sequence[Row], action_id: str) -> list[Row]:
    return [row for row in static if row.planned.first.settings.get("policy", {}).get("action_id") == action_id]


def _oracle_beside(static: Sequence[Row], blocks: Sequence[Block]) -> Oracle | None:
    """The oracle of the largest block among the static arms that are compared with."""
    beside = [block for block in blocks if any(row is other for row in static for other in block[0])]
    return max(beside, key=lambda block: len(block[0]), default=((), None))[1]


def _yardstick(kind: str, row: Row, other: Row) -> Yardstick:
    return Yardstick(
        kind=kind,
        name=other.planned.name,
        label=other.planned.label,
        rate=_rate(other.matrices),
        difference=difference(row, other),
        last_quarter_rate=_rate(other.matrices.last_quarter),
        injected=mean_injected(other.matrices),
        # No memory has neither arms nor a memory: its conditions say nothing.
        differs=() if kind == NO_MEMORY else differs(row, other),
    )


def _oracle_yardstick(row: Row, oracle: Oracle, matrices: Matrices) -> Yardstick:
    return Yardstick(
        kind=ORACLE,
        name=f"per {oracle.by}",
        label=f"{row.planned.first.memory.label} {ORACLE}, per {oracle.by}",
        rate=_rate(matrices),
        difference=paired(pair(row.matrices, matrices)),
        last_quarter_rate=_rate(matrices.last_quarter),
        injected=mean_injected(matrices),
    )


def _rate(matrices: Matrices) -> float | None:
    return float(np.nanmean(matrices.success)) if matrices.num_values else None
