"""`memcon sweep CONFIG`: run a plan, or go on with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from memcon import codec
from memcon_platform.cli.report import REPORT_FILE, print_report
from memcon_platform.config import PlanSummary, load, plan_summary
from memcon_platform.config.plan import RunPlan
from memcon_platform.sweep.tracking import SweepTracking

__all__ = ["command"]

_FAILED = 1
_INTERRUPTED = 130


@click.command(name="sweep")
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--plan", "only_plan", is_flag=True, help="Print cells, tasks and expected decisions; run nothing.")
@click.option("--local", is_flag=True, help="Run in this process, without Ray; same results in exact settings.")
@click.option("--limit", type=int, metavar="N", help="First N tasks of each benchmark.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout; progress goes to stderr.")
def command(
    config: Path, overrides: tuple[str, ...], *, only_plan: bool, local: bool, limit: int | None, as_json: bool
) -> int:
    r"""Run every cell of CONFIG. The same command again goes on where it stopped and repeats no finished task.

    \b
    memcon sweep configs/demo.yaml
    memcon sweep configs/demo.yaml run=try axes.seed=[0,1] --limit 20
    """
    plan = load(config, overrides, limit)
    if only_plan:
        _print_summary(plan_summary(plan), as_json=as_json)
        return 0
    return _sweep(plan, local=local, as_json=as_json)


def _sweep(plan: RunPlan, *, local: bool, as_json: bool) -> int:
    from memcon_platform.sweep.launch import Launch, launch, open_local
    from memcon_platform.sweep.runner import Interrupted

    console = Console(stderr=as_json)
    if local:
        open_pool = open_local
    else:
        from memcon_platform.sweep.ray_cluster import open_ray as open_pool
    console.print(f"run {plan.run}: {len(plan.cells)} cells in {plan.run_dir}", highlight=False, markup=False)
    tracked: list[SweepTracking] = []

    def observe(written: RunPlan, resumed: bool) -> SweepTracking:
        tracked.append(SweepTracking(written, resumed=resumed))
        return tracked[-1]

    try:
        plan, end = asyncio.run(launch(plan, Launch(open_pool=open_pool, observe=observe, console=console)))
    except Interrupted:
        _close(plan, tracked, console)
        click.echo("stopped at once; the same command again repeats the open tasks and goes on", err=True)
        return _INTERRUPTED
    if end.stopped:
        _close(plan, tracked, console)
        click.echo("stopped; the same command again goes on", err=True)
        return _INTERRUPTED
    _print_end(plan, tracked, as_json=as_json, console=console)
    for (cell, stream), message in end.failures.items():
        click.echo(f"error: stream {stream} of cell {cell} failed: {message}", err=True)
    return _FAILED if end.failures else 0


def _print_end(plan: RunPlan, tracked: Sequence[SweepTracking], *, as_json: bool, console: Console) -> None:
    """The table, and where everything is."""
    print_report(plan.run_dir, as_json=as_json)
    _close(plan, tracked, console)
    if plan.settings.tracking.enabled:
        ui = f"tracked in MLflow: mlflow ui --backend-store-uri {plan.tracking_uri}"
        console.print(ui, soft_wrap=True, highlight=False, markup=False)


def _close(plan: RunPlan, tracked: Sequence[SweepTracking], console: Console) -> None:
    for tracking in tracked:
        end = tracking.close(plan.run_dir / REPORT_FILE)
        if end.problem or end.dropped:
            missing = f"tracking: {end.dropped} tasks did not reach MLflow ({end.problem}); {end.remedy}"
            console.print(missing, style="yellow", soft_wrap=True, markup=False, highlight=False)


def _print_summary(summary: PlanSummary, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(codec.encode(summary), indent=2))
        return
    table = Table("cell", "streams", "tasks", "decisions", title=f"run {summary.run}")
    for cell in summary.cells:
        table.add_row(cell.label, str(len(cell.stream_tasks)), str(cell.tasks), str(cell.decisions))
    Console().print(table)
    counts = f"{len(summary.cells)} cells, {summary.streams} streams, {summary.tasks} tasks"
    click.echo(f"{counts}, about {summary.decisions} decisions")
    for assumption in summary.assumptions:
        click.echo(f"  {assumption}")
