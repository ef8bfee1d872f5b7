"""Who owns a journal now: told only when that process is certainly alive and another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memcon.learning.events import Created
from memcon_policy_server.journal.live_owner import live_owner
from memcon_policy_server.journal.owner_process import this_process
from support.journals import altered, written
from support.shards import SETTINGS

_OWNER = """
import sys
from pathlib import Path
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
journal = SqliteJournal(Path(sys.argv[1]), shard=0, num_shards=1)
journal.claim()
print("claimed", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "shard-0.sqlite", [[Created(table="table", settings=SETTINGS)]])


def test_a_live_owner_is_named_and_one_that_was_killed_is_not(path: Path) -> None:
    command = [sys.executable, "-c", _OWNER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "claimed\n"

        assert live_owner(path) == owner.pid

        owner.kill()
        # Before anybody has asked for its exit code, and after.
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        assert live_owner(path) is None
        owner.wait()
        assert live_owner(path) is None


def test_this_process_is_not_in_its_own_way(path: Path) -> None:
    assert live_owner(path) is None


@pytest.mark.parametrize("owner", ["", "no process", f"{os.getppid()}:", f"{os.getppid()}:1"])
def test_what_is_not_certain_is_nobody(path: Path, owner: str) -> None:
    assert this_process() != owner
    altered(path, f"UPDATE meta SET owner = '{owner}'")

    assert live_owner(path) is None
