"""`memcon track`: MLflow as a view of a run's Parquet."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import click

from memcon_platform.cli.arguments import json_option, run_folder
from memcon_platform.config import read_plan
from memcon_platform.config.loading import working_root
from memcon_platform.config.plan import RunPlan
from memcon_platform.objects import is_uri
from memcon_platform.run_store.places import local_folder, run_in_store

__all__ = ["command"]


@click.group(name="track", short_help="Keep MLflow in step with what a run holds.")
def command() -> None:
    """Keep MLflow in step with what a run holds."""


@command.command(name="rebuild", short_help="Put into MLflow what it lacks of a run.")
@click.argument("run")
@click.option("--uri", help="MLflow tracking URI; default: the one of the run's config.")
@json_option
def rebuild_command(run: str, *, uri: str | None, as_json: bool) -> None:
    """Put into MLflow what RUN has and MLflow lacks; a repeat adds nothing.

    RUN is a run's folder, its name in runs/, or its URI.
    """
    from memcon_platform.tracking import rebuild

    folder = run_folder(run)
    plan = _at_home(read_plan(folder), run)
    target = uri or plan.tracking_uri
    done = rebuild(folder, uri=target, experiment=plan.settings.tracking.experiment)
    if as_json:
        click.echo(json.dumps({**asdict(done), "uri": target}, indent=2))
        return
    added = f"added {done.added} missing values to" if done.added else "nothing is missing in"
    click.echo(f"{done.cells} cells, {done.tasks} tasks: {added} {target}")


def _at_home(plan: RunPlan, run: str) -> RunPlan:
    """The plan as its sweep has it: MLflow's database lies beside the working copies, not in the readers' cache."""
    if not is_uri(run):
        return plan
    return replace(plan, root=local_folder(working_root(plan.resolved), run_in_store(run)).parent)
