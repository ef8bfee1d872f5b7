"""The argument that most commands share: a run, by its folder or by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from memcon_platform.config.plan_file import has_plan, no_run

__all__ = ["json_option", "run_argument", "run_folder"]

_ROOT = Path("runs")

F = TypeVar("F", bound=Callable[..., Any])


def run_folder(value: str) -> Path:
    """The run that `value` names: a run's folder, or the bare name of a run in `runs/`.

    Raises:
        NotFoundError: there is none; lists the runs beside it.
    """
    path = Path(value)
    if has_plan(path):
        return path
    named = _ROOT / path
    if len(path.parts) == 1 and (has_plan(named) or not path.exists()):
        path = named
    if not has_plan(path):
        raise no_run(path)
    return path


def run_argument(name: str) -> Callable[[F], F]:
    """The argument `name`: the folder of a run."""
    return click.argument(name, type=run_folder, metavar=name.upper())


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
