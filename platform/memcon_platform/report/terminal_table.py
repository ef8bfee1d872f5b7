"""The one look of the terminal's tables: made for 80 columns, numbers never broken, names wrapped between words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memcon_platform.report.data import GroupResult, Section
from memcon_platform.report.grouping import LEARNED, NO_MEMORY

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

__all__ = ["fill", "make_table", "titled"]


def make_table(columns: Sequence[str], *, num_text: int = 1, roomy: bool = True, least: int | None = None) -> Table:
    """An empty table; the first `num_text` columns are texts, of which the first may wrap, never below `least`."""
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1 if roomy else 0, 0, 0),
    )
    for place, column in enumerate(columns):
        # Names wrap between words when they must; numbers never.
        table.add_column(
            column,
            min_width=least if place == 0 else None,
            justify="left" if place < num_text else "right",
            no_wrap=place > 0,
            overflow="fold",
            vertical="bottom",
        )
    return table


def titled(title: str, table: Table) -> Group:
    """`table` below its title, which has the width of the page: that of a narrow table would break it often."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(title, style="italic"), table)


def fill(table: Table, section: Section, rows: Callable[[GroupResult], Sequence[Sequence[str]]]) -> Table:
    """`table` with the rows of each group; where there are several memories, each has a heading. Returns `table`.

    The first row of a group that learns stands out.
    """
    above = ""
    for group in section.groups:
        memory = section.memory(group)
        lines = rows(group)
        if lines and len(section.memories) > 1 and group.role != NO_MEMORY and memory != above:
            table.add_row(memory, style="italic")
            above = memory
        for place, cells in enumerate(lines):
            table.add_row(*cells, style="bold" if group.role == LEARNED and place == 0 else "")
    return table
