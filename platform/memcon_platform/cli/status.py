"""`memcon status RUN`: how far a run is."""

from __future__ import annotations

import json
from pathlib import Path

import click

from memcon_platform.cli.arguments import json_option, run_argument
from memcon_platform.config import read_plan
from memcon_platform.sweep.overview import overview

__all__ = ["command"]


@click.command(name="status", short_help="How far a run is: done, failed and pending tasks.")
@run_argument("run")
@json_option
def command(run: Path, *, as_json: bool) -> None:
    """Planned, done, failed, unevaluable and pending tasks of RUN: a run's folder, or its name in runs/."""
    found = overview(read_plan(run))
    if as_json:
        click.echo(json.dumps(found.record(), indent=2))
        return
    click.echo(f"run {found.run}: {found.done}/{found.planned} tasks done, {found.pending} pending")
    click.echo(f"unevaluable tasks: {found.unevaluable}; failed streams: {len(found.failed)}")
    for failure in found.failed:
        click.echo(f"  {failure.label}, stream {failure.stream}: {failure.message}")
    if found.pending or found.failed:
        click.echo("the same `memcon sweep` command again goes on from here")
