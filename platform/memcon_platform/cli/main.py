"""The group `memcon` and what all its commands share: errors as one line on stderr, exit code other than 0."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from io import TextIOWrapper

import click

from memcon.errors import MemconError, UnknownNameError

__all__ = ["main"]

# command -> module that holds it; a command's libraries are imported when it is called.
_COMMANDS = {
    "bench": "memcon_platform.cli.bench",
    "benchmarks": "memcon_platform.cli.benchmarks",
    "data": "memcon_platform.cli.data",
    "plugins": "memcon_platform.cli.plugins",
    "policy": "memcon_platform.cli.policy",
    "replay": "memcon_platform.cli.replay",
    "report": "memcon_platform.cli.report",
    "serve": "memcon_platform.cli.serve",
    "status": "memcon_platform.cli.status",
    "study": "memcon_platform.cli.study",
    "sweep": "memcon_platform.cli.sweep",
    "track": "memcon_platform.cli.track",
}
_FAILED = 1
_INTERRUPTED = 130
_EPILOG = """\b
Start here:
  memcon sweep configs/demo.yaml --plan    what the demo would run
  memcon sweep configs/demo.yaml           run it; the same command again goes on
  memcon report demo                       the table and the HTML report
"""


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        return getattr(import_module(module), "command", None) if module else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            ctx.fail(str(UnknownNameError("command", name, _COMMANDS)))
        return super().resolve_command(ctx, args)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.version_option(package_name="memcon")
def group() -> None:
    """Learned memory control of LLM agents: run sweeps, and report, verify and track what they did."""


def main() -> None:
    """Run the command line; every deliberate error is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 shows "?", which is better than to end a long sweep in an error.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(_run(lambda: group.main(standalone_mode=False)))


def _run(call: Callable[[], object]) -> int:
    try:
        code = call()
    except MemconError as error:
        click.echo(f"error: {' '.join(str(error).split())}", err=True)
        return _FAILED
    except OSError as error:
        # Storage has errors of its own: this is the output, or a place that no command looks after.
        place = f" {error.filename}" if error.filename else " what was printed"
        click.echo(
            f"error: cannot read or write{place}: {error.strerror or error}; check space and permissions", err=True
        )
        return _FAILED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        click.echo(f"error: {_usage(error)}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return _INTERRUPTED
    return code if isinstance(code, int) else 0


def _usage(error: click.ClickException) -> str:
    """What is wrong with the command line, and where its help is."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message}; see `{context.command_path} --help`" if context else message
