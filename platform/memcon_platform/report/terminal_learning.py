"""What the terminal tells of learned rows: where they gain, and what their tables had to learn from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memcon_platform.report import wording
from memcon_platform.report.conventions import LEARNED_FROM
from memcon_platform.report.data import GroupResult, Section
from memcon_platform.report.measures import ContextLevel, Gains, PairedDifference
from memcon_platform.report.terminal_table import make_table, titled

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["learning"]

# Families beside each other in 80 columns.
_COLUMNS = 6
# Contexts of all learned rows whose pulls are printed, and those that a row's line names; HTML and JSON have all.
_CONTEXTS = 6
_NAMED = 3


def learning(section: Section) -> Iterator[RenderableType]:
    """Gains by family of all learned rows; a line for each on what it learned; the pulls of the contexts used most."""
    from rich.text import Text

    yield from _gain_tables(section)
    with_contexts = [group for group in section.learned if group.contexts]
    if with_contexts:
        yield Text("\n".join(_learned_line(section, group) for group in with_contexts))
        yield _pulls_table(section, with_contexts)


# --- gains ------------------------------------------------------------------------------------------------------------


def _gain_tables(section: Section) -> Iterator[RenderableType]:
    """One table for all learned rows; several where there are more families than fit beside each other."""
    for by in sorted({group.gains.by for group in section.learned if group.gains}):
        told = [(group, group.gains) for group in section.learned if group.gains and group.gains.by == by]
        families = list(dict.fromkeys(one.family for _, gains in told for one in gains.families))
        for start in range(0, len(families), _COLUMNS):
            yield _gain_table(section, told, by, families[start : start + _COLUMNS])


def _gain_table(
    section: Section, told: Sequence[tuple[GroupResult, Gains]], by: str, families: Sequence[str]
) -> RenderableType:
    title = (
        f"points over the best static arm in each {by} ({wording.CLEAR} the interval for other seeds excludes 0);\n"
        f"without it: over all but this {by}, and over the static arm that is best there"
    )
    table = make_table(["policy", *(f"{family} " for family in families)], roomy=False)
    for group, gains in told:
        known = {one.family: one for one in gains.families}
        inside = [_gain(known[family].difference if family in known else None) for family in families]
        without = [_gain(known[family].without if family in known else None) for family in families]
        table.add_row(section.name(group), *inside, style="bold")
        table.add_row("  without it", *without)
    return titled(title, table)


def _gain(found: PairedDifference | None) -> str:
    # A space that no one strips stands for the mark, so that numbers stay below each other.
    return " " + wording.marked_points(found).replace(" ", "\u00a0")


# --- contexts ---------------------------------------------------------------------------------------------------------


def _learned_line(section: Section, group: GroupResult) -> str:
    """How much of its contexts a row's tables have learned, which were used most, and the same of pooled levels."""
    finest, *coarser = group.contexts
    did = group.decisions
    parts = [
        f"{_of_contexts(finest)} (n >= {LEARNED_FROM}), {_share(finest)}",
        f"forced {wording.percent(did.forced_share if did else None)} %",
        f"most pulled: {_most_pulled(finest)}",
        *(f"pooled over {'+'.join(level.fields)}: {_of_contexts(level)}, {_share(level)}" for level in coarser),
    ]
    return f"{section.name(group)}: {'; '.join(parts)}"


def _of_contexts(level: ContextLevel) -> str:
    return f"{sum(one.learned for one in level.contexts)} of {len(level.contexts)} contexts learned"


def _share(level: ContextLevel) -> str:
    return f"{wording.percent(level.learned_share)} % of decisions there"


def _most_pulled(level: ContextLevel) -> str:
    most = level.contexts[:_NAMED]
    names = wording.short_keys([one.key for one in most])
    # "not learned" once, after the last of those that follow each other.
    told = [f"{name} {wording.count(one.per_table, 1)}" for name, one in zip(names, most, strict=True)]
    for place, one in enumerate(most):
        if not one.learned and (place + 1 == len(most) or most[place + 1].learned):
            told[place] += " (not learned)"
    return ", ".join(told)


def _pulls_table(section: Section, groups: Sequence[GroupResult]) -> RenderableType:
    """Pulls by arm in the contexts used most, at least one of each row, of the keys of its decisions."""
    each = max(1, _CONTEXTS // len(groups))
    shown = [(group, group.contexts[0].contexts[:each]) for group in groups]
    arms = sorted({arm for _, most in shown for one in most for arm in one.by_arm}, key=wording.arm_place)
    short = wording.short_arms(arms)
    legend = ", ".join(f"{letters} {arm}" for arm, letters in short.items())
    title = f"decisions a table (n) by context and arm, the most pulled ones; {legend}"
    table = make_table(["context", "n", *short.values()], roomy=False)
    for group, most in shown:
        for learned in (True, False):
            rows = [one for one in most if one.learned is learned]
            if rows:
                table.add_row(f"{section.name(group)}{'' if learned else ': not learned'}", style="italic")
            for one in rows:
                counts = [_pulls(one.by_arm.get(arm, 0.0)) for arm in arms]
                table.add_row(wording.key_values(one.key), wording.count(one.per_table, 1), *counts)
    return titled(title, table)


def _pulls(value: float) -> str:
    return wording.count(value, 1 if 0 < value < 10 else 0)
