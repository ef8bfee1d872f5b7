"""`memcon bench`: what the platform itself costs."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from memcon.errors import ConfigError
from memcon_platform.cli.arguments import json_option
from memcon_platform.cli.bench_policy import policy_command, serving_command
from memcon_platform.cli.figures import print_figures
from memcon_platform.cli.tracked import tracked
from memcon_platform.config import load
from memcon_platform.config.plan import RunPlan
from memcon_workers.spec import StreamResult

__all__ = ["command"]

# Processes that take less of a core than this are not printed.
_LEAST_SHARE = 0.01
_SHARING = Path("configs/bench_sharing.yaml")


@click.group(name="bench", short_help="Measure what the platform itself costs.")
def command() -> None:
    """Measure what the platform itself costs."""


command.add_command(policy_command)
command.add_command(serving_command)


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
    print_figures(_figures(results), {}, as_json=as_json)


@command.command(name="sharing", short_help="64 streams, one table: one worker against two.")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--config", type=click.Path(path_type=Path), default=_SHARING, show_default=True, help="What to sweep.")
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="Sweeps with each number.")
@json_option
def sharing_command(overrides: tuple[str, ...], *, config: Path, rounds: int, as_json: bool) -> None:
    """Throughput with one worker and with two when all streams share a table, and what each process takes of a core.

    Each sweep is a new one in a temporary folder, served by Ray Serve with a durable journal.
    """
    from memcon_platform.bench.sharing import Throughput, measure_sharing, together
    from memcon_platform.sweep.ray_cluster import open_ray

    rows: dict[int, list[Throughput]] = {1: [], 2: []}
    for turn in range(rounds):
        # Order turns round: what the first sweep pays for the disk cache, the other pays next time.
        for workers in (1, 2) if turn % 2 == 0 else (2, 1):
            with tempfile.TemporaryDirectory(prefix="memcon-bench-") as folder:
                plan = load(config, [*overrides, f"root={folder}", f"workers={workers}"])
                rows[workers].append(measure_sharing(plan, open_ray, Console(stderr=True)))
    one, two = together(rows[1]), together(rows[2])
    figures: dict[str, dict[str, Any]] = {}
    for name, found in (("one_worker", one), ("two_workers", two)):
        figures[f"{name}_tasks_per_s"] = {"value": round(found.tasks_per_s, 1), "unit": "tasks/s"}
        for process, share in found.cpu.items():
            if share >= _LEAST_SHARE:
                figures[f"{name}_cpu {process}"] = {"value": round(share, 2), "unit": "cores"}
    print_figures(figures, {"shared_two_workers_vs_one": round(two.tasks_per_s / one.tasks_per_s, 3)}, as_json=as_json)


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
