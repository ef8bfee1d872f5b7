"""Paired differences in the terminal: a line a row to what all rows have beside them, more for rows that learn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memcon_platform.report import wording
from memcon_platform.report.comparisons import Comparison, comparisons
from memcon_platform.report.data import GroupResult, Section
from memcon_platform.report.grouping import LEARNED, NO_MEMORY
from memcon_platform.report.measures import PairedDifference
from memcon_platform.report.terminal_table import fill, make_table, titled
from memcon_platform.report.yardsticks import REFERENCE

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["differences"]

_LAST_QUARTER = "  last quarter"


def differences(section: Section) -> Iterator[RenderableType]:
    """Rows to the reference and to no memory, a line each; then each learned row to its other yardsticks.

    Where the plan names a reference, a learned row's differences to what stands beside every row are left to the HTML
    and JSON forms.
    """
    compared = comparisons(section)
    reference = [one for one in compared if REFERENCE in one.kinds]
    if reference:
        yield _lines(section, reference, to=f"the reference, {_only_arm(reference)}")
    plain = [one for one in compared if one.kinds == (NO_MEMORY,) and one.group.role != LEARNED]
    if plain:
        yield _lines(section, plain, to=NO_MEMORY)
    left_out = [*reference, *plain, *(one for one in compared if reference and one.is_everywhere)]
    rest = [one for one in compared if not any(one is other for other in left_out)]
    if rest:
        yield _learned(section, rest)


def _only_arm(compared: Sequence[Comparison]) -> str:
    """The row that all are compared with; its policy where there are several."""
    arms = dict.fromkeys(one.arm for one in compared)
    return next(iter(arms)) if len(arms) == 1 else next(iter(arms)).partition(",")[0]


# --- a line a row -----------------------------------------------------------------------------------------------------


def _lines(section: Section, compared: Sequence[Comparison], *, to: str) -> RenderableType:
    heads = ("pairs", "diff. ", "other\nseeds too", "last \nquarter ", "tokens")
    titles, *numbers = _in_columns(heads, [_line(one, compared) for one in compared])

    def rows(group: GroupResult) -> Sequence[Sequence[str]]:
        name = section.short(group.name)
        return [(name, *numbers[place]) for place, one in enumerate(compared) if one.group is group]

    title = f"success minus {to}, paired points; {wording.CLEAR} interval excludes 0"
    return titled(title, fill(make_table(["policy", *titles], num_text=6, roomy=False), section, rows))


def _line(one: Comparison, compared: Sequence[Comparison]) -> tuple[str, ...]:
    found = one.difference
    pairs, single = _marks(one, compared)
    return (
        wording.count(found.num_pairs if found else 0) + pairs,
        wording.marked_points(found),
        wording.other_seeds(found) + single,
        wording.marked_points(found.last_quarter if found else None),
        wording.signed(found.injected if found else None),
    )


# --- learned rows -----------------------------------------------------------------------------------------------------


def _learned(section: Section, compared: Sequence[Comparison]) -> RenderableType:
    heads = ("pairs", "diff.", "these\nseeds", "other\nseeds too", "tokens")
    shown = [(one, found, whole) for one in compared for found, whole in _parts(one)]
    titles, *numbers = _in_columns(heads, [_numbers(one, found, compared) for one, found, _ in shown])

    def rows(group: GroupResult) -> Sequence[Sequence[str]]:
        lines = [
            (one.in_short if whole else _LAST_QUARTER, *numbers[place])
            for place, (one, _, whole) in enumerate(shown)
            if one.group is group
        ]
        return [(f"{section.short(group.name)} minus",), *lines] if lines else []

    title = "success of learned rows minus others, paired points (reported, not arranged)"
    return titled(title, fill(make_table(["policy minus", *titles], num_text=6, roomy=False), section, rows))


def _parts(one: Comparison) -> Iterator[tuple[PairedDifference | None, bool]]:
    """The whole stream, and its last quarter where it has a pair."""
    yield one.difference, True
    if one.difference and one.difference.last_quarter:
        yield one.difference.last_quarter, False


def _numbers(one: Comparison, found: PairedDifference | None, compared: Sequence[Comparison]) -> tuple[str, ...]:
    pairs, single = _marks(one, compared)
    return (
        wording.count(found.num_pairs if found else 0) + pairs,
        wording.points(found),
        wording.these_seeds(found),
        wording.other_seeds(found) + single,
        wording.signed(found.injected if found else None),
    )


# --- both -------------------------------------------------------------------------------------------------------------


def _marks(one: Comparison, compared: Sequence[Comparison]) -> tuple[str, str]:
    """The marks of partial pairs and of one table; where some have a mark, the others have a space for it."""
    return (
        _mark(wording.PARTIAL, one.is_partial, any(other.is_partial for other in compared)),
        _mark(wording.ONE_STREAM, one.is_one_table, any(other.is_one_table for other in compared)),
    )


def _mark(mark: str, here: bool, somewhere: bool) -> str:
    return (mark if here else " ") if somewhere else ""


def _in_columns(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """`heads` and `lines` with the texts of a column set to the right of one width.

    Rich would strip the space that stands for a mark.
    """
    return list(zip(*[_aligned(texts) for texts in zip(heads, *lines, strict=True)], strict=True))


def _aligned(texts: Sequence[str]) -> list[str]:
    width = max(len(line) for text in texts for line in text.split("\n"))
    return ["\n".join(line.rjust(width) for line in text.split("\n")) for text in texts]
