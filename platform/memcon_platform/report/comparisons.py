"""The paired differences that a report shows, as one list for the terminal and for HTML. Computes no statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memcon_platform.report.data import GroupResult, PairedDifference, Section
from memcon_platform.report.grouping import NO_MEMORY

__all__ = ["Comparison", "comparisons"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A row minus another row."""

    group: GroupResult
    # "no memory", "best static arm" ("only static arm" where one ran) or "random arm".
    kind: str
    # Name of the static arm, "" for other kinds.
    arm: str
    # None when no task is in both.
    difference: PairedDifference | None

    @property
    def subtrahend(self) -> str:
        """What is taken away, in words: "no memory", "random arm", "best static (fixed:plan_inject)"."""
        return f"{self.kind.removesuffix(' arm')} ({self.arm})" if self.arm else self.kind

    @property
    def is_partial(self) -> bool:
        """The difference covers a part of the row's tasks only."""
        return self.difference is not None and self.difference.num_pairs < self.group.success.num_tasks

    @property
    def is_one_stream(self) -> bool:
        """Both intervals are the same: one stream says nothing about other seeds."""
        return self.difference is not None and self.difference.num_streams == 1


def comparisons(section: Section) -> tuple[Comparison, ...]:
    """Each row minus no memory, and each learned row minus the best static and the random arm, in order of the rows."""
    return tuple(found for group in section.groups for found in _of(group))


def _of(group: GroupResult) -> Iterator[Comparison]:
    if group.difference is not None:
        yield Comparison(group=group, kind=NO_MEMORY, arm="", difference=group.difference)
    for yard in group.yardsticks:
        if yard.kind != NO_MEMORY:
            arm = yard.name if yard.kind.endswith("static arm") else ""
            yield Comparison(group=group, kind=yard.kind, arm=arm, difference=yard.difference)
