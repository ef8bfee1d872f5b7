"""`memcon serve CONFIG`: serve a policy to live agents until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from memcon_platform.cli.arguments import json_option
from memcon_platform.config.serving import ServingPlan, load_serving

__all__ = ["command"]

_INTERRUPTED = 130
_LOOPBACK = ("127.", "::1", "localhost")
_EPILOG = """\b
Examples:
  memcon serve configs/serve.yaml
  memcon serve configs/serve.yaml port=8080 shards=2 tables.mine=pooled
  curl -H "authorization: Bearer $(cat serve/agents/token)" http://127.0.0.1:8000/v1/tables
"""


@click.command(name="serve", short_help="Serve a policy to live agents over HTTP.", epilog=_EPILOG)
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@json_option
def command(config: Path, overrides: tuple[str, ...], *, as_json: bool) -> int:
    """Serve the tables of CONFIG, a YAML file, until Ctrl-C or SIGTERM. The same command again goes on.

    KEY=VALUE lays a setting over the file; VALUE is YAML. With --json one line of JSON on stdout says where the server
    is, once it answers; progress goes to stderr. SIGHUP replaces owners and gateways.
    """
    plan = load_serving(config, overrides)
    return asyncio.run(_serve(plan, as_json=as_json))


async def _serve(plan: ServingPlan, *, as_json: bool) -> int:
    from memcon_platform.serving import Interrupted, serving

    stdout = sys.stdout

    def say(line: str) -> None:
        # With JSON, stdout is for the one line that a program waits for.
        click.echo(line, file=sys.stderr if as_json else stdout)

    try:
        # Ray prints a paragraph for each worker that dies. In a pipe that nobody reads any more it would get stuck, and
        # then never stop.
        with redirect_stdout(sys.stderr):
            async with serving(plan, say) as served:
                place = served.place()
                if as_json:
                    click.echo(json.dumps(place), file=stdout)
                else:
                    _tell(say, plan, place)
                await served.until_stopped()
    except Interrupted:
        click.echo("stopped before it answered", err=True)
        return _INTERRUPTED
    say(f"stopped; the tables are in {plan.directory / 'served'}")
    return 0


def _tell(say: Callable[[str], None], plan: ServingPlan, place: Mapping[str, Any]) -> None:
    say(f"serving {plan.name} at {place['url']}")
    say(f"  token   {place['token_path']} (header: authorization: Bearer ...)")
    say(f"  tables  {', '.join(place['tables']) or 'none yet'}")
    say(f"  shards  {plan.shards}, in {plan.directory}")
    if not plan.host.startswith(_LOOPBACK):
        say(f"  host {plan.host} is no loopback: token and data travel in clear, put TLS in front")
    say("Ctrl-C stops")
