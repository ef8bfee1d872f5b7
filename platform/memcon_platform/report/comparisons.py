"""The paired differences that a report shows, as one list for the terminal and for HTML. Computes no statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memcon_platform.report.data import STREAMS, GroupResult, Section
from memcon_platform.report.grouping import NO_MEMORY, RANDOM_ARM
from memcon_platform.report.measures import PairedDifference, Yardstick
from memcon_platform.report.yardsticks import BEST, DEFAULT, NOOP, ONLY, ORACLE, REFERENCE

__all__ = ["Comparison", "comparisons"]

# As they are shown: what the plan asks for, then static arms.
_ORDER = (REFERENCE, BEST, ONLY, DEFAULT, NOOP, RANDOM_ARM, ORACLE)
# Kinds of yardstick whose arm is named, in the words of a difference.
_STATIC = {BEST: "best static", ONLY: "only static", DEFAULT: "default static", NOOP: "noop"}
# What a learned row is compared with wherever it stands, so that a short table may leave it out.
_EVERYWHERE = frozenset({NO_MEMORY, DEFAULT, NOOP, RANDOM_ARM})


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A row minus another row."""

    group: GroupResult
    # No memory, or the kinds of yardstick that the same other row is.
    kinds: tuple[str, ...]
    # Name of the static arm or of the reference, or what the oracle chooses by; "" for other kinds.
    arm: str
    # None when no task is in both.
    difference: PairedDifference | None

    @property
    def subtrahend(self) -> str:
        """What is taken away, in words: "no memory", "random arm", "best static (fixed:plan_inject)"."""
        words = ", ".join(_STATIC.get(kind, kind) for kind in self.kinds)
        return f"{words} ({self.arm})" if self.arm else words

    @property
    def in_short(self) -> str:
        """`subtrahend` for a narrow column: "best static: plan_inject", "oracle, other seeds: family"."""
        if self.kinds == (ORACLE,):
            return f"oracle, other seeds: {self.arm.removeprefix('per ')}"
        words, _, arm = self.subtrahend.partition(" (")
        arm = STREAMS.sub("", arm.removesuffix(")")).removeprefix("fixed:")
        return words if arm in {"", words} else f"{words}: {arm}"

    @property
    def is_everywhere(self) -> bool:
        """A yardstick of every learned row that is neither the best static arm, the oracle nor the reference."""
        return _EVERYWHERE.issuperset(self.kinds)

    @property
    def is_partial(self) -> bool:
        """The difference covers a part of the row's tasks only."""
        return self.difference is not None and self.difference.num_pairs < self.group.success.num_tasks

    @property
    def is_one_table(self) -> bool:
        """Both intervals are the same: one stream or one shared table says nothing about other seeds."""
        return self.difference is not None and self.difference.num_tables == 1


def comparisons(section: Section) -> tuple[Comparison, ...]:
    """Each row minus no memory and the reference, each learned row minus its yardsticks, in order of the rows."""
    return tuple(found for group in section.groups for found in _of(section, group))


def _of(section: Section, group: GroupResult) -> Iterator[Comparison]:
    if group.difference is not None:
        yield Comparison(group=group, kinds=(NO_MEMORY,), arm="", difference=group.difference)
    # The same arm may be best, default and noop at once: one difference, all its words.
    by_label: dict[str, list[Yardstick]] = {}
    for yard in sorted(group.yardsticks, key=lambda yard: _place(yard.kind)):
        if yard.kind != NO_MEMORY:
            by_label.setdefault(yard.label, []).append(yard)
    for yards in by_label.values():
        first = yards[0]
        yield Comparison(
            group=group,
            kinds=tuple(yard.kind for yard in yards),
            arm="" if first.kind == RANDOM_ARM else section.short(first.name),
            difference=first.difference,
        )


def _place(kind: str) -> int:
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)
