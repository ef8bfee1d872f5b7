"""The paired differences that a report shows, as one list for the terminal and for HTML. Computes no statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memcon_platform.report.data import GroupResult, Section
from memcon_platform.report.grouping import NO_MEMORY, RANDOM_ARM
from memcon_platform.report.measures import PairedDifference, Yardstick
from memcon_platform.report.yardsticks import BEST, DEFAULT, NOOP, ONLY, ORACLE

__all__ = ["Comparison", "comparisons"]

# As they are shown: static arms first.
_ORDER = (BEST, ONLY, DEFAULT, NOOP, RANDOM_ARM, ORACLE)
# Kinds of yardstick whose arm is named, in the words of a difference.
_STATIC = {BEST: "best static", ONLY: "only static", DEFAULT: "default static", NOOP: "noop"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A row minus another row."""

    group: GroupResult
    # "no memory", "random", "oracle from other seeds" or one or more words for the same static arm.
    kind: str
    # Name of the static arm, or what the oracle chooses by; "" for other kinds.
    arm: str
    # None when no task is in both.
    difference: PairedDifference | None

    @property
    def subtrahend(self) -> str:
        """What is taken away, in words: "no memory", "random arm", "best static (fixed:plan_inject)"."""
        return f"{self.kind} ({self.arm})" if self.arm else self.kind

    @property
    def is_partial(self) -> bool:
        """The difference covers a part of the row's tasks only."""
        return self.difference is not None and self.difference.num_pairs < self.group.success.num_tasks

    @property
    def is_one_table(self) -> bool:
        """Both intervals are the same: one stream or one shared table says nothing about other seeds."""
        return self.difference is not None and self.difference.num_tables == 1


def comparisons(section: Section) -> tuple[Comparison, ...]:
    """Each row minus no memory, and each learned row minus its yardsticks, in order of the rows."""
    return tuple(found for group in section.groups for found in _of(section, group))


def _of(section: Section, group: GroupResult) -> Iterator[Comparison]:
    if group.difference is not None:
        yield Comparison(group=group, kind=NO_MEMORY, arm="", difference=group.difference)
    # The same arm may be best, default and noop at once: one difference, all its words.
    by_label: dict[str, list[Yardstick]] = {}
    for yard in sorted(group.yardsticks, key=lambda yard: _place(yard.kind)):
        if yard.kind != NO_MEMORY:
            by_label.setdefault(yard.label, []).append(yard)
    for yards in by_label.values():
        first = yards[0]
        yield Comparison(
            group=group,
            kind=", ".join(_STATIC.get(yard.kind, yard.kind) for yard in yards),
            arm="" if first.kind == RANDOM_ARM else section.short(first.name),
            difference=first.difference,
        )


def _place(kind: str) -> int:
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)
