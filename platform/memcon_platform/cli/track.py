"""`memcon track`: MLflow as a view of a run's Parquet."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from memcon_platform.cli.arguments import json_option, run_argument

__all__ = ["command"]


@click.group(name="track", short_help="Keep MLflow in step with what a run holds.")
def command() -> None:
    """Keep MLflow in step with what a run holds."""


@command.command(name="rebuild", short_help="Put into MLflow what it lacks of a run.")
@run_argument("run")
@click.option("--uri", help="MLflow tracking URI; default: the one of the run's config.")
@json_option
def rebuild_command(run: Path, *, uri: str | None, as_json: bool) -> None:
    """Put into MLflow what RUN has and MLflow lacks; a repeat adds nothing.

    RUN is a run's folder, or its name in runs/.
    """
    from memcon_platform.config import read_plan
    from memcon_platform.tracking import rebuild

    plan = read_plan(run)
    target = uri or plan.tracking_uri
    done = rebuild(run, uri=target, experiment=plan.settings.tracking.experiment)
    if as_json:
        click.echo(json.dumps({**asdict(done), "uri": target}, indent=2))
        return
    added = f"added {done.added} missing values to" if done.added else "nothing is missing in"
    click.echo(f"{done.cells} cells, {done.tasks} tasks: {added} {target}")
