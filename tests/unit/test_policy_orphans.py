"""An earlier owner that keeps the journal busy is ended by the next claim, and nobody else ever is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from memcon.errors import LockedError
from memcon_policy_server.journal import sqlite_journal as journal_module
from memcon_policy_server.journal.owner_process import end_owner, this_process
from memcon_policy_server.journal.sqlite_journal import SqliteJournal

# Claims the journal and stays inside a transaction; with "none" another process is the recorded owner.
_ORPHAN = """
import sys
from pathlib import Path
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
journal = SqliteJournal(Path(sys.argv[1]), shard=0, num_shards=1)
if sys.argv[2] == "claims":
    journal.claim()
with journal._store.writing("hang"):
    print("inside", flush=True)
    sys.stdin.read()
"""


@contextmanager
def orphan(path: Path, claims: str = "claims") -> Iterator[subprocess.Popen[str]]:
    """A process inside a transaction on the journal."""
    process = subprocess.Popen(
        [sys.executable, "-c", _ORPHAN, str(path), claims], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "inside\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "CLAIM_PATIENCE_S", 0.02)


@pytest.mark.fault
@pytest.mark.parametrize("stopped", [False, True])
def test_an_orphan_that_keeps_the_file_busy_is_ended(tmp_path: Path, *, stopped: bool) -> None:
    path = tmp_path / "shard-0.sqlite"
    with orphan(path) as process, closing(SqliteJournal(path, shard=0, num_shards=1)) as journal:
        if stopped:
            process.send_signal(signal.SIGSTOP)
        assert journal.claim() == 2
        assert process.wait(timeout=10) == -signal.SIGKILL


@pytest.mark.fault
def test_a_process_that_is_not_the_recorded_owner_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "shard-0.sqlite"
    with closing(SqliteJournal(path, shard=0, num_shards=1)) as journal:
        # The recorded owner is this process, which a claim must not end either.
        assert journal.claim() == 1
        with orphan(path, "none") as process:
            with pytest.raises(LockedError, match="another process is writing it"):
                journal.claim()
            assert process.poll() is None


@pytest.mark.fault
def test_only_the_very_process_is_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        start = this_process().partition(":")[2]
        for owner in (f"{process.pid}:{start}0", f"{process.pid}:", f"{process.pid}", "", "x:1", f"-{process.pid}:1"):
            assert not end_owner(owner)
        assert process.poll() is None


def test_a_process_never_ends_itself_nor_one_that_is_gone() -> None:
    pid, _, start = this_process().partition(":")
    assert int(pid) == os.getpid()
    assert int(start) > 0
    assert not end_owner(this_process())
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    assert not end_owner(f"{gone.pid}:{start}")
