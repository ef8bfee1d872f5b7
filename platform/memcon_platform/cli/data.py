"""`memcon data`: is a run's Parquet whole, and are two runs equal?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from memcon_platform.cli.arguments import json_option, run_argument
from memcon_platform.trajectory import check, compare

__all__ = ["command"]

_DIFFERENT = 1


@click.group(name="data", short_help="Check a run's Parquet, or compare two runs.")
def command() -> None:
    """Check and compare the Parquet tables of runs."""


@command.command(name="check", short_help="Damaged files, gaps and doubles of tasks.")
@run_argument("run")
@json_option
def check_command(run: Path, *, as_json: bool) -> int:
    """Look for damaged files, and for gaps and doubles of tasks, in RUN: a run's folder, or its name in runs/."""
    found = check(run)
    if as_json:
        click.echo(json.dumps({**asdict(found), "ok": found.ok}, indent=2))
        return 0 if found.ok else _DIFFERENT
    for note in found.notes:
        click.echo(f"note: {note}")
    for problem in found.problems:
        click.echo(f"error: {problem}", err=True)
    click.echo(f"run {found.run}: {found.found}/{found.planned} tasks, {'ok' if found.ok else 'NOT ok'}")
    return 0 if found.ok else _DIFFERENT


@command.command(name="compare", short_help="Are two runs equal, byte for byte?")
@run_argument("first")
@run_argument("second")
@json_option
def compare_command(first: Path, second: Path, *, as_json: bool) -> int:
    """Compare all columns of two runs, but for those that name the try, the owner's view and the clock.

    FIRST and SECOND are run folders, or names in runs/. docs/architecture.md lists the columns that are left out.
    """
    found = compare(first, second)
    if as_json:
        click.echo(json.dumps({"equal": not found, "differences": [str(item) for item in found]}, indent=2))
    else:
        for difference in found:
            click.echo(str(difference))
        click.echo("equal" if not found else f"NOT equal: {len(found)} differences")
    return _DIFFERENT if found else 0
