"""`memcon policy`: the tables of a policy that is served, or whose journals lie in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memcon.errors import ConfigError, NotFoundError, UnknownNameError
from memcon_platform.cli import policy_text
from memcon_platform.cli.arguments import json_option, policy_place, policy_scratch, refuse_stored, server_token
from memcon_platform.cli.progress import Progress

if TYPE_CHECKING:
    from memcon_platform.policies.places import Place, Readable
    from memcon_platform.policies.record import TableRecord, TableSummary

__all__ = ["command"]

F = TypeVar("F", bound=Callable[..., Any])

_DIFFERENT = 1
# Keys of a table, or cells of a difference, that people are shown.
_SHOWN = 10
_EPILOG = """\b
TARGET is the URL of a running `memcon serve` (its token: --token-file, or MEMCON_TOKEN), or a policy's folder: that of
a run or of `memcon serve`, or its name in runs/ or serve/; to read, also the s3:// URI of a run. A folder may be read
while it is served.
\b
Examples:
  memcon policy list agents
  memcon policy inspect http://127.0.0.1:8000 default --token-file serve/agents/token
  memcon policy export runs/demo --to tables.json
  memcon policy import http://127.0.0.1:8000 warm tables.json --from TABLE --count-cap 50
"""

_target = click.argument("target", metavar="TARGET")
_TOKEN_FILE, _SECOND_TOKEN_FILE = "memcon.token_file", "memcon.second_token_file"


def _token_option(flag: str, place: str, help_text: str) -> Callable[[F], F]:
    """An option that `_token` finds under `place`; every command has it, so that none takes it as an argument."""

    def _keep(context: click.Context, _: click.Parameter, value: Path | None) -> None:
        context.meta[place] = value

    return click.option(
        flag,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=help_text,
        callback=_keep,
        expose_value=False,
    )


_token_file = _token_option("--token-file", _TOKEN_FILE, "Holds the server's token.")


def _top(what: str) -> Callable[[F], F]:
    return click.option(
        "--top", type=click.IntRange(1), metavar="N", help=f"{what} [default: {_SHOWN}; with --json all]"
    )


def _token(*places: str) -> str | None:
    """The token in the first file that was named under `places`, else the environment's."""
    meta = click.get_current_context().meta
    return server_token(next((meta[place] for place in places if meta[place] is not None), None))


def _open(target: str) -> Place:
    from memcon_platform.policies.places import open_place

    return open_place(target, _token(_TOKEN_FILE), find=policy_place, say=Progress())


def _readable(target: str, *token_places: str) -> Readable:
    from memcon_platform.policies.places import open_readable

    return open_readable(target, _token(*token_places), find=policy_place, say=Progress())


@click.group(name="policy", short_help="Read, move, compare and freeze what a policy has learned.", epilog=_EPILOG)
def command() -> None:
    """Read, export, import, compare and freeze the tables of a policy, served or at rest."""


@command.command(name="list", short_help="The tables of a policy.")
@_target
@_token_file
@json_option
def list_command(target: str, *, as_json: bool) -> None:
    """List the tables of TARGET: rule, keys, decisions taken, credited and open, frozen or not, and version.

    TARGET is the URL of a `memcon serve`, or a policy's folder or name.
    """
    with _open(target) as place:
        rows = [_listed(summary) for summary in place.summaries()]
    if as_json:
        click.echo(json.dumps({"target": place.name, "tables": rows}, indent=2))
    else:
        policy_text.print_tables(place.name, rows)


def _listed(summary: TableSummary) -> dict[str, Any]:
    return {
        "table": summary.table,
        "rule": summary.settings.rule,
        "keys": summary.keys,
        "taken": summary.taken,
        "credited": summary.credited,
        "open": summary.open,
        "frozen": summary.settings.frozen,
        "version": summary.version,
    }


@command.command(name="inspect", short_help="What a table has learned, key by key.")
@_target
@click.argument("table")
@click.option("--key", metavar="TEXT", help="This key, or all keys that hold TEXT.")
@_top("The keys with the most decisions.")
@_token_file
@json_option
def inspect_command(target: str, table: str, *, key: str | None, top: int | None, as_json: bool) -> None:
    """Show q, taken, credited, bonus and score of each arm of TABLE, for its keys with the most decisions.

    A bonus is infinite (-) for an arm that was never taken, and a rule may have none. TARGET is the URL of a
    `memcon serve`, or a policy's folder or name.
    """
    from memcon_platform.policies.inspection import inspected, selected_keys

    with _open(target) as place:
        listed, record = _listed(place.summary(table)), place.table(table, key)
    keys = selected_keys(record, key, top if top is not None or as_json else _SHOWN)
    found = inspected(record, keys)
    if as_json:
        click.echo(json.dumps({**listed, "numbers": found}, indent=2))
    else:
        policy_text.print_keys(listed, found)


@command.command(name="export", short_help="Tables to a file, or events to Parquet.")
@_target
@click.argument("table", required=False)
@click.option(
    "--to", type=click.Path(path_type=Path), required=True, metavar="PLACE", help="File, or --events: folder."
)
@click.option("--events", is_flag=True, help="All events as Parquet; of a policy's folder only.")
@_token_file
@json_option
def export_command(target: str, table: str | None, *, to: Path, events: bool, as_json: bool) -> None:
    """Write TABLE of TARGET, or all its tables, to a JSON file that `import` and `diff` take; or its events to Parquet.

    TARGET is the URL of a `memcon serve`, or a policy's folder or name.
    """
    if events:
        _export_events(target, table, to, as_json=as_json)
        return
    from memcon_platform.policies.table_file import write_tables

    with _open(target) as place:
        records = [place.table(table)] if table else list(place.every_table())
    if not records:
        raise NotFoundError(f"{place.name} has no table yet, so there is nothing to export")
    write_tables(to, records)
    if as_json:
        click.echo(json.dumps({"file": str(to), "tables": [record.table for record in records]}, indent=2))
        return
    for record in records:
        click.echo(f"table {record.table}: {len(record.numbers)} keys written to {to}")


def _export_events(target: str, table: str | None, to: Path, *, as_json: bool) -> None:
    from memcon_platform.policies.events_copy import copy_events
    from memcon_platform.policies.places import is_url

    if is_url(target):
        raise ConfigError("--events reads the journals: give the served folder on its machine in place of the URL")
    if table is not None:
        raise ConfigError(f"--events copies the events of all tables: leave '{table}' out")
    with policy_scratch(target) as folder:
        files, new = copy_events(folder, to, Progress())
    if as_json:
        click.echo(json.dumps({"folder": str(to), "files": files, "newly_exported": new}, indent=2))
    else:
        click.echo(f"{files} files copied to {to}; {new} events were in no export before")


@command.command(name="import", short_help="A new table from an exported one.")
@_target
@click.argument("table")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from", "source", metavar="NAME", help="Table in FILE. [default: TABLE, or the only one]")
@click.option("--count-cap", type=click.IntRange(1), metavar="N", help="Outcomes that a key and arm count as, at most.")
@click.option("--frozen", is_flag=True, help="The table decides and records, and learns nothing.")
@_token_file
@json_option
def import_command(
    target: str,
    table: str,
    file: Path,
    *,
    source: str | None,
    count_cap: int | None,
    frozen: bool,
    as_json: bool,
) -> None:
    """Let TABLE of TARGET start from a table in FILE, which `export` wrote. It is opened, or has no decision yet.

    A table of other arms, keys, discount or kind of estimator is refused. Interrupted, it may be repeated. TARGET is
    the URL of a `memcon serve`, or a policy's folder or name that nothing serves.
    """
    from memcon_platform.policies.start import new_settings, table_start
    from memcon_platform.policies.table_file import TableFile

    refuse_stored(target)
    record = _record_in(TableFile(file), source, table)
    with _open(target) as place:
        known = place.settings(table)
        settings = known or new_settings(record, frozen=frozen)
        start = table_start(record, table, settings, count_cap=count_cap)
        place.create(settings, start)
        if frozen and not settings.frozen:
            place.freeze(table, frozen=True)
    is_frozen = frozen or settings.frozen
    if as_json:
        told = {"table": table, "keys": len(start.numbers), "new": known is None, "frozen": is_frozen}
        click.echo(json.dumps({**told, "source": start.source}, indent=2))
        return
    how = "opened" if known is None else "was open"
    click.echo(f"table {table} {how}, and starts from {len(start.numbers)} keys of {start.source}")
    if is_frozen:
        click.echo("it is frozen")


def _record_in(file: Any, source: str | None, table: str) -> TableRecord:
    names = file.tables()
    name = source or (names[0] if len(names) == 1 else table)
    if name not in names:
        raise UnknownNameError(f"table in {file.name}", name, names, hint="choose one with --from")
    record: TableRecord = file.table(name)
    return record


@command.command(name="diff", short_help="How two policies' tables differ.")
@click.argument("first", metavar="FIRST")
@click.argument("second", metavar="SECOND")
@click.argument("table", required=False)
@_top("The cells that differ most.")
@_token_file
@_token_option("--second-token-file", _SECOND_TOKEN_FILE, "Holds SECOND's, if that is another one.")
@json_option
def diff_command(
    first: str,
    second: str,
    table: str | None,
    *,
    top: int | None,
    as_json: bool,
) -> int:
    """Compare settings and numbers of TABLE, or of all tables, in FIRST and SECOND; exit code 1 when they differ.

    Each is the URL of a `memcon serve`, a policy's folder or name, or a file that `export` wrote. Two that have one
    table each are compared whatever its name. What differs most in q comes first.
    """
    from memcon_platform.policies.differences import table_difference

    with _readable(first, _TOKEN_FILE) as one, _readable(second, _SECOND_TOKEN_FILE, _TOKEN_FILE) as other:
        pairs, lone = _pairs(one, other, table)
        found = {
            f"{mine} / {theirs}" if mine != theirs else mine: table_difference(one.table(mine), other.table(theirs))
            for mine, theirs in pairs
        }
    shown = top if top is not None or as_json else _SHOWN
    equal = not lone and all(difference.equal for difference in found.values())
    if as_json:
        tables = {name: policy_text.difference_record(difference, shown) for name, difference in found.items()}
        click.echo(json.dumps({"equal": equal, "only_in": lone, "tables": tables}, indent=2))
    else:
        policy_text.print_differences(found, lone, shown)
        click.echo("equal" if equal else "NOT equal")
    return 0 if equal else _DIFFERENT


def _pairs(one: Readable, other: Readable, table: str | None) -> tuple[list[tuple[str, str]], dict[str, list[str]]]:
    """Tables to compare, and those that one place alone has, by its name."""
    if table is not None:
        return [(table, table)], {}
    mine, theirs = one.tables(), other.tables()
    if len(mine) == len(theirs) == 1:
        return [(mine[0], theirs[0])], {}
    sides = ((one.name, mine, theirs), (other.name, theirs, mine))
    lone = {name: [table for table in here if table not in there] for name, here, there in sides}
    return [(name, name) for name in mine if name in theirs], {name: tables for name, tables in lone.items() if tables}


@command.command(name="freeze", short_help="Let a table learn nothing from now on, or again.")
@_target
@click.argument("table")
@click.option("--undo", is_flag=True, help="Let it learn again.")
@_token_file
@json_option
def freeze_command(target: str, table: str, *, undo: bool, as_json: bool) -> None:
    """Freeze TABLE of TARGET: it goes on to decide and to record, and its numbers stay as they are.

    TARGET is the URL of a `memcon serve`, or a policy's folder or name that nothing serves.
    """
    refuse_stored(target)
    with _open(target) as place:
        changed = place.freeze(table, frozen=not undo)
    if as_json:
        click.echo(json.dumps({"table": table, "frozen": not undo, "changed": changed}, indent=2))
        return
    state = "learns" if undo else "is frozen"
    click.echo(f"table {table} {state} {'from now on' if changed else 'already'}")
