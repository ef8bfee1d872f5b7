"""A run of an older memcon, killed with `kill -9`, goes on under this one after `memcon data migrate`.

`tests/golden/run_of_policy_schema_1.tar.gz` was written by memcon at commit 1909d72: `configs/smoke.yaml` with three
tasks, killed between the end of the second task and the delivery of its outcomes. So its journal has schema version 1
and 14 events, three of its decisions are open, and their outcomes wait in the stream's outbox with tokens of form 1.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from memcon_platform.cli.tracked import tracked
from memcon_platform.config import load
from memcon_platform.sweep.launch import Launch, launch, open_local
from memcon_policy_server.journal.migration import migrate
from memcon_policy_server.sharding import journal_path
from support.journals import altered
from support.shell import SMALL, SMOKE, Printed, memcon, the_error

OLD_RUN = Path(__file__).resolve().parents[1] / "golden" / "run_of_policy_schema_1.tar.gz"
NUM_EVENTS, WAITING = 14, 3


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with tarfile.open(OLD_RUN) as packed:
        packed.extractall(tmp_path / "runs", filter="data")
    return tmp_path / "runs" / "smoke"


def go_on(run: Path) -> Printed:
    return memcon("sweep", run / "config.yaml", f"root={run.parent}", "--local")


def test_it_ends_as_a_run_that_nobody_disturbed(run: Path) -> None:
    migrated = memcon("data", "migrate", run, "--json")
    assert json.loads(migrated.out) == {"schema_version": 2, "migrated": [NUM_EVENTS]}, migrated.err

    resumed = go_on(run)

    assert resumed.code == 0, resumed.err
    # The outcomes of the killed launch were told with their old tokens: no decision was taken again.
    verified = memcon("replay", "verify", run)
    assert f"{NUM_EVENTS + WAITING} events, 1 tables: equal to the served tables, bit for bit" in verified.out
    fresh = _undisturbed(run.parent)
    assert memcon("data", "compare", run, fresh).out == "equal\n"


def test_it_is_refused_before_and_a_flipped_byte_of_it_is_named(run: Path) -> None:
    assert f"run `memcon data migrate {run / 'policy'}`" in _last_line(go_on(run))
    # What the kill left in the write-ahead log is read too.
    altered(journal_path(run / "policy", 0), "UPDATE events SET body = body || ' ' WHERE seq = 5")
    assert "event 5 (" in the_error(memcon("data", "migrate", run))


def test_so_is_one_in_the_migrated_journal(run: Path) -> None:
    journal = journal_path(run / "policy", 0)
    migrate(journal)
    _flip_a_bit(journal)

    for told in (memcon("data", "export", run), go_on(run)):
        assert told.code == 1
        assert f"events 1 to {NUM_EVENTS}" in _last_line(told)


def test_a_journal_of_a_newer_memcon_is_refused(run: Path) -> None:
    journal = journal_path(run / "policy", 0)
    migrate(journal)
    altered(journal, "UPDATE meta SET schema_version = 3")
    before = journal.read_bytes()

    for told in (memcon("data", "migrate", run), go_on(run)):
        assert told.code == 1
        assert "schema version 3" in _last_line(told)
    assert journal.read_bytes() == before


def _undisturbed(root: Path) -> Path:
    plan = load(SMOKE, [*SMALL, "run=fresh", f"root={root}"])
    console = Console(quiet=True)
    with tracked(plan, console) as observe:
        written, end = asyncio.run(launch(plan, Launch(open_pool=open_local, observe=observe, console=console)))
    assert not end.stopped
    return written.run_dir


def _last_line(printed: Printed) -> str:
    return printed.err.splitlines()[-1]


def _flip_a_bit(journal: Path) -> None:
    with closing(sqlite3.connect(journal)) as connection:
        ((body,),) = connection.execute("SELECT body FROM commits").fetchall()
        middle = len(body) // 2
        flipped = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        connection.execute("UPDATE commits SET body = ?", (flipped,))
        connection.commit()
