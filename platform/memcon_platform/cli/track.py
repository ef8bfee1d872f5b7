"""`memcon track`: MLflow as a view of a run's Parquet."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

__all__ = ["command"]


@click.group(name="track")
def command() -> None:
    """Keep MLflow in step with what a run holds."""


@command.command(name="rebuild")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--uri", help="MLflow tracking URI; default: the one of the run's config.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rebuild_command(run: Path, *, uri: str | None, as_json: bool) -> None:
    """Put into MLflow what the folder RUN has and MLflow lacks; a repeat adds nothing."""
    from memcon_platform.config import read_plan
    from memcon_platform.tracking import rebuild

    plan = read_plan(run)
    target = uri or plan.tracking_uri
    done = rebuild(run, uri=target, experiment=plan.settings.tracking.experiment)
    if as_json:
        click.echo(json.dumps({**asdict(done), "uri": target}, indent=2))
        return
    click.echo(f"{done.cells} cells, {done.tasks} tasks; {done.added} values were missing and are added to {target}")
