"""Who owns a journal now: told only when that process is certainly alive and another one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memcon.learning.events import Created
from memcon_policy_server.journal.live_owner import live_owner
from memcon_policy_server.journal.owner_process import this_process
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from support.journals import altered, written
from support.shards import SETTINGS

_OWNER = """
import sys
from pathlib import Path
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
journal = SqliteJournal(Path(sys.argv[1]), shard=0, num_shards=1)
journal.claim()
print("claimed", flush=True)
sys.stdin.readline()
journal.close()
print("closed", flush=True)
sys.stdin.read()
"""


@contextmanager
def owning(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that owns the journal; a line to it lets it close the journal, and it lives on."""
    command = [sys.executable, "-c", _OWNER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert said(owner) == "claimed"
        yield owner
        owner.kill()


def said(owner: subprocess.Popen[str]) -> str:
    assert owner.stdout is not None
    return owner.stdout.readline().strip()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "shard-0.sqlite", [[Created(table="table", settings=SETTINGS)]])


def test_a_live_owner_is_named_and_one_that_was_killed_is_not(path: Path) -> None:
    with owning(path) as owner:
        assert live_owner(path) == owner.pid

        owner.kill()
        # Before anybody has asked for its exit code, and after.
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        assert live_owner(path) is None
        owner.wait()
        assert live_owner(path) is None


def test_a_process_that_closed_its_journal_lives_on_and_owns_nothing(path: Path) -> None:
    with owning(path) as owner:
        assert owner.stdin is not None
        owner.stdin.write("close\n")
        owner.stdin.flush()
        assert said(owner) == "closed"

        assert owner.poll() is None
        assert live_owner(path) is None


def test_a_stale_owner_that_closes_takes_no_claim_back(path: Path) -> None:
    stale = SqliteJournal(path, shard=0, num_shards=1)
    stale.claim()
    with owning(path) as owner:
        stale.close()

        assert live_owner(path) == owner.pid


def test_this_process_is_not_in_its_own_way(path: Path) -> None:
    assert live_owner(path) is None


@pytest.mark.parametrize("owner", ["", "no process", f"{os.getppid()}:", f"{os.getppid()}:1"])
def test_what_is_not_certain_is_nobody(path: Path, owner: str) -> None:
    assert this_process() != owner
    altered(path, f"UPDATE meta SET owner = '{owner}'")

    assert live_owner(path) is None
