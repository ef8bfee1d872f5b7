"""`memcon benchmarks`: which benchmarks there are, and what their tasks look like."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import click

from memcon import registry
from memcon.errors import MemconError
from memcon.protocols import Benchmark
from memcon_platform.cli.arguments import json_option

__all__ = ["command"]


@click.group(name="benchmarks", short_help="List the benchmarks.")
def command() -> None:
    """List the benchmarks."""


@command.command(name="list", short_help="Every benchmark with its tasks by goal type.")
@json_option
def list_command(*, as_json: bool) -> None:
    """Every registered benchmark, as its defaults make it: tasks by goal type, those of a mix by benchmark."""
    rows = [_row(name) for name in registry.names("benchmark")]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        if "error" in row:
            click.echo(f"{row['name']}: not available: {row['error']}")
            continue
        counts = row["benchmarks"] if len(row["benchmarks"]) > 1 else row["goal_types"]
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        click.echo(f"{row['name']} ({row['provenance']}): {row['tasks']} tasks ({listed})\n    {row['summary']}")


def _row(name: str) -> dict[str, Any]:
    # A benchmark that cannot be loaded must not hide the others.
    try:
        return _told(name)
    except MemconError as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - whatever the code of another package raises
        problem = f"benchmark '{name}' cannot be read: {type(error).__name__}: {error}"
    return {"name": name, "error": " ".join(problem.split())}


def _told(name: str) -> dict[str, Any]:
    summary = registry.plugin("benchmark", name).summary
    benchmark: Benchmark = registry.build("benchmark", name, {})
    tasks = benchmark.tasks()
    return {
        "name": name,
        "summary": summary,
        "provenance": benchmark.provenance.value,
        "tasks": len(tasks),
        "benchmarks": dict(sorted(Counter(task.benchmark for task in tasks).items())),
        "goal_types": dict(sorted(Counter(task.goal_type for task in tasks).items())),
    }
