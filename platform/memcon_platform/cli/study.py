"""`memcon study`: what there is to learn in a config, before and beside its sweep."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console

from memcon import codec
from memcon_platform.cli import sweep
from memcon_platform.cli.arguments import json_option
from memcon_platform.cli.launched import place_of, run_plan
from memcon_platform.cli.tracked import say
from memcon_platform.config import load
from memcon_platform.study.matrix_plan import Study, study_of

if TYPE_CHECKING:
    from memcon_platform.study.findings import ArenaFindings

__all__ = ["command"]

_SCHEMA_VERSION = 1
_EPILOG = """\b
Examples:
  memcon study run configs/studies/headroom.yaml
  memcon study headroom configs/studies/pooling.yaml study.streams=16 study.groups=[1,16]
"""

F = TypeVar("F", bound=Callable[..., Any])


def _config_options(function: F) -> F:
    """CONFIG, KEY=VALUE, --local and --limit, as in `memcon sweep`."""
    for option in (
        click.option("--limit", type=int, metavar="N", help="First N tasks of each benchmark; part of the settings."),
        click.option("--local", is_flag=True, help="Run in this process, without Ray; same results in exact settings."),
        click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]..."),
        click.argument("config", type=click.Path(path_type=Path)),
    ):
        function = option(function)
    return function


@click.group(name="study", short_help="What there is to learn, and what a rule would make of it.", epilog=_EPILOG)
def command() -> None:
    """What there is to learn in a config, and what a rule would make of it."""


@command.command(name="headroom", short_help="Every arm on every task: is there anything to learn?")
@_config_options
@json_option
def headroom_command(config: Path, overrides: tuple[str, ...], *, local: bool, limit: int | None, as_json: bool) -> int:
    """Play every arm on every task of CONFIG's benchmarks and memories, and replay its learned policies on the result.

    The outcome matrices are a run of their own, RUN-matrix, of study.streams streams for each seed; the same command
    again goes on with it and prints the same numbers.
    """
    return _headroom(study_of(config, overrides, limit), local=local, as_json=as_json)


@command.command(name="run", short_help="A whole study: headroom where CONFIG asks for it, then the sweep.")
@_config_options
@click.pass_context
def run_command(
    context: click.Context, config: Path, overrides: tuple[str, ...], *, local: bool, limit: int | None
) -> int:
    """`memcon study headroom CONFIG` if CONFIG gives study.streams, then `memcon sweep CONFIG`."""
    if "streams" not in (load(config, overrides, limit).resolved.get("study") or {}):
        say(Console(), "the config gives no study.streams: no outcome matrix, the sweep alone")
    else:
        code = _headroom(study_of(config, overrides, limit), local=local, as_json=False)
        if code:
            return code
    code = context.invoke(
        sweep.command, config=config, overrides=overrides, only_plan=False, local=local, limit=limit, as_json=False
    )
    return int(code)


def _headroom(study: Study, *, local: bool, as_json: bool) -> int:
    console = Console(stderr=as_json)
    cells = len(study.plan.cells)
    say(console, f"outcome matrix {study.plan.run}: {cells} cells in {place_of(study.plan)}")
    code = run_plan(study.plan, local=local, console=console)
    if code:
        return code
    found = _findings(study)
    if as_json:
        record = {"schema_version": _SCHEMA_VERSION, "run": study.plan.run, "matrices": codec.encode(found)}
        click.echo(json.dumps(record, indent=2))
        return 0
    from memcon_platform.study.terminal import render

    for arena in found:
        Console().print("", render(arena))
    return 0


def _findings(study: Study) -> Sequence[ArenaFindings]:
    from memcon_platform.study.findings import findings
    from memcon_platform.study.reading import read_matrix

    found = []
    for arena in study.arenas:
        matrix = read_matrix(study.plan.run_dir, arena.cells)
        found.append(findings(matrix, arena, study.groups, arena.cells[0].reward))
    return found
