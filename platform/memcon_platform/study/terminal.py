"""The terminal form of a study: verdict first, then the yardsticks, then every learner beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from memcon_platform.report.conventions import LEARNED_FROM
from memcon_platform.report.folds import FOLDS
from memcon_platform.report.terminal_table import make_table, titled
from memcon_platform.report.wording import CLEAR, ONE_STREAM, count, interval, is_clear, percent, signed_points
from memcon_platform.study.estimates import Estimate
from memcon_platform.study.exact_replay import LABEL
from memcon_platform.study.findings import ArenaFindings, LearnerResult
from memcon_platform.study.headroom import LEVELS, Oracle

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

__all__ = ["render", "verdicts"]

_CLEAR = f"{CLEAR} the interval excludes 0"
# Beyond it a gap is none for any study.
_MOST_PULLS = 100_000


def render(found: ArenaFindings) -> Group:
    """What `memcon study headroom CONFIG` prints for one matrix."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(_title(found), style="bold"), Text(_subtitle(found)), ""]
    parts += [Text(line, style="bold") for line in verdicts(found)]
    parts += ["", _yardsticks(found), "", _arms(found)]
    if found.headroom.needs:
        parts += ["", _needs(found)]
    if found.learners:
        for table in (*_learners(found), *([_to_reference(found)] if _has_reference(found) else [])):
            parts += ["", table]
    if any(result.families for result in found.learners):
        parts += ["", _families(found)]
    parts += ["", Text("\n".join(f"- {note}" for note in _notes(found)))]
    return Group(*parts)


def verdicts(found: ArenaFindings) -> list[str]:
    """One line for each oracle: how much there is to learn, or `no headroom: ...`."""
    if not found.headroom.oracles:
        single = found.headroom.missing.partition(":")[0] or "one goal type only"
        return [f"headroom cannot be told: {single}, so no choice by context can be held against the best single arm"]
    return [_verdict(oracle, found) for oracle in found.headroom.oracles]


def _verdict(oracle: Oracle, found: ArenaFindings) -> str:
    gain, level = oracle.headroom, LEVELS[oracle.level]
    if gain is None or gain.se is None:
        return f"headroom cannot be told: the oracle per {level} has no standard error"
    told = f"the oracle per {level} has {_points(gain)} points over {found.headroom.best_arm}"
    if not oracle.has_headroom:
        reaches = "" if gain.high is None else f"; the 95 % interval reaches {100 * gain.high:+.1f}"
        return f"no headroom: {told}, not above two standard errors{reaches}: learning cannot show in these streams"
    tokens = round(100 * oracle.tokens_saved)
    return f"headroom: {told}, with {abs(tokens)} % {'fewer' if tokens >= 0 else 'more'} injected tokens"


def _title(found: ArenaFindings) -> str:
    seeds = f"{len(found.seeds)} seed{'s' if len(found.seeds) > 1 else ''}"
    return f"Outcome matrix: {found.streams} streams ({seeds}) x {found.tasks} tasks x {len(found.action_ids)} arms"


def _subtitle(found: ArenaFindings) -> str:
    return ", ".join(f"{axis} {label}" for axis, label in found.labels.items())


# --- tables -----------------------------------------------------------------------------------------------------------


def _yardsticks(found: ArenaFindings) -> RenderableType:
    table = make_table(
        ["choice of arm", "success\n%", "difference\n(se)", "95 %", "in last\nquarter", "tokens"],
        roomy=False,
        least=22,
    )
    for row in found.headroom.yardsticks:
        name = f"{row.name}: {row.arm}" if row.arm else row.name
        table.add_row(
            f"{name}, {row.chosen}" if row.chosen else name,
            _rate(row.success),
            _points(row.difference),
            _interval(row.difference),
            _clear_points(row.difference_last_quarter),
            count(row.tokens),
        )
    return titled(f"choices that learn nothing; points to the best single arm in hindsight, {_CLEAR}", table)


def _arms(found: ArenaFindings) -> RenderableType:
    """Arms by family, or by goal type where there is one family; * marks the best."""
    level = "benchmark" if len(found.families) > 1 else "goal_type"
    here = [cell for cell in found.headroom.arms if cell.level == level]
    rates = {(cell.context, cell.arm): cell.success for cell in here}
    names = list(dict.fromkeys(cell.context for cell in here))
    best = {name: max((r.mean for (c, _), r in rates.items() if c == name and r), default=None) for name in names}
    table = make_table(["arm", *names], roomy=False)
    for arm in found.action_ids:
        table.add_row(arm, *(_starred(rates[name, arm], best[name]) for name in names))
    return titled(f"success % of each arm by {LEVELS[level]}, * the best there", table)


def _needs(found: ArenaFindings) -> RenderableType:
    table = make_table(["level", "context", "arm", "tasks", "gap (se)", "sd", "pulls"], num_text=3, roomy=False)
    for need in found.headroom.needs:
        arm = need.arm or "(the best single arm)"
        counts = count(need.tasks), _gap(need.gap), f"{need.sd:.2f}", _pulls(need.pulls)
        table.add_row(LEVELS[need.level], need.context, arm, *counts)
    than = found.headroom.needs[0].than if found.headroom.needs else found.headroom.best_arm
    return titled(
        f"gap: reward above that of {than}, the best single arm by reward; pulls: tries of each of two arms until a "
        "gap that is clear of noise is two standard errors, 8 sd^2 / gap^2",
        table,
    )


def _learners(found: ArenaFindings) -> Iterator[RenderableType]:
    heads = ["policy", "a table", "success\n%", "difference\n(se)", "95 %", "in last\nquarter"]
    compared = make_table(heads, roomy=False, least=20)
    heads = ["policy", "a table", "% in last\nquarter", "to oracle", "forced\n%", "keys not\nlearned", "tokens"]
    cost = make_table(heads, roomy=False, least=20)
    for result in found.learners:
        differences = _points(result.to_best), _interval(result.to_best), _clear_points(result.to_best_last_quarter)
        compared.add_row(result.policy, _sharing(result), _rate(result.success), *differences)
        exploring = percent(result.forced_share), _not_learned(result)
        late = _rate(result.last_quarter), _clear_points(result.to_oracle)
        cost.add_row(result.policy, _sharing(result), *late, *exploring, count(result.tokens))
    largest = max(found.learners, key=lambda result: result.group)
    streams = f"{largest.group} stream{'s share it' if largest.group > 1 else ''}"
    yield titled(
        f"{LABEL};\npoints to the best single arm in hindsight, {_CLEAR}; a table {_sharing(largest)}: {streams}, "
        f"{largest.tables} of them",
        compared,
    )
    yield titled(
        f"the same rules: against the oracle ({_CLEAR}), exploring, tokens; not learned: of the keys that a table met, "
        f"those with fewer than {LEARNED_FROM} outcomes",
        cost,
    )


def _has_reference(found: ArenaFindings) -> bool:
    return any(result.to_reference is not None for result in found.learners)


def _to_reference(found: ArenaFindings) -> RenderableType:
    """Each rule against the one that `study.reference` names."""
    table = make_table(["policy", "a table", "difference\n(se)", "95 %"], roomy=False, least=20)
    for result in found.learners:
        if result.to_reference is not None:
            table.add_row(result.policy, _sharing(result), _points(result.to_reference), _interval(result.to_reference))
    return titled(f"points to '{found.reference}' on the same tasks, {_CLEAR}", table)


def _sharing(result: LearnerResult) -> str:
    return f"{result.group} x{result.tables}"


def _families(found: ArenaFindings) -> RenderableType:
    table = make_table(["policy, family", "gain (se)", "in last\nquarter", "without it"], roomy=False)
    largest = max(result.group for result in found.learners)
    for result in found.learners:
        if result.group == largest and result.families:
            table.add_row(f"{result.policy}, a table {_sharing(result)}", style="italic")
            for gain in result.families:
                gains = (_clear_points(one) for one in (gain.gain, gain.gain_last_quarter, gain.without))
                table.add_row(f"  {gain.family}", *gains)
    return titled(
        f"points over the best single arm in a family, {_CLEAR}; without it: on the rest, over the best single arm of "
        "the rest",
        table,
    )


# --- words and numbers ------------------------------------------------------------------------------------------------


def _notes(found: ArenaFindings) -> Iterator[str]:
    yield from found.disclosures
    yield (
        f"All streams have the same {found.distinct_tasks} tasks. se and 95 %: for other streams and other tasks, both "
        "resampled; in the replay tables in place of streams. All differences are paired."
    )
    if any(result.tables == 1 for result in found.learners):
        yield f"{ONE_STREAM} one table: for other tasks only; nothing is known of other tables."
    if found.headroom.picked_on:
        yield (
            f"Oracles, and arms of gaps, are picked on {found.headroom.picked_on}: {FOLDS} folds of tasks. The best "
            "single arm is picked in hindsight, which errs against headroom and against every learner. sd^2: mean of "
            "the variances of both arms."
        )
    if found.learners:
        yield (
            f"A table of n streams meets each of the {found.distinct_tasks} tasks n times. Forced: choices that had to "
            "try an arm new at its key. Keys: with pooling each level counts its own."
        )
    if found.unevaluable:
        yield f"{found.unevaluable} outcomes could not be evaluated and are left out."
    for policy in found.skipped:
        yield f"{policy.policy}: not replayed: {policy.reason}."
    for note in found.notes:
        yield f"{note}."


def _starred(rate: Estimate | None, best: float | None) -> str:
    text = _rate(rate)
    return f"{text}*" if rate and rate.mean == best else f"{text} "


def _rate(value: Estimate | None) -> str:
    return percent(value.mean if value else None)


def _points(value: Estimate | None) -> str:
    if value is None:
        return "-"
    mean = signed_points(value.mean)
    return mean if value.se is None else f"{mean} ({100 * value.se:.1f}){_one_table(value)}"


def _clear_points(value: Estimate | None) -> str:
    return _points(value) + _clear(value)


def _clear(value: Estimate | None) -> str:
    """The mark of an interval that excludes 0, or a space that no one strips in its place."""
    return CLEAR if value is not None and is_clear(value.low, value.high) else "\u00a0"


def _one_table(value: Estimate) -> str:
    return ONE_STREAM if value.tables == 1 else ""


def _gap(value: Estimate | None) -> str:
    if value is None:
        return "-"
    return f"{value.mean:+.2f}" + ("" if value.se is None else f" ({value.se:.2f})")


def _pulls(value: int | None) -> str:
    return f"> {_MOST_PULLS:,}" if value is not None and value > _MOST_PULLS else count(value)


def _interval(value: Estimate | None) -> str:
    return "-" if value is None else interval(value.low, value.high) + _clear(value)


def _not_learned(result: LearnerResult) -> str:
    """Keys that are not learned of those that a table met, on average."""
    met = sum(context.tables for context in result.contexts) / result.tables
    missing = sum(context.tables * context.not_learned for context in result.contexts) / result.tables
    return f"{missing:.0f} of {met:.0f}"
