"""`memcon data`: is a run's Parquet whole, and are two runs equal?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from memcon_platform.trajectory import check, compare

__all__ = ["command"]

_DIFFERENT = 1


@click.group(name="data")
def command() -> None:
    """Check and compare the Parquet tables of runs."""


@command.command(name="check")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check_command(run: Path, *, as_json: bool) -> int:
    """Look for damaged files, and for gaps and doubles of tasks, in the folder RUN."""
    found = check(run)
    if as_json:
        click.echo(json.dumps({**asdict(found), "ok": found.ok}, indent=2))
        return 0 if found.ok else _DIFFERENT
    for note in found.notes:
        click.echo(f"note: {note}")
    for problem in found.problems:
        click.echo(f"problem: {problem}", err=True)
    click.echo(f"run {found.run}: {found.found}/{found.planned} tasks, {'ok' if found.ok else 'NOT ok'}")
    return 0 if found.ok else _DIFFERENT


@command.command(name="compare")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare_command(first: Path, second: Path, *, as_json: bool) -> int:
    """Compare two runs byte for byte, outside ids of the try, versions and clock columns."""
    found = compare(first, second)
    if as_json:
        click.echo(json.dumps({"equal": not found, "differences": [str(item) for item in found]}, indent=2))
    else:
        for difference in found:
            click.echo(str(difference))
        click.echo("equal" if not found else f"{len(found)} columns differ")
    return _DIFFERENT if found else 0
