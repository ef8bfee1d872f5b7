"""The terminal form of a study: verdict first, then the yardsticks, then every learner beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memcon_platform.report.wording import count, percent
from memcon_platform.study.estimates import Estimate
from memcon_platform.study.exact_replay import LABEL, LEARNED_PULLS
from memcon_platform.study.findings import ArenaFindings, LearnerResult
from memcon_platform.study.headroom import LEVELS, Oracle

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

__all__ = ["render", "verdicts"]

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
        for table in _learners(found):
            parts += ["", table]
    if any(result.families for result in found.learners):
        parts += ["", _families(found)]
    parts += ["", Text("\n".join(f"- {note}" for note in _notes(found)))]
    return Group(*parts)


def verdicts(found: ArenaFindings) -> list[str]:
    """One line for each oracle: how much there is to learn, or `no headroom: ...`."""
    if not found.headroom.oracles:
        single = "one goal type" if found.headroom.picked_on else "one stream"
        return [f"no headroom: {single} only, so no choice of arms by context can be held against the best single arm"]
    return [_verdict(oracle, found) for oracle in found.headroom.oracles]


def _verdict(oracle: Oracle, found: ArenaFindings) -> str:
    gain, level = oracle.headroom, LEVELS[oracle.level]
    if gain is None or gain.se is None:
        return f"no headroom: the oracle per {level} has no standard error"
    told = f"the oracle per {level} has {_points(gain)} points over {found.headroom.best_arm}"
    if not oracle.has_headroom:
        return f"no headroom: {told}, not above two standard errors: learning cannot show"
    tokens = round(100 * oracle.tokens_saved)
    return f"headroom: {told}, with {abs(tokens)} % {'fewer' if tokens >= 0 else 'more'} injected tokens"


def _title(found: ArenaFindings) -> str:
    seeds = f"{len(found.seeds)} seed{'s' if len(found.seeds) > 1 else ''}"
    return f"Outcome matrix: {found.streams} streams ({seeds}) x {found.tasks} tasks x {len(found.action_ids)} arms"


def _subtitle(found: ArenaFindings) -> str:
    return ", ".join(f"{axis} {label}" for axis, label in found.labels.items())


# --- tables -----------------------------------------------------------------------------------------------------------


def _table(title: str, columns: Sequence[str], *, num_text: int = 1, least: int | None = None) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="italic",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,
    )
    for place, column in enumerate(columns):
        # Names wrap when they must; numbers never.
        table.add_column(
            column,
            min_width=least if place == 0 else None,
            justify="left" if place < num_text else "right",
            no_wrap=place >= num_text,
            overflow="fold",
            vertical="bottom",
        )
    return table


def _yardsticks(found: ArenaFindings) -> Table:
    table = _table(
        "choices that learn nothing; differences in points to the best single arm in hindsight",
        ["choice of arm", "success\n%", "difference\n(se)", "95 %", "in last\nquarter", "tokens"],
        least=22,
    )
    for row in found.headroom.yardsticks:
        name = f"{row.name}: {row.arm}" if row.arm else row.name
        table.add_row(
            f"{name}, {row.chosen}" if row.chosen else name,
            _rate(row.success),
            _points(row.difference),
            _interval(row.difference),
            _points(row.difference_last_quarter),
            count(row.tokens),
        )
    return table


def _arms(found: ArenaFindings) -> Table:
    """Arms by family, or by goal type where there is one family; * marks the best."""
    level = "benchmark" if len(found.families) > 1 else "goal_type"
    here = [cell for cell in found.headroom.arms if cell.level == level]
    rates = {(cell.context, cell.arm): cell.success for cell in here}
    names = list(dict.fromkeys(cell.context for cell in here))
    best = {name: max((r.mean for (c, _), r in rates.items() if c == name and r), default=None) for name in names}
    table = _table(f"success % of each arm by {LEVELS[level]}, * the best there", ["arm", *names])
    for arm in found.action_ids:
        table.add_row(arm, *(_starred(rates[name, arm], best[name]) for name in names))
    return table


def _needs(found: ArenaFindings) -> Table:
    table = _table(
        "pulls of each of two arms until a gap of reward is two standard errors: 8 sd^2 / gap^2",
        ["level", "context", "arm", "tasks", "gap (se)", "sd", "pulls"],
        num_text=3,
    )
    for need in found.headroom.needs:
        arm = need.arm or "(the best single arm)"
        counts = count(need.tasks), _gap(need.gap), f"{need.sd:.2f}", _pulls(need.pulls)
        table.add_row(LEVELS[need.level], need.context, arm, *counts)
    return table


def _learners(found: ArenaFindings) -> Iterator[Table]:
    compared = _table(
        f"{LABEL};\ndifferences in points to the best single arm in hindsight",
        ["policy", "a table", "success\n%", "difference\n(se)", "95 %", "in last\nquarter"],
        least=20,
    )
    cost = _table(
        "the same rules: against the oracle, exploring, tokens",
        ["policy", "a table", "% in last\nquarter", "to oracle", "forced\n%", "keys not\nlearned", "tokens"],
        least=20,
    )
    for result in found.learners:
        sharing = f"{result.group} x{result.tables}"
        differences = _points(result.to_best), _interval(result.to_best), _points(result.to_best_last_quarter)
        compared.add_row(result.policy, sharing, _rate(result.success), *differences)
        exploring = percent(result.forced_share), _not_learned(result)
        late = _rate(result.last_quarter), _points(result.to_oracle)
        cost.add_row(result.policy, sharing, *late, *exploring, count(result.tokens))
    yield compared
    yield cost


def _families(found: ArenaFindings) -> Table:
    table = _table(
        "gain of points in a family over the best single arm; without the family, over the best single arm of the rest",
        ["policy", "family", "gain (se)", "in last\nquarter", "without it"],
        num_text=2,
    )
    largest = max(result.group for result in found.learners)
    for result in found.learners:
        if result.group != largest:
            continue
        for gain in result.families:
            table.add_row(
                result.policy,
                gain.family,
                _points(gain.gain),
                _points(gain.gain_last_quarter),
                _points(gain.without),
            )
    return table


# --- words and numbers ------------------------------------------------------------------------------------------------


def _notes(found: ArenaFindings) -> Iterator[str]:
    yield (
        "se and 95 %: over streams, each with all its tasks; in the replay over tables, which are the repetitions. All "
        "differences are paired."
    )
    if found.headroom.picked_on:
        yield (
            f"Oracles, and arms of gaps, are picked on {found.headroom.picked_on}. The best single arm is picked in "
            "hindsight, which errs against headroom and against every learner."
        )
    if found.learners:
        yield ("A table: streams that share one, x tables. Forced: choices that had to try an arm new at its key.")
        yield (
            f"Not learned: state keys with fewer than {LEARNED_PULLS} outcomes in a table, of all keys met; with "
            "pooling each level counts its own."
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
    # Adding 0 turns a rounded "-0.0" into "+0.0".
    mean = f"{round(100 * value.mean, 1) + 0.0:+.1f}"
    return mean if value.se is None else f"{mean} ({100 * value.se:.1f})"


def _gap(value: Estimate | None) -> str:
    if value is None:
        return "-"
    return f"{value.mean:+.2f}" + ("" if value.se is None else f" ({value.se:.2f})")


def _pulls(value: int | None) -> str:
    return f"> {_MOST_PULLS:,}" if value is not None and value > _MOST_PULLS else count(value)


def _interval(value: Estimate | None) -> str:
    if value is None or value.low is None or value.high is None:
        return "-"
    return f"[{100 * value.low:+.1f}, {100 * value.high:+.1f}]"


def _not_learned(result: LearnerResult) -> str:
    """Keys that are not learned of those that a table met, on average."""
    met = sum(context.tables for context in result.contexts) / result.tables
    missing = sum(context.tables * context.not_learned for context in result.contexts) / result.tables
    return f"{missing:.0f} of {met:.0f}"
