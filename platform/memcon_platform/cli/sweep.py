"""`memcon sweep CONFIG`: run a plan, or go on with it."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console

from memcon import codec
from memcon.errors import NotFoundError
from memcon_platform.cli import plan_table
from memcon_platform.cli.report import print_report
from memcon_platform.cli.tracked import say, tracked
from memcon_platform.config import PlanSummary, load, plan_summary
from memcon_platform.config.plan import RunPlan
from memcon_platform.sweep.supervisor import StreamName

__all__ = ["command"]

_FAILED = 1
_INTERRUPTED = 130
_EPILOG = """\b
Examples:
  memcon sweep configs/demo.yaml --plan
  memcon sweep configs/demo.yaml
  memcon sweep configs/demo.yaml run=try axes.seed=[0,1] --limit 20
  memcon sweep configs/smoke.yaml --local
"""


@click.command(name="sweep", short_help="Run a config, or go on with it where it stopped.", epilog=_EPILOG)
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--plan", "only_plan", is_flag=True, help="Print cells, tasks and expected decisions; run nothing.")
@click.option("--local", is_flag=True, help="Run in this process, without Ray; same results in exact settings.")
@click.option("--limit", type=int, metavar="N", help="First N tasks of each benchmark; part of the settings.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout; progress goes to stderr.")
def command(
    config: Path, overrides: tuple[str, ...], *, only_plan: bool, local: bool, limit: int | None, as_json: bool
) -> int:
    """Run every cell of CONFIG, a YAML file. The same command again goes on and repeats no finished task.

    KEY=VALUE lays a setting over the file; VALUE is YAML. Results go to ROOT/RUN, runs/NAME by default. Ctrl-C stops
    after the current tasks.
    """
    plan = load(config, overrides, limit)
    if only_plan:
        _print_summary(plan_summary(plan), as_json=as_json)
        return 0
    return _sweep(plan, local=local, as_json=as_json)


def _sweep(plan: RunPlan, *, local: bool, as_json: bool) -> int:
    from memcon_platform.sweep.interrupts import Interrupted
    from memcon_platform.sweep.launch import Launch, launch, open_local

    console = Console(stderr=as_json)
    if local:
        open_pool = open_local
    else:
        from memcon_platform.sweep.ray_cluster import open_ray as open_pool
    say(console, f"run {plan.run}: {len(plan.cells)} cells in {plan.run_dir}")
    with tracked(plan, console) as observe:
        try:
            plan, end = asyncio.run(launch(plan, Launch(open_pool=open_pool, observe=observe, console=console)))
        except Interrupted:
            click.echo("stopped at once; the same command again repeats the open tasks and goes on", err=True)
            return _INTERRUPTED
        if end.stopped:
            click.echo("stopped; the same command again goes on", err=True)
            return _INTERRUPTED
        _report(plan, end.failures, as_json=as_json)
    if plan.settings.tracking.enabled:
        say(console, f"tracked in MLflow: {_where_to_look(plan.tracking_uri)}")
    return _FAILED if end.failures else 0


def _report(plan: RunPlan, failures: Mapping[StreamName, str], *, as_json: bool) -> None:
    """The table, and one line for each stream that failed."""
    try:
        print_report(plan.run_dir, as_json=as_json)
    except NotFoundError:
        # No task has ended: why stands in the failures.
        if not failures:
            raise
    for (cell, stream), message in failures.items():
        line = " ".join(message.split())
        click.echo(f"error: stream {stream} of cell {cell} failed: {line}", err=True)


def _where_to_look(uri: str) -> str:
    """The address of a tracking server, or the command that shows the database, ready to be pasted."""
    if uri.startswith(("http:", "https:")):
        return uri
    script = Path(sys.executable).with_name("mlflow")
    found = shutil.which("mlflow")
    # Installed by `make`, it is in no search path.
    name = "mlflow" if found and Path(found) == script else os.path.relpath(script)
    return shlex.join([name, "ui", "--backend-store-uri", uri])


def _print_summary(summary: PlanSummary, *, as_json: bool) -> None:
    if as_json:
        totals = {"streams": summary.streams, "tasks": summary.tasks, "decisions": summary.decisions}
        cells = [{**codec.encode(cell), "tasks": cell.tasks} for cell in summary.cells]
        click.echo(json.dumps({**codec.encode(summary), **totals, "cells": cells}, indent=2))
        return
    Console().print(plan_table.render(summary))
    counts = f"{len(summary.cells)} cells, {summary.streams} streams, {summary.tasks} tasks"
    click.echo(f"{counts}, about {summary.decisions} decisions")
    for assumption in summary.assumptions:
        click.echo(f"  {assumption}")
