"""`memcon bench`: what the platform itself costs."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from memcon.errors import ConfigError
from memcon_platform.cli.arguments import json_option
from memcon_platform.cli.tracked import tracked
from memcon_platform.config import load
from memcon_platform.config.plan import RunPlan
from memcon_workers.spec import StreamResult

__all__ = ["command"]


@click.group(name="bench", short_help="Measure what the platform itself costs.")
def command() -> None:
    """Measure what the platform itself costs."""


@command.command(name="sweep", short_help="Cost per task step of a real sweep.")
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@json_option
def sweep_command(config: Path, overrides: tuple[str, ...], *, as_json: bool) -> None:
    """Time outside of environment and model per task step, in a real sweep of CONFIG in a temporary folder.

    The policy is served by Ray Serve with a durable journal, Parquet and MLflow are on.
    """
    with tempfile.TemporaryDirectory(prefix="memcon-bench-") as folder:
        plan = load(config, [*overrides, f"root={folder}"])
        if plan.settings.workers * plan.settings.streams_per_worker != 1:
            raise ConfigError("the bench needs workers: 1 and streams_per_worker: 1, else streams wait for each other")
        results = _measure(plan, Console(stderr=True))
    figures = _figures(results)
    if as_json:
        click.echo(json.dumps({"figures": figures, "ratios": {}}, indent=2))
        return
    for name, figure in figures.items():
        click.echo(f"{name:24} {figure['value']:>12} {figure['unit']}")


def _measure(plan: RunPlan, console: Console) -> Collection[StreamResult]:
    from memcon_platform.sweep.launch import Launch, launch
    from memcon_platform.sweep.ray_cluster import open_ray

    with tracked(plan, console) as observe:
        _, end = asyncio.run(launch(plan, Launch(open_pool=open_ray, observe=observe, console=console)))
    if end.stopped or end.failures:
        raise ConfigError(f"the bench did not run to its end: {dict(end.failures) or 'stopped'}")
    return end.results.values()


def _figures(results: Collection[StreamResult]) -> dict[str, dict[str, Any]]:
    steps = sum(result.num_steps for result in results)
    elapsed = sum(result.elapsed_s for result in results)
    model, environment = sum(result.model_s for result in results), sum(result.environment_s for result in results)

    def per_step(seconds: float) -> dict[str, Any]:
        return {"value": round(1000 * seconds / steps, 4), "unit": "ms"}

    return {
        "platform_ms_per_step": per_step(elapsed - model - environment),
        "model_ms_per_step": per_step(model),
        "environment_ms_per_step": per_step(environment),
        "tasks": {"value": sum(result.num_ended for result in results), "unit": "tasks"},
        "steps": {"value": steps, "unit": "steps"},
    }
