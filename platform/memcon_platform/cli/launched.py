"""One launch of a plan as a command carries it out: with tracking, stops told in one line, and an exit code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING

import click
from rich.console import Console

from memcon_platform.cli.failures import failure_lines
from memcon_platform.cli.progress import Progress
from memcon_platform.cli.tracked import say, tracked
from memcon_platform.config.plan import RunPlan

if TYPE_CHECKING:
    from memcon_platform.sweep.publication import Publication
    from memcon_platform.sweep.runner import RunEnd

__all__ = ["place_of", "run_plan"]

_FAILED = 1
_INTERRUPTED = 130


def place_of(plan: RunPlan) -> str:
    """Where the run of `plan` lives, for people."""
    return str(plan.run_dir) if plan.uri is None else f"{plan.uri} (working copy {plan.run_dir})"


def run_plan(
    plan: RunPlan, *, local: bool, console: Console, then: Callable[[RunPlan, RunEnd], None] | None = None
) -> int:
    """Run what is left of `plan`, then `then` with the plan as the run folder holds it; returns the exit code.

    `then` comes before tracking ends, so that what it writes is tracked, and not after a stop. Streams that failed are
    told on stderr, a line for each reason; so is what is not in the run's object store yet.

    Raises:
        MemconError: as in `launch`.
    """
    from memcon_platform.sweep.interrupts import Interrupted
    from memcon_platform.sweep.launch import Launch, launch, open_local
    from memcon_platform.sweep.publication import published

    if local:
        open_pool = open_local
    else:
        from memcon_platform.sweep.ray_cluster import open_ray as open_pool
    with published(plan, lambda text: say(console, text, "yellow")) as publication, tracked(plan, console) as observe:
        watch = observe if publication is None else publication.watching(observe)
        try:
            # Ray prints the death of a worker on stdout, which belongs to the JSON when progress goes to stderr.
            with redirect_stdout(sys.stderr) if console.stderr else nullcontext():
                plan, end = asyncio.run(launch(plan, Launch(open_pool=open_pool, observe=watch, console=console)))
        except Interrupted:
            click.echo("stopped at once; the same command again repeats the open tasks and goes on", err=True)
            return _INTERRUPTED
        try:
            if then is not None and not end.stopped:
                then(plan, end)
            for line in failure_lines(end.failures.items()):
                click.echo(f"error: {line}", err=True)
            unpublished = "" if publication is None else _published(publication, end, console)
        except KeyboardInterrupt:
            if publication is None:
                raise
            click.echo(publication.interrupted(), err=True)
            return _INTERRUPTED
    return _code(end, unpublished)


def _published(publication: Publication, end: RunEnd, console: Console) -> str:
    if end.stopped:
        # Whoever has asked for an end may not want to wait for a store that is silent.
        say(console, f"publishing to {publication.uri}; Ctrl-C leaves that to the same command again", "dim")
    return publication.finish(Progress())


def _code(end: RunEnd, unpublished: str) -> int:
    """The exit code; tells what there is to tell of it."""
    if unpublished:
        click.echo(f"error: {' '.join(unpublished.split())}", err=True)
        return _FAILED
    if end.stopped:
        click.echo("stopped; the same command again goes on", err=True)
        return _INTERRUPTED
    return _FAILED if end.failures else 0
