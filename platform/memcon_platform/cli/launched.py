"""One launch of a plan as a command carries it out: with tracking, stops told in one line, and an exit code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING

import click
from rich.console import Console

from memcon_platform.cli.tracked import tracked
from memcon_platform.config.plan import RunPlan

if TYPE_CHECKING:
    from memcon_platform.sweep.runner import RunEnd

__all__ = ["run_plan"]

_FAILED = 1
_INTERRUPTED = 130


def run_plan(
    plan: RunPlan, *, local: bool, console: Console, then: Callable[[RunPlan, RunEnd], None] | None = None
) -> int:
    """Run what is left of `plan`, then `then` with the plan as the run folder holds it; returns the exit code.

    `then` comes before tracking ends, so that what it writes is tracked, and not after a stop. Streams that failed are
    told on stderr, a line each.

    Raises:
        MemconError: as in `launch`.
    """
    from memcon_platform.sweep.interrupts import Interrupted
    from memcon_platform.sweep.launch import Launch, launch, open_local

    if local:
        open_pool = open_local
    else:
        from memcon_platform.sweep.ray_cluster import open_ray as open_pool
    with tracked(plan, console) as observe:
        try:
            # Ray prints the death of a worker on stdout, which belongs to the JSON when progress goes to stderr.
            with redirect_stdout(sys.stderr) if console.stderr else nullcontext():
                plan, end = asyncio.run(launch(plan, Launch(open_pool=open_pool, observe=observe, console=console)))
        except Interrupted:
            click.echo("stopped at once; the same command again repeats the open tasks and goes on", err=True)
            return _INTERRUPTED
        if then is not None and not end.stopped:
            then(plan, end)
        for (cell, stream), message in end.failures.items():
            click.echo(f"error: stream {stream} of cell {cell} failed: {' '.join(message.split())}", err=True)
        if end.stopped:
            click.echo("stopped; the same command again goes on", err=True)
            return _INTERRUPTED
    return _FAILED if end.failures else 0
