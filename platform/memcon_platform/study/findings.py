"""What a study found on one matrix: headroom, then every learner of the config at every group size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from memcon.learning.credit import RewardSettings
from memcon_platform.report.disclosures import disclosures
from memcon_platform.study.estimates import RATE, Estimate, estimate
from memcon_platform.study.exact_replay import ContextPulls, Replayed, replay
from memcon_platform.study.headroom import Headroom, headroom, oracle_picks
from memcon_platform.study.matrix import Bools, Floats, OutcomeMatrix
from memcon_platform.study.matrix_plan import Arena, Skipped
from memcon_platform.study.oracles import best_single, taken

__all__ = ["ArenaFindings", "FamilyGain", "LearnerResult", "findings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyGain:
    """What a learner gains on the tasks of one family, and without them."""

    family: str
    # Against the best single arm of all tasks, on the tasks of the family.
    gain: Estimate | None
    gain_last_quarter: Estimate | None
    # Against the best single arm of the rest, on the rest: same choices, the family left out of the count.
    without: Estimate | None
    # Arm -> share of the choices of the last quarter.
    arms_last_quarter: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerResult:
    """One rule at one group size; a table of an estimate is a group of streams that share one."""

    policy: str
    # Streams that share a table, tables, and plays that one table saw: the same tasks, once for each of its streams.
    group: int
    tables: int
    tasks: int
    success: Estimate | None
    last_quarter: Estimate | None
    # Shares of success against the best single arm in hindsight, and against the oracle per family (per goal type
    # where there is one family); paired.
    to_best: Estimate | None
    to_best_last_quarter: Estimate | None
    to_oracle: Estimate | None
    # Against the learner `study.reference` at the same group size; None without one, and for that learner itself.
    to_reference: Estimate | None
    forced_share: float
    # Mean injected tokens a task.
    tokens: float
    families: tuple[FamilyGain, ...]
    contexts: tuple[ContextPulls, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaFindings:
    """All that a study says of one matrix."""

    labels: Mapping[str, str]
    seeds: tuple[int, ...]
    streams: int
    # Tasks of a stream, and distinct ones of all streams.
    tasks: int
    distinct_tasks: int
    action_ids: tuple[str, ...]
    families: tuple[str, ...]
    unevaluable: int
    headroom: Headroom
    learners: tuple[LearnerResult, ...]
    # Level of the oracle in `LearnerResult.to_oracle`; "" without one.
    oracle_level: str
    # Learner of `LearnerResult.to_reference`.
    reference: str | None
    skipped: tuple[Skipped, ...]
    # What the numbers can be no evidence of; then what else a reader must know.
    disclosures: tuple[str, ...]
    notes: tuple[str, ...]


def findings(matrix: OutcomeMatrix, arena: Arena, groups: Sequence[int], reward: RewardSettings) -> ArenaFindings:
    """Headroom under `reward`, and each learner of `arena` replayed with tables of each of `groups` streams."""
    found = headroom(matrix, reward)
    levels = [oracle.level for oracle in found.oracles]
    level = levels[0] if levels else ""
    # Against no oracle a difference would be one to nothing.
    oracle = taken(matrix.success, oracle_picks(matrix, level)) if level else None
    results, notes = [], []
    for group in groups:
        if group > matrix.num_streams:
            notes.append(
                f"{group} streams a table: not replayed, the matrix has {matrix.num_streams}; "
                "raise study.streams or add seeds"
            )
            continue
        replayed = {learner.label: replay(matrix, learner, group=group) for learner in arena.learners}
        reference = replayed.get(arena.reference) if arena.reference else None
        results += [_result(matrix, label, played, oracle, reference) for label, played in replayed.items()]
    if arena.reference and arena.reference not in {learner.label for learner in arena.learners}:
        notes.append(f"study.reference '{arena.reference}' is no learner that is replayed: nothing is compared with it")
    seeds = tuple(dict.fromkeys(seed for seed, _ in matrix.units))
    if found.missing:
        notes.append(found.missing)
    elif len(seeds) == 1:
        notes.append("one seed only: oracles pick their arms on other streams of the same seed")
    return ArenaFindings(
        labels=arena.labels,
        seeds=seeds,
        streams=matrix.num_streams,
        tasks=matrix.num_tasks,
        distinct_tasks=len(matrix.task_ids),
        action_ids=matrix.action_ids,
        families=matrix.families,
        unevaluable=int(np.isnan(matrix.success).sum()),
        headroom=found,
        learners=tuple(results),
        oracle_level=level,
        reference=arena.reference,
        skipped=arena.skipped,
        disclosures=disclosures(arena.cells, matrix.families),
        notes=tuple(notes),
    )


def _result(
    matrix: OutcomeMatrix, label: str, found: Replayed, oracle: Floats | None, reference: Replayed | None
) -> LearnerResult:
    rows = len(found.picks)
    success = taken(matrix.success[:rows], found.picks)
    best = best_single(matrix.success, matrix.costs)
    gain = success - matrix.success[:rows, :, best]
    last = matrix.last_quarter[None, :]
    measure = partial(estimate, tasks=matrix.task[:rows], group=found.group)
    return LearnerResult(
        policy=label,
        group=found.group,
        tables=found.tables,
        tasks=found.group * matrix.num_tasks,
        success=measure(success, bounds=RATE),
        last_quarter=measure(success, mask=last, bounds=RATE),
        to_best=measure(gain),
        to_best_last_quarter=measure(gain, mask=last),
        to_oracle=None if oracle is None else measure(success - oracle[:rows]),
        to_reference=None
        if reference is None or reference is found
        else measure(success - taken(matrix.success[:rows], reference.picks)),
        forced_share=float(found.forced.mean()),
        tokens=float(taken(matrix.tokens[:rows], found.picks).mean()),
        families=tuple(_families(matrix, found, success, gain)) if len(matrix.families) > 1 else (),
        contexts=found.contexts,
    )


def _families(matrix: OutcomeMatrix, found: Replayed, success: Floats, gain: Floats) -> list[FamilyGain]:
    rows, last = len(found.picks), matrix.last_quarter[None, :]
    measure = partial(estimate, tasks=matrix.task[:rows], group=found.group)
    gains = []
    for family in matrix.families:
        here = matrix.benchmark[:rows] == family
        elsewhere: Floats = np.where((matrix.benchmark == family)[:, :, None], np.nan, matrix.success)
        rest = best_single(elsewhere, matrix.costs)
        gains.append(
            FamilyGain(
                family=family,
                gain=measure(gain, mask=here),
                gain_last_quarter=measure(gain, mask=here & last),
                without=measure(success - matrix.success[:rows, :, rest], mask=~here),
                arms_last_quarter=_shares(matrix, found, here & last),
            )
        )
    return gains


def _shares(matrix: OutcomeMatrix, found: Replayed, here: Bools) -> dict[str, float]:
    counts = np.bincount(found.picks[here], minlength=len(matrix.action_ids))
    total = max(1, int(counts.sum()))
    return {arm: int(count) / total for arm, count in zip(matrix.action_ids, counts, strict=True)}
