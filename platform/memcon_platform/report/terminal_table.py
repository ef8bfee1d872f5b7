"""The one look of the terminal's tables: made for 80 columns, numbers never broken, names wrapped between words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["make_table"]


def make_table(columns: Sequence[str], *, num_text: int = 1, title: str | None = None, roomy: bool = True) -> Table:
    """An empty table; the first `num_text` columns are texts, of which the first may wrap."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="italic",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1 if roomy else 0, 0, 0),
    )
    for place, column in enumerate(columns):
        # Names wrap between words when they must; numbers never.
        table.add_column(
            column,
            justify="left" if place < num_text else "right",
            no_wrap=place > 0,
            overflow="fold",
            vertical="bottom",
        )
    return table
