"""`memcon replay`: rebuild what was learned from its journal."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from memcon_platform.cli.arguments import json_option, run_or_policy_argument
from memcon_platform.replay import verify

__all__ = ["command"]

_REFUTED = 1


@click.group(name="replay", short_help="Rebuild what was learned from its journal.")
def command() -> None:
    """Rebuild tables from their journal."""


@command.command(name="verify", short_help="Does the journal give the served tables, bit for bit?")
@run_or_policy_argument("run")
@json_option
def verify_command(run: Path, *, as_json: bool) -> int:
    """Fold the journal of RUN and hold the result against the served tables and the trajectories, bit for bit.

    RUN is a run's folder, or its name in runs/; or the folder of a served policy. Nothing is written.
    """
    found = verify(run)
    if as_json:
        click.echo(json.dumps({**asdict(found), "ok": found.ok}, indent=2))
        return 0 if found.ok else _REFUTED
    for problem in found.problems:
        click.echo(f"error: {problem}", err=True)
    verdict = "equal to the served tables, bit for bit" if found.ok else "NOT what was served and recorded"
    base = f" after the {found.compacted} that were compacted away" if found.compacted else ""
    click.echo(f"{found.events} events{base}, {found.tables} tables: {verdict}")
    return 0 if found.ok else _REFUTED
