"""What `memcon policy` prints for people, and the JSON form of a difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from memcon_platform.policies.differences import Cell, CellDifference, TableDifference
    from memcon_platform.policies.inspection import Columns

__all__ = ["difference_record", "print_differences", "print_keys", "print_tables"]

_NONE = "-"


def print_tables(target: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """One line a table."""
    if not rows:
        click.echo(f"{target} has no tables")
        return
    _print_columns(list(rows[0]), [list(row.values()) for row in rows])


def print_keys(listed: Mapping[str, Any], keys: Mapping[str, Columns]) -> None:
    """One block a key, one line an arm."""
    state = ", frozen" if listed["frozen"] else ""
    click.echo(
        f"table {listed['table']}, rule {listed['rule']}{state}: {listed['taken']} decisions, {listed['credited']} "
        f"credited, {listed['open']} open; {len(keys)} of {listed['keys']} keys"
    )
    for key, arms in keys.items():
        click.echo(f"\n{key}")
        names = list(next(iter(arms.values())))
        # A column that nothing stands in says nothing.
        names = [name for name in names if any(columns[name] is not None for columns in arms.values())]
        _print_columns(["arm", *names], [[arm, *(columns[name] for name in names)] for arm, columns in arms.items()])


def print_differences(found: Mapping[str, TableDifference], lone: Mapping[str, Sequence[str]], top: int | None) -> None:
    """The settings, and the `top` cells, that differ in each pair of tables; nothing for equal ones."""
    for place, tables in lone.items():
        click.echo(f"only in {place}: {', '.join(tables)}")
    for table, difference in found.items():
        if difference.equal:
            continue
        click.echo(f"table {table}: {len(difference.settings)} settings and {len(difference.cells)} cells differ")
        for name, (first, second) in difference.settings.items():
            click.echo(f"  {name}: {first} -> {second}")
        for cell in difference.cells[:top]:
            click.echo(f"  {cell.arm} at {cell.key}\n    {_cell_difference(cell)}")


def difference_record(difference: TableDifference, top: int | None) -> dict[str, Any]:
    """JSON-able form; the cells are counted whole and told as far as `top`."""
    return {
        "equal": difference.equal,
        "settings": {name: list(values) for name, values in difference.settings.items()},
        "num_cells": len(difference.cells),
        "cells": [{**asdict(cell), "q_difference": cell.q_difference} for cell in difference.cells[:top]],
    }


def _cell_difference(cell: CellDifference) -> str:
    if cell.first is None or cell.second is None:
        return "there only" if cell.first is None else "here only"
    return f"q {cell.q_difference:+.6g}: {_cell(cell.first)} -> {_cell(cell.second)}"


def _cell(cell: Cell) -> str:
    return f"q {cell.q:.6g}, taken {cell.taken}, credited {cell.credited}, squares {cell.squares:.6g}"


def _print_columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for place, name in enumerate(names):
        is_text = any(isinstance(row[place], str) for row in rows)
        table.add_column(name, overflow="fold", justify="left" if is_text else "right")
    for row in rows:
        # As text: a name in brackets is no markup.
        table.add_row(*(Text(_shown(value)) for value in row))
    Console().print(table)


def _shown(value: Any) -> str:
    match value:
        case None:
            return _NONE
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4f}"
        case _:
            return str(value)
