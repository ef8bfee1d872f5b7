"""The export of journals: every event once, whatever is killed, and marked only when it is durable."""

from __future__ import annotations

import dataclasses
import fcntl
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from memcon.errors import DamagedFileError, LockedError, NotFoundError, StorageError
from memcon.learning.events import Credited, Event, Expired, Imported, RecoveredDecision, decode_event
from memcon.learning.shard import PolicyShard
from memcon.testing.policy import decide_request, outcome_request
from memcon_platform.trajectory import events as events_module
from memcon_platform.trajectory.events import EVENT_SCHEMA, export_events
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import journal_path
from support import journals
from support.shards import SECRET, SETTINGS

RECOVERED = Credited(
    table="table",
    decision_id="lost",
    reward=0.1 + 0.2,
    position=1,
    num_decisions=2,
    cost=0.5,
    recovered=RecoveredDecision(episode_id="e", keys=("fine", "coarse"), action_id="noop"),
    late=True,
)
EXPIRED = Expired(table="table", decision_id="old", default_reward=-0.25)
IMPORTED = Imported(table="table", source="a run", numbers={"key": {"noop": {"q": "0x1p-1", "taken": 1}}})


def history(count: int) -> list[Event]:
    shard = PolicyShard(0, 1, SECRET)
    events: list[Event] = [*shard.open_table("table", SETTINGS).events]
    number = 0
    while len(events) < count:
        request = dataclasses.replace(decide_request(number), allowed=("noop", "insight_only") if number % 2 else None)
        handled = shard.decide(request)
        events += [*handled.events, *shard.outcome(outcome_request(handled.reply, 1.0)).events]
        number += 1
    return events[:count]


def opened(directory: Path, shard: int = 0, num_shards: int = 1) -> closing[SqliteJournal]:
    return closing(SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards))


def add(directory: Path, events: list[Event]) -> None:
    with opened(directory) as journal:
        journal.claim()
        journal.append(events)


def rows(place: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted(place.rglob("*.parquet")):
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            assert file.schema_arrow.names == EVENT_SCHEMA.names
            assert file.schema_arrow.metadata == EVENT_SCHEMA.metadata
            found += file.read().to_pylist()
    return found


def exported(place: Path) -> list[Event]:
    return [decode_event(row["kind"], row["body"]) for row in rows(place)]


def test_each_export_adds_what_is_new(tmp_path: Path) -> None:
    events, place = history(12), tmp_path / "events"
    add(tmp_path, events[:5])
    assert export_events(tmp_path, place) == 5
    assert export_events(tmp_path, place) == 0
    add(tmp_path, events[5:])
    assert export_events(tmp_path, place) == 7

    assert exported(place) == events
    assert [row["seq"] for row in rows(place)] == list(range(1, 13))
    assert sorted(path.name for path in place.rglob("*.parquet")) == [
        "events-000000000001.parquet",
        "events-000000000006.parquet",
    ]
    with opened(tmp_path) as journal:
        assert journal.marks().exported_seq == 12


def test_columns_hold_the_fields_of_the_events(tmp_path: Path) -> None:
    decided = history(2)[1]
    add(tmp_path, [decided, RECOVERED, EXPIRED, IMPORTED])
    export_events(tmp_path, tmp_path / "events")

    first, recovered, expired, imported = rows(tmp_path / "events")

    assert (first["kind"], first["decision_id"], first["keys"]) == ("decided", "decision-0", ["key"])
    assert (first["draw"], first["reward"], first["late"]) == (json.loads(first["body"])["draw"], None, None)
    assert (recovered["reward"], recovered["keys"], recovered["action_id"]) == (0.1 + 0.2, ["fine", "coarse"], "noop")
    assert (recovered["episode_id"], recovered["position"], recovered["late"]) == ("e", 1, True)
    assert (expired["kind"], expired["default_reward"], expired["keys"]) == ("expired", -0.25, None)
    assert (imported["table"], imported["decision_id"]) == ("table", None)
    assert exported(tmp_path / "events") == [decided, RECOVERED, EXPIRED, IMPORTED]


def test_any_whole_number_that_a_client_may_send_is_exported(tmp_path: Path) -> None:
    most = (1 << 53) - 1
    credited = dataclasses.replace(RECOVERED, position=most - 1, num_decisions=most)
    add(tmp_path, [credited])
    export_events(tmp_path, tmp_path / "events")
    assert exported(tmp_path / "events") == [credited]


def test_an_export_of_a_newer_journal_than_this_one_is_not_mixed_with_it(tmp_path: Path) -> None:
    events, place = history(12), tmp_path / "events"
    add(tmp_path, events[:5])
    copy = journal_path(tmp_path, 0).read_bytes()
    for last in (8, 12):
        with opened(tmp_path) as journal:
            journal.claim()
            journal.append(events[journal.last_seq : last])
        export_events(tmp_path, place)
    before = rows(place)
    journal_path(tmp_path, 0).write_bytes(copy)

    with pytest.raises(DamagedFileError, match=r"events-0*9\.parquet.*is exported to event 0 only"):
        export_events(tmp_path, place)
    assert rows(place) == before


def test_a_long_journal_is_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "PART_EVENTS", 5)
    events = history(12)
    add(tmp_path, events)
    assert export_events(tmp_path, tmp_path / "events") == 12
    assert exported(tmp_path / "events") == events
    assert len(list(tmp_path.rglob("*.parquet"))) == 3


def test_a_part_that_was_written_and_not_marked_is_written_anew_and_not_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, place = history(9), tmp_path / "events"
    add(tmp_path, events[:4])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SqliteJournal, "mark_exported", killed)
        with pytest.raises(KeyboardInterrupt):
            export_events(tmp_path, place)
    assert len(rows(place)) == 4
    add(tmp_path, events[4:])

    assert export_events(tmp_path, place) == 9
    assert exported(place) == events


def test_nothing_is_marked_when_the_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, history(4))

    def full(*_: object) -> None:
        raise StorageError("cannot write: no space left")

    with monkeypatch.context() as patched:
        patched.setattr(events_module, "replace_file", full)
        with pytest.raises(StorageError, match="no space"):
            export_events(tmp_path, tmp_path / "events")
    with opened(tmp_path) as journal:
        assert journal.marks().exported_seq == 0


def test_every_shard_has_files_of_its_own(tmp_path: Path) -> None:
    events = history(6)
    for shard in range(2):
        journals.written(journal_path(tmp_path, shard), [events[: 3 * shard + 3]], shard=shard, num_shards=2)
    assert export_events(tmp_path, tmp_path / "events") == 9
    assert [(row["shard"], row["seq"]) for row in rows(tmp_path / "events")] == [
        (shard, seq) for shard in range(2) for seq in range(1, 3 * shard + 4)
    ]


def test_a_damaged_journal_is_exported_up_to_no_damage(tmp_path: Path) -> None:
    journals.written(journal_path(tmp_path, 0), [[event] for event in history(6)])
    journals.altered(journal_path(tmp_path, 0), "UPDATE commits SET body = X'90' WHERE first_seq = 4")
    with pytest.raises(DamagedFileError, match="events 4 to 4 were altered"):
        export_events(tmp_path, tmp_path / "events")
    with opened(tmp_path) as journal:
        assert journal.marks().exported_seq == 0
    assert rows(tmp_path / "events") == []


def test_a_second_export_at_once_is_refused(tmp_path: Path) -> None:
    add(tmp_path, history(4))
    place = tmp_path / "events"
    place.mkdir()
    with (place / ".lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(LockedError, match="another process exports"):
            export_events(tmp_path, place)
    assert export_events(tmp_path, place) == 4


def test_a_folder_without_journals_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no policy journal"):
        export_events(tmp_path, tmp_path / "events")
