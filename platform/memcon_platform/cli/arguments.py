"""The arguments that several commands share: a run or a policy, by its folder or by its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from memcon.errors import NotFoundError
from memcon_platform.config.plan_file import has_plan, no_run
from memcon_policy_server.sharding import journal_path

__all__ = [
    "json_option",
    "policy_argument",
    "policy_place",
    "run_argument",
    "run_folder",
    "run_or_policy_argument",
    "server_token",
]

_ROOT = Path("runs")
_SERVED_ROOT = Path("serve")

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


def policy_place(value: str) -> Path:
    """The policy folder that `value` names: itself, that of a run or of its name, or the name of a served policy.

    Raises:
        NotFoundError: there is none.
    """
    path = Path(value)
    places = [path, path / "policy"]
    if len(path.parts) == 1:
        places += [_ROOT / path / "policy", _SERVED_ROOT / path]
    for place in places:
        if journal_path(place, 0).exists():
            return place
    raise NotFoundError(
        f"{value} has no policy journal: none of {', '.join(map(str, places))} holds {journal_path(path, 0).name}; "
        "give the folder of a run or of a served policy, or its name"
    )


def _run_or_policy(value: str) -> Path:
    try:
        return run_folder(value)
    except NotFoundError:
        path = Path(value)
        if journal_path(path, 0).exists():
            return path
        raise


def run_or_policy_argument(name: str) -> Callable[[F], F]:
    """The argument `name`: the folder of a run or its name, or the folder of a served policy."""
    return click.argument(name, type=_run_or_policy, metavar=name.upper())


def policy_argument(name: str) -> Callable[[F], F]:
    """The argument `name`: a folder with the journals of a policy, or what has one."""
    return click.argument(name, type=policy_place, metavar=name.upper())


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")


def server_token(file: Path | None) -> str | None:
    """The server's token: what stands in `file`, else in the environment; None = there is none.

    Raises:
        MemconError: the file cannot be read, or holds no token.
    """
    from memcon_platform.policies.places import read_token
    from memcon_policy_server.client.live import TOKEN_VARIABLE

    return read_token(file) if file is not None else os.environ.get(TOKEN_VARIABLE) or None  # noqa: TID251 - a shell
