"""What the terminal tells of learned rows: where they gain, and what their tables had to learn from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memcon_platform.report import wording
from memcon_platform.report.contexts import LEARNED_FROM
from memcon_platform.report.data import GroupResult, Section
from memcon_platform.report.measures import Context, ContextLevel, FamilyGain, Gains
from memcon_platform.report.terminal_table import make_table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["learning"]

# Contexts of one level that are printed; the HTML form has more.
_CONTEXTS = 5


def learning(section: Section) -> Iterator[RenderableType]:
    """For each learned row its gains by family, then the contexts of its tables."""
    from rich.text import Text

    for group in section.learned:
        if group.gains:
            yield _gain_table(section, group, group.gains)
            yield Text(_gain_lines(group.gains))
    for group in section.learned:
        for level in group.contexts:
            yield _context_table(section, group, level)
            yield Text(_context_lines(level))


def _gain_table(section: Section, group: GroupResult, gains: Gains) -> Table:
    other = f"{gains.kind.removesuffix(' arm')} ({section.short(gains.name)})"
    title = f"{section.name(group)} - {other} by {gains.by}"
    heads = [gains.by, "pairs", "diff.", "other\nseeds too", "last\nquarter", "other\nseeds too", "tokens"]
    table = make_table(heads, title=title, roomy=False)
    for family in gains.families:
        table.add_row(*_gain_cells(family))
    return table


def _gain_cells(family: FamilyGain) -> Sequence[str]:
    found = family.difference
    last = found.last_quarter if found else None
    return (
        family.family,
        f" {wording.count(found.num_pairs if found else 0)}",
        *(f" {text}" for text in (wording.points(found), wording.other_seeds(found))),
        *(f" {text}" for text in (wording.points(last), wording.other_seeds(last))),
        f" {wording.signed(found.injected if found else None)}",
    )


def _gain_lines(gains: Gains) -> str:
    left_out = ", ".join(
        f"without {one.family} {wording.points(one.without)} {wording.other_seeds(one.without)}"
        for one in gains.families
        if one.without
    )
    lines = [f"all, one {gains.by} left out: {left_out}"] if left_out else []
    return "\n".join([*lines, f"by quarter: {' '.join(wording.points(one) for one in gains.quarters)}"])


def _context_table(section: Section, group: GroupResult, level: ContextLevel) -> Table:
    arms = _arms(level.contexts)
    short = wording.short_arms(arms)
    title = f"{section.name(group)}: decisions by context and arm ({'/'.join(level.fields) or level.schema})"
    table = make_table(["context", "n", *short.values()], title=title, roomy=False)
    shown = level.contexts[:_CONTEXTS]
    for learned in (True, False):
        rows = [one for one in shown if one.learned is learned]
        if rows and not learned:
            table.add_row("not learned:", style="italic")
        for one in rows:
            counts = [f" {wording.count(one.pulls.get(arm, 0))}" for arm in arms]
            table.add_row(wording.key_values(one.key), f" {wording.count(one.per_table, 1)}", *counts)
    return table


def _context_lines(level: ContextLevel) -> str:
    rest = level.contexts[_CONTEXTS:]
    learned = sum(one.learned for one in level.contexts)
    told = (
        f"{learned} of {len(level.contexts)} contexts are learned (n, decisions a table, at least {LEARNED_FROM}); "
        f"{wording.percent(level.learned_share)} % of decisions were taken there"
    )
    not_shown = f"; {len(rest)} more contexts are in report.html" if rest else ""
    arms = ", ".join(f"{short} {arm}" for arm, short in wording.short_arms(_arms(level.contexts)).items())
    return f"{told}{not_shown}. {arms}."


def _arms(contexts: Sequence[Context]) -> list[str]:
    return sorted({arm for one in contexts for arm in one.pulls}, key=wording.arm_place)
