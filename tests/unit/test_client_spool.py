"""The spool keeps outcomes over a death, delivers in order, and keeps what was refused with its reason."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from memcon.errors import ConflictError, DamagedFileError, SchemaVersionError, StorageError
from memcon.policy_types import CancelRequest, OutcomeRequest
from memcon_policy_server.client.spool import Spool


def outcome(number: int, reward: float = 1.0) -> OutcomeRequest:
    return OutcomeRequest(
        decision_id=f"decision-{number}", token=f"token-{number}", reward=reward, position=0, num_decisions=1
    )


def test_what_was_added_is_there_in_order_after_the_process_has_gone(tmp_path: Path) -> None:
    path = tmp_path / "agent" / "spool.sqlite"
    # Killed right after `add` returned: nothing was closed.
    program = (
        "import os, pathlib, sys; from memcon_policy_server.client.spool import Spool;"
        "from memcon.policy_types import CancelRequest, OutcomeRequest;"
        "spool = Spool(pathlib.Path(sys.argv[1]));"
        "spool.add([OutcomeRequest(decision_id='decision-1', token='token-1', reward=0.1 + 0.2, position=2,"
        " num_decisions=5, cost=0.25)]);"
        "spool.add([CancelRequest(decision_id='decision-2', token='token-2')]);"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)

    spool = Spool(path)

    assert [item.message for item in spool.waiting(0, 10)] == [
        OutcomeRequest(
            decision_id="decision-1", token="token-1", reward=0.1 + 0.2, position=2, num_decisions=5, cost=0.25
        ),
        CancelRequest(decision_id="decision-2", token="token-2"),
    ]
    assert len(spool) == 2
    spool.close()


def test_delivered_messages_go_and_refused_ones_stay_with_their_reason(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite")
    spool.add([outcome(n) for n in range(4)])
    first, second, third, _ = spool.waiting(0, 10)

    spool.settle([first, third], [(second, ConflictError("already credited with 0.5"))])

    assert [item.message.decision_id for item in spool.waiting(0, 10)] == ["decision-3"]
    spool.close()
    again = Spool(tmp_path / "spool.sqlite")
    [refusal] = again.refused()
    assert (refusal.message, refusal.error) == (outcome(1), "ConflictError")
    assert refusal.reason == "already credited with 0.5"
    again.close()


def test_a_round_goes_on_behind_what_could_not_be_delivered(tmp_path: Path) -> None:
    spool = Spool(None)
    spool.add([outcome(n) for n in range(5)])

    first = spool.waiting(0, 2)
    second = spool.waiting(first[-1].seq, 2)

    assert [item.message.decision_id for item in (*first, *second)] == [f"decision-{n}" for n in range(4)]
    spool.close()


def test_a_place_is_never_given_twice(tmp_path: Path) -> None:
    # A round that began before must not skip what was added after everything had gone.
    spool = Spool(tmp_path / "spool.sqlite")
    spool.add([outcome(1)])
    [item] = spool.waiting(0, 10)
    spool.settle([item], [])

    spool.add([outcome(2)])

    assert [found.message.decision_id for found in spool.waiting(item.seq, 10)] == ["decision-2"]
    spool.close()


def test_others_may_not_read_the_tokens(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    spool = Spool(path)
    spool.add([outcome(1)])

    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    spool.close()


def test_processes_may_share_a_spool(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    spools = [Spool(path) for _ in range(4)]

    def fill(place: int) -> None:
        for number in range(10):
            spools[place].add([outcome(100 * place + number)])

    threads = [threading.Thread(target=fill, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [len(spool) for spool in spools] == [40] * 4
    for spool in spools:
        spool.close()


def test_a_refusal_that_two_processes_met_is_kept_once(tmp_path: Path) -> None:
    first, second = Spool(tmp_path / "spool"), Spool(tmp_path / "spool")
    first.add([outcome(1)])
    (mine,), (theirs,) = first.waiting(0, 9), second.waiting(0, 9)

    first.settle([], [(mine, ConflictError("another reward"))])
    second.settle([], [(theirs, ConflictError("another reward"))])

    assert [refusal.message for refusal in first.refused()] == [outcome(1)]
    first.close()
    second.close()


def test_a_damaged_spool_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    path.write_bytes(b"no database at all " * 400)
    before = path.read_bytes()

    with pytest.raises(DamagedFileError, match="not a database"):
        Spool(path)

    assert path.read_bytes() == before


def test_a_row_that_is_no_message_is_named(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    spool = Spool(path)
    spool.add([outcome(1)])
    with sqlite3.connect(path) as other:
        other.execute("UPDATE waiting SET body = replace(body, 'reward', 'award')")
    other.close()

    with pytest.raises(DamagedFileError, match=r"kind 'outcome'.*award"):
        spool.waiting(0, 10)
    spool.close()


@pytest.mark.parametrize(
    ("pragma", "error", "message"),
    [
        ("user_version = 2", SchemaVersionError, "has schema version 2, this memcon reads 1"),
        ("application_id = 7", DamagedFileError, "another program's"),
    ],
)
def test_a_file_of_another_version_or_program_is_refused(
    tmp_path: Path, pragma: str, error: type[Exception], message: str
) -> None:
    path = tmp_path / "spool.sqlite"
    Spool(path).close()
    with sqlite3.connect(path) as other:
        other.execute(f"PRAGMA {pragma}")
    other.close()

    with pytest.raises(error, match=message):
        Spool(path)


def test_another_programs_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE notes (text TEXT)")
    other.close()
    before = path.read_bytes()

    with pytest.raises(DamagedFileError, match="another program's"):
        Spool(path)

    assert path.read_bytes() == before


def test_a_spool_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match="check the path, permissions and space"):
        Spool(tmp_path / "file" / "spool.sqlite")


def test_a_message_that_could_not_be_kept_is_an_error(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite")
    spool.close()

    with pytest.raises(StorageError, match="closed"):
        spool.add([outcome(1)])
