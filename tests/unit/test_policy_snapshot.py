"""A restart gives the same with a snapshot, without one, and with a bad one, which is named."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memcon.errors import DamagedFileError, MemconError, SchemaVersionError
from memcon.learning.events import Event
from memcon.learning.shard import PolicyShard
from memcon.testing.policy import decide_request, outcome_request
from memcon_policy_server.journal.fold import check_journal, folded, restore, unsigned_shard
from memcon_policy_server.journal.snapshot import read_snapshot, write_snapshot
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import journal_path, snapshot_path
from support import journals
from support.shards import SECRET, SETTINGS

CUT = 31


def history(num_decisions: int = 40) -> list[Event]:
    """Decisions at three keys with outcomes, a cancelled episode, and some that stay open."""
    shard = PolicyShard(0, 1, SECRET)
    events: list[Event] = [*shard.open_table("table", SETTINGS).events]
    for number in range(num_decisions):
        handled = shard.decide(decide_request(number, key=f"key {number % 3}"))
        events += handled.events
        if number % 5 == 4:
            events += shard.cancel_episode("table", decide_request(number).episode_id).events
        elif number % 5:
            events += shard.outcome(outcome_request(handled.reply, 1.0 if number % 2 else -0.5)).events
    return events


def put_snapshot(directory: Path, seq: int = CUT, *, of: list[Event] | None = None) -> Path:
    """A snapshot of the journal in `directory` after event `seq`, as its owner would write it."""
    core = unsigned_shard(0, 1)
    for event in (of or history())[:seq]:
        core.apply(event)
    with closing(SqliteJournal(journal_path(directory, 0), shard=0, num_shards=1, read_only=True)) as journal:
        head = journal.head_at(seq)
    assert head is not None
    path = snapshot_path(directory, 0)
    write_snapshot(path, shard=0, num_shards=1, seq=seq, head=head, state=core.state())
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A policy folder with a journal of many commits and a snapshot inside it."""
    events = history()
    journals.written(journal_path(tmp_path, 0), [[event] for event in events])
    put_snapshot(tmp_path)
    return tmp_path


def restored(directory: Path) -> tuple[int, str]:
    """Where the fold of a restart began, and the table that it gave."""
    core = unsigned_shard(0, 1)
    with closing(SqliteJournal(journal_path(directory, 0), shard=0, num_shards=1)) as journal:
        began = restore(journal, core)
    return began, json.dumps(core.dump("table"))


def whole_fold() -> str:
    core = unsigned_shard(0, 1)
    for event in history():
        core.apply(event)
    return json.dumps(core.dump("table"))


def test_a_restart_folds_what_follows_the_snapshot_and_gives_the_same(directory: Path) -> None:
    assert restored(directory) == (CUT, whole_fold())
    snapshot_path(directory, 0).unlink()
    assert restored(directory) == (0, whole_fold())


def test_a_snapshot_of_the_last_event_leaves_nothing_to_fold(directory: Path) -> None:
    last = len(history())
    put_snapshot(directory, last)
    assert restored(directory) == (last, whole_fold())


def test_the_events_before_a_snapshot_are_checked_by_a_whole_fold_only(directory: Path) -> None:
    journals.altered(journal_path(directory, 0), "UPDATE commits SET body = X'90' WHERE first_seq = 3")
    assert restored(directory) == (CUT, whole_fold())
    check_journal(directory, 0, 1)
    with pytest.raises(DamagedFileError, match="events 3 to 3 were altered"):
        folded(directory, 0, 1)


@pytest.mark.parametrize("num_items", [2048, 2049, 2063, 2064, 4096, 70_000])
def test_long_lists_are_written_in_parts_and_read_as_one(tmp_path: Path, num_items: int) -> None:
    state = {"tables": {"a": {"open": [[n, "x" * (n % 5)] for n in range(num_items)], "none": None, "rows": b"12"}}}
    path = tmp_path / "snapshot"

    write_snapshot(path, shard=0, num_shards=1, seq=1, head=b"head", state=state)

    snapshot = read_snapshot(path)
    assert snapshot is not None
    assert snapshot.state == state


def test_damage_after_the_snapshot_is_found_by_a_restart(directory: Path) -> None:
    journals.altered(journal_path(directory, 0), f"UPDATE commits SET body = X'90' WHERE first_seq = {CUT + 2}")
    for reading in (lambda: restored(directory), lambda: check_journal(directory, 0, 1)):
        with pytest.raises(DamagedFileError, match=f"events {CUT + 2} to {CUT + 2} were altered"):
            reading()


def test_a_journal_that_is_not_there_yet_is_sound(tmp_path: Path) -> None:
    check_journal(tmp_path, 0, 1)
    assert not list(tmp_path.iterdir())


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _shorter_than_a_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:30])


def _foreign(path: Path) -> None:
    path.write_bytes(b"something else altogether, and long enough to have a header " * 3)


def _newer(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[16:20] = (9).to_bytes(4, "big")
    path.write_bytes(content)


def _rewritten(path: Path, **changed: Any) -> None:
    found = read_snapshot(path)
    assert found is not None
    fields = {name: getattr(found, name) for name in ("shard", "num_shards", "seq", "head", "state")}
    write_snapshot(path, **{**fields, **changed})


def _of_another_shard(path: Path) -> None:
    _rewritten(path, shard=1, num_shards=2)


def _of_another_journal(path: Path) -> None:
    _rewritten(path, head=bytes(16))


def _of_another_place(path: Path) -> None:
    _rewritten(path, seq=CUT - 1)


def _of_a_shard_that_is_not_ours(path: Path) -> None:
    _rewritten(path, state={"version": 0})


BAD: list[tuple[Callable[[Path], None], str]] = [
    (_flipped, "its checksum does not fit"),
    (_torn, "its checksum does not fit"),
    (_shorter_than_a_header, "no memcon snapshot, or only a part of one"),
    (_foreign, "no memcon snapshot"),
    (_newer, "has schema version 9, this memcon reads 1"),
    (_of_another_shard, "of shard 1 of 2"),
    (_of_another_journal, "of another journal"),
    (_of_another_place, "of another journal"),
    (_of_a_shard_that_is_not_ours, "loading a state"),
]


@pytest.mark.parametrize(("spoil", "reason"), BAD)
def test_a_bad_snapshot_is_named_in_the_log_and_nothing_is_lost(
    directory: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None], reason: str
) -> None:
    spoil(snapshot_path(directory, 0))
    with caplog.at_level(logging.WARNING):
        assert restored(directory) == (0, whole_fold())
    [record] = [record for record in caplog.records if record.message == "snapshot.unusable"]
    assert reason in vars(record)["reason"]


@pytest.mark.parametrize(("spoil", "error"), [(_flipped, DamagedFileError), (_newer, SchemaVersionError)])
def test_reading_a_bad_file_names_it(directory: Path, spoil: Callable[[Path], None], error: type[MemconError]) -> None:
    path = snapshot_path(directory, 0)
    spoil(path)
    with pytest.raises(error, match=str(path)):
        read_snapshot(path)


def test_a_journal_that_ends_before_its_snapshot_is_refused_and_not_taken_for_the_truth(directory: Path) -> None:
    # An older copy of the journal, or a new one, was put in its place.
    journal = journal_path(directory, 0)
    for number in (1, 0):
        journal.unlink()
        journals.written(journal, [history()[:number]] if number else [])
        with pytest.raises(DamagedFileError, match=rf"ends at event {number}, and shard-0.snapshot .* event {CUT}"):
            restored(directory)
    snapshot_path(directory, 0).unlink()
    core, last_seq = folded(directory, 0, 1, from_snapshot=True)
    assert (core.tables(), last_seq) == ([], 0)
