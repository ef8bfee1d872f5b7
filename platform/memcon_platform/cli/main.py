"""The group `memcon` and what all its commands share: errors as one line on stderr, exit code other than 0."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

import click

from memcon.errors import MemconError

__all__ = ["main"]

# command -> module that holds it; a command's libraries are imported when it is called.
_COMMANDS = {
    "bench": "memcon_platform.cli.bench",
    "benchmarks": "memcon_platform.cli.benchmarks",
    "data": "memcon_platform.cli.data",
    "replay": "memcon_platform.cli.replay",
    "report": "memcon_platform.cli.report",
    "status": "memcon_platform.cli.status",
    "sweep": "memcon_platform.cli.sweep",
    "track": "memcon_platform.cli.track",
}
_FAILED = 1
_INTERRUPTED = 130


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        return getattr(import_module(module), "command", None) if module else None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="memcon")
def group() -> None:
    """Learned memory control of LLM agents: sweep, serve, replay."""


def main() -> None:
    """Run the command line; every deliberate error is one line on stderr."""
    sys.exit(_run(lambda: group.main(standalone_mode=False)))


def _run(call: Callable[[], object]) -> int:
    try:
        code = call()
    except MemconError as error:
        click.echo(f"error: {' '.join(str(error).split())}", err=True)
        return _FAILED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return _INTERRUPTED
    return code if isinstance(code, int) else 0
