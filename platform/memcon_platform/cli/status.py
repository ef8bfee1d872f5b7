"""`memcon status RUN`: how far a run is."""

from __future__ import annotations

import json
from typing import Any

import click

from memcon import codec
from memcon.errors import NotFoundError
from memcon_platform.cli.arguments import json_option, run_folder
from memcon_platform.cli.failures import failure_lines
from memcon_platform.config import read_plan
from memcon_platform.mirror import MANIFEST_KEY
from memcon_platform.objects import ObjectStore, is_uri, open_objects
from memcon_platform.run_store.lock import Driver, driver_of
from memcon_platform.run_store.places import run_in_store
from memcon_platform.sweep.overview import Overview, overview, statuses_by_blocks

__all__ = ["command"]


@click.command(name="status", short_help="How far a run is: done, failed and pending tasks.")
@click.argument("run")
@json_option
def command(run: str, *, as_json: bool) -> None:
    """Planned, done, failed, unevaluable and pending tasks of RUN: a run's folder, its name in runs/, or its URI."""
    # Asked before the fetch: a driver that ends meanwhile has published what is fetched.
    place, driver = _place(run) if is_uri(run) else ({}, None)
    plan = read_plan(run_folder(run))
    # While a run is driven its store has blocks, and its streams as they were when the last launch ended.
    found = overview(plan, statuses_by_blocks(plan) if driver else None)
    if as_json:
        click.echo(json.dumps({**found.record(), **place}, indent=2))
        return
    if driver is not None:
        click.echo(
            f"as of the last publish, {place['published_at']}, whole blocks of tasks only; driven by {driver.told}"
        )
    _print(found)


def _place(value: str) -> tuple[dict[str, Any], Driver | None]:
    """What the record says of a run in an object store besides, and who drives it."""
    uri = run_in_store(value)
    with open_objects(uri) as store:
        driver, published_at = driver_of(store), _published_at(store)
    return {"uri": uri, "published_at": published_at, "driver": driver and codec.encode(driver)}, driver


def _published_at(store: ObjectStore) -> str | None:
    try:
        modified = store.read(MANIFEST_KEY).modified
    except NotFoundError:
        # Told by whoever fetches the run.
        return None
    return None if modified is None else modified.isoformat(timespec="seconds")


def _print(found: Overview) -> None:
    click.echo(f"run {found.run}: {found.done}/{found.planned} tasks done, {found.pending} pending")
    click.echo(f"unevaluable tasks: {found.unevaluable}; failed streams: {len(found.failed)}")
    for line in failure_lines(((failure.label, failure.stream), failure.message) for failure in found.failed):
        click.echo(f"  {line}")
    if found.pending or found.failed:
        click.echo("the same `memcon sweep` command again goes on from here")
