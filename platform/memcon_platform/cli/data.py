"""`memcon data`: is a run's Parquet whole, are two runs equal; and the upkeep of a policy's journals."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from memcon_platform.cli.arguments import is_of_policy, json_option, policy_argument, policy_place, run_argument
from memcon_platform.cli.progress import Progress
from memcon_platform.objects import is_uri, open_objects
from memcon_platform.run_store.lock import break_lock
from memcon_platform.run_store.places import run_in_store
from memcon_platform.run_store.reader_copy import changing
from memcon_platform.trajectory import check, compare
from memcon_platform.trajectory.events import export_events
from memcon_policy_server.journal.compaction import compact
from memcon_policy_server.journal.migration import migrate
from memcon_policy_server.journal.schema import SCHEMA_VERSION
from memcon_policy_server.sharding import journal_path, shards_in

__all__ = ["command"]

_DIFFERENT = 1


@click.group(name="data", short_help="Check or compare runs; migrate, export or compact journals.")
def command() -> None:
    """Check and compare the Parquet tables of runs; migrate, export and compact the journals of policies."""


@command.command(name="check", short_help="Damaged files, gaps and doubles of tasks.")
@run_argument("run")
@json_option
def check_command(run: Path, *, as_json: bool) -> int:
    """Look for damaged files, and gaps and doubles of tasks, in RUN: a run's folder, its name in runs/, or its URI."""
    found = check(run)
    if as_json:
        click.echo(json.dumps({**asdict(found), "ok": found.ok}, indent=2))
        return 0 if found.ok else _DIFFERENT
    for note in found.notes:
        click.echo(f"note: {note}")
    for problem in found.problems:
        click.echo(f"error: {problem}", err=True)
    click.echo(f"run {found.run}: {found.found}/{found.planned} tasks, {'ok' if found.ok else 'NOT ok'}")
    return 0 if found.ok else _DIFFERENT


@command.command(name="compare", short_help="Are two runs equal, byte for byte?")
@run_argument("first")
@run_argument("second")
@json_option
def compare_command(first: Path, second: Path, *, as_json: bool) -> int:
    """Compare all columns of two runs, but for those that name the try, the owner's view and the clock.

    FIRST and SECOND are run folders, names in runs/, or URIs. docs/architecture.md lists the columns that are left out.
    """
    found = compare(first, second)
    if as_json:
        click.echo(json.dumps({"equal": not found, "differences": [str(item) for item in found]}, indent=2))
    else:
        for difference in found:
            click.echo(str(difference))
        click.echo("equal" if not found else f"NOT equal: {len(found)} differences")
    return _DIFFERENT if found else 0


@command.command(name="migrate", short_help="Bring a policy's journals to this memcon's version.")
@policy_argument("policy")
@json_option
def migrate_command(policy: Path, *, as_json: bool) -> None:
    """Bring the journals of POLICY to the schema version that this memcon reads, in place, each whole or not at all.

    POLICY is a run or a served policy: its folder, or its name in runs/ or serve/. An owner of the older memcon that
    still runs can commit no more.
    """
    found = {shard: migrate(journal_path(policy, shard)) for shard in range(shards_in(policy))}
    if as_json:
        click.echo(json.dumps({"schema_version": SCHEMA_VERSION, "migrated": list(found.values())}, indent=2))
        return
    for shard, events in found.items():
        done = f"has schema version {SCHEMA_VERSION} already" if events is None else f"{events} events migrated"
        click.echo(f"{journal_path(policy, shard)}: {done}")


@command.command(name="export", short_help="Write a policy's new events to Parquet.")
@click.argument("policy")
@json_option
def export_command(policy: str, *, as_json: bool) -> None:
    """Write the events of POLICY that are in no export yet to Parquet, into the folder `events` beside its journals.

    POLICY is a run or a served policy: its folder, or its name in runs/ or serve/, or the URI of a run that nobody
    drives. A folder may be served meanwhile.
    """
    if is_uri(policy):
        with changing(policy, Progress(), select=is_of_policy) as folder:
            exported = export_events(folder / "policy", _events_folder(folder / "policy"))
        place = f"{run_in_store(policy)}/policy/events"
    else:
        folder = policy_place(policy)
        exported = export_events(folder, _events_folder(folder))
        place = str(_events_folder(folder))
    click.echo(json.dumps({"exported": exported}, indent=2) if as_json else f"{exported} events exported to {place}")


@command.command(name="compact", short_help="Export a policy's events and drop them from its journals.")
@policy_argument("policy")
@json_option
def compact_command(policy: Path, *, as_json: bool) -> None:
    """Export the events of POLICY to Parquet, then drop them from its journals; a checked snapshot stands for them.

    POLICY is a run or a served policy: its folder, or its name in runs/ or serve/. It may be served meanwhile. Keep the
    exported Parquet: it alone has the events then.
    """
    exported = export_events(policy, _events_folder(policy))
    num_shards = shards_in(policy)
    found = [compact(policy, shard, num_shards) for shard in range(num_shards)]
    if as_json:
        click.echo(json.dumps({"exported": exported, "shards": [asdict(item) for item in found]}, indent=2))
        return
    click.echo(f"{exported} events exported to {_events_folder(policy)}")
    for item in found:
        click.echo(f"{journal_path(policy, item.shard)}: {item.dropped} events dropped, {item.kept} kept")


@command.command(name="unlock", short_help="Free a run in an object store of a driver that is dead.")
@click.argument("uri")
@json_option
def unlock_command(uri: str, *, as_json: bool) -> None:
    """Free the run at URI of its driver, so that another machine can go on with it from what was published.

    Only for a driver that is dead and whose working copy is lost: what it had not published is played again.
    """
    place = run_in_store(uri)
    with open_objects(place) as store:
        found = break_lock(store)
    if as_json:
        click.echo(json.dumps({"uri": place, "driver": None if found is None else asdict(found)}, indent=2))
    elif found is None:
        click.echo(f"run {place} has no driver: nothing to free")
    else:
        click.echo(f"run {place} is free; it was driven by {found.told}")


def _events_folder(policy: Path) -> Path:
    return policy / "events"
