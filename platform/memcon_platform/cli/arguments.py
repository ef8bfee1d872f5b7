"""The arguments that several commands share: a run or a policy, by its folder, its name or its place in a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from memcon.errors import ConfigError, NotFoundError
from memcon_platform.cli.progress import Progress
from memcon_platform.config.plan_file import has_plan, no_run
from memcon_platform.objects import is_uri
from memcon_platform.run_store.reader_copy import fetched_run, scratch_copy
from memcon_policy_server.sharding import journal_path

__all__ = [
    "is_of_policy",
    "json_option",
    "policy_argument",
    "policy_place",
    "policy_scratch",
    "refuse_stored",
    "run_argument",
    "run_folder",
    "run_or_policy_argument",
    "server_token",
]

_ROOT = Path("runs")
_SERVED_ROOT = Path("serve")
_POLICY = "policy"

F = TypeVar("F", bound=Callable[..., Any])


def run_folder(value: str) -> Path:
    """The run that `value` names: a run's folder, the bare name of a run in `runs/`, or a URI, which is fetched.

    Raises:
        NotFoundError: there is none; lists the runs beside it.
        MemconError: its object store cannot be used.
    """
    if is_uri(value):
        return fetched_run(value, Progress())
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
    """The argument `name`: a run, as `run_folder` finds it."""
    return click.argument(name, type=run_folder, metavar=name.upper())


def policy_place(value: str) -> Path:
    """The policy folder that `value` names: itself, that of a run or of its name or URI, or a served policy's name.

    Raises:
        NotFoundError: there is none.
        MemconError: its object store cannot be used.
    """
    if is_uri(value):
        return _journals(value, fetched_run(value, Progress(), select=is_of_policy) / _POLICY)
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


def is_of_policy(key: str) -> bool:
    """The file belongs to the policy of a run."""
    return key.startswith(f"{_POLICY}/")


def _journals(value: str, folder: Path) -> Path:
    if not journal_path(folder, 0).exists():
        raise NotFoundError(
            f"{value} has no policy journal yet: journals are published when a launch ends, and only of runs whose "
            "policies learn or are counted"
        )
    return folder


@contextmanager
def policy_scratch(value: str) -> Iterator[Path]:
    """As `policy_place`, for what writes beside the journals: of a URI a copy that is gone when the block ends.

    Raises:
        MemconError: as `policy_place`.
    """
    if not is_uri(value):
        yield policy_place(value)
        return
    with scratch_copy(value, Progress(), select=is_of_policy) as folder:
        yield _journals(value, folder / _POLICY)


def refuse_stored(value: str) -> None:
    """Refuse to change the journals of a run where they are but a copy.

    Raises:
        ConfigError: `value` is the URI of a run.
    """
    if is_uri(value):
        raise ConfigError(
            f"{value}: journals are changed in the run's working copy: give its folder, then run the same "
            "`memcon sweep` again, which publishes what has changed"
        )


def _policy_to_change(value: str) -> Path:
    refuse_stored(value)
    return policy_place(value)


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
    """The argument `name`: a folder with the journals of a policy that are to be changed, or what has one."""
    return click.argument(name, type=_policy_to_change, metavar=name.upper())


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")


def server_token(file: Path | None) -> str | None:
    """The server's token: what stands in `file`, else in the environment; None = there is none.

    Raises:
        MemconError: the file cannot be read, or holds no token.
    """
    from memcon_platform.policies.places import read_token
    from memcon_policy_server.client.live import TOKEN_VARIABLE

    return read_token(file) if file is not None else os.environ.get(TOKEN_VARIABLE) or None  # noqa: TID251 - a shell
