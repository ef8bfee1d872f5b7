"""`memcon sweep CONFIG`: run a plan, or go on with it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from memcon import codec
from memcon.errors import ConfigError, NotFoundError
from memcon_platform.cli import plan_table
from memcon_platform.cli.launched import place_of, run_plan
from memcon_platform.cli.report import print_report
from memcon_platform.cli.tracked import say
from memcon_platform.config import PlanSummary, load, plan_summary
from memcon_platform.config.plan import RunPlan
from memcon_platform.config.policies import policy_config

if TYPE_CHECKING:
    from memcon_platform.sweep.runner import RunEnd

__all__ = ["command"]

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

    KEY=VALUE lays a setting over the file; VALUE is YAML. Results go to ROOT/RUN, runs/NAME by default; ROOT may be
    s3://BUCKET/PREFIX. Ctrl-C stops after the current tasks.
    """
    plan = load(config, overrides, limit)
    _refuse_trials(plan)
    if only_plan:
        _print_summary(plan_summary(plan), as_json=as_json)
        return 0
    return _sweep(plan, local=local, as_json=as_json)


def _refuse_trials(plan: RunPlan) -> None:
    """A cell that plays every arm is no row of a report: it is what a study plays.

    Raises:
        ConfigError: the plan has such a cell.
    """
    for cell in plan.cells:
        if hasattr(policy_config(cell.policy), "trial_set"):
            raise ConfigError(
                f"policy '{cell.policy.label}' plays every arm of a task, which makes the outcome matrix of a study; "
                "take it out of the policies, and run `memcon study headroom CONFIG`"
            )


def _sweep(plan: RunPlan, *, local: bool, as_json: bool) -> int:
    console = Console(stderr=as_json)
    say(console, f"run {plan.run}: {len(plan.cells)} cells in {place_of(plan)}")
    code = run_plan(plan, local=local, console=console, then=lambda ran, end: _report(ran, end, as_json=as_json))
    if code != _INTERRUPTED and plan.settings.tracking.enabled:
        say(console, f"tracked in MLflow: {_where_to_look(plan.tracking_uri)}")
    return code


def _report(plan: RunPlan, end: RunEnd, *, as_json: bool) -> None:
    try:
        print_report(plan.run_dir, as_json=as_json)
    except NotFoundError:
        # No task has ended: why stands in the failures.
        if not end.failures:
            raise


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
