"""The argument that most commands share: a run, by its folder or by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from memcon.errors import NotFoundError, nearest

__all__ = ["json_option", "run_argument", "run_folder"]

_PLAN = "plan.json"
_ROOT = Path("runs")

F = TypeVar("F", bound=Callable[..., Any])


def run_folder(value: str) -> Path:
    """The folder that `value` names; a bare name stands for `runs/NAME` when there is no such folder here.

    Raises:
        NotFoundError: there is none; lists the runs beside it.
    """
    path = Path(value)
    if path.is_dir():
        return path
    bare = len(path.parts) == 1
    if bare and (_ROOT / path / _PLAN).is_file():
        return _ROOT / path
    root = _ROOT if bare else path.parent
    runs = sorted(plan.parent.name for plan in root.glob(f"*/{_PLAN}")) if root.is_dir() else []
    guess = nearest(path.name, runs)
    beside = f"runs in {root}: {', '.join(runs)}" if runs else f"{root} holds no run"
    hint = f" (did you mean '{root / guess}'?)" if guess else ""
    raise NotFoundError(
        f"no run folder {path}; {beside}{hint}; give a run's folder, or start a run with `memcon sweep CONFIG`"
    )


def run_argument(name: str) -> Callable[[F], F]:
    """The argument `name`: the folder of a run."""
    return click.argument(name, type=run_folder, metavar=name.upper())


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
