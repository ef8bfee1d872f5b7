"""verify: an untouched run holds; one altered reward is found and named, recomputed checksums or not."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from memcon import ids
from memcon.errors import NotFoundError
from memcon.learning.events import Credited, Decided, Event
from memcon.learning.exploration import UcbConfig
from memcon.policy_types import DecideRequest
from memcon.testing.policy import outcome_request
from memcon.types import Decision
from memcon_platform.replay import verify
from memcon_platform.trajectory import ParquetSink
from memcon_platform.trajectory.events import export_events
from memcon_policy_server.client.local import LocalPolicyClient
from memcon_policy_server.journal.compaction import compact
from memcon_policy_server.journal.fold import folded
from memcon_policy_server.journal.snapshot import write_snapshot
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import export_path, journal_path, snapshot_path
from support.episodes import FakeCell, make_decision, make_episode, write_plan
from support.journals import rewritten

CELL = FakeCell(num_tasks=10)
REWARDS = tuple(1.0 if ordinal % 3 else -0.5 for ordinal in range(CELL.num_tasks))


async def play(run_dir: Path, num_shards: int, *, first: int = 0) -> None:
    """A run of ten tasks, two decisions each: journal, served tables and Parquet."""
    client = LocalPolicyClient(run_dir / "policy", num_shards)
    await client.open_table(CELL.cell_id, UcbConfig().learning_settings())
    episodes = []
    for ordinal, reward in enumerate(REWARDS):
        episode = make_episode(CELL, 0, ordinal)
        decisions: list[Decision] = []
        replies = []
        for position in range(2):
            request = DecideRequest(
                table=CELL.cell_id,
                decision_id=ids.decision_id(episode.episode_id, position),
                episode_id=episode.episode_id,
                position=position,
                keys=(f"key {(ordinal + position) % 4}",),
                draw=ordinal,
            )
            reply = await client.decide(request)
            replies.append(outcome_request(reply, reward, position=position, num_decisions=2))
            decisions.append(
                make_decision(
                    position,
                    decision_id=request.decision_id,
                    episode_id=episode.episode_id,
                    state_key=request.keys[0],
                    action_id=reply.action_id,
                    propensity=reply.propensity,
                    tie_set=reply.tie_set,
                    forced=reply.forced,
                    table=CELL.cell_id,
                )
            )
        credited = await client.outcomes(replies)
        decided = [dataclasses.replace(d, credit=c.credit) for d, c in zip(decisions, credited, strict=True)]
        episodes.append(dataclasses.replace(episode, decisions=tuple(decided), reward=reward))
    await client.close()
    write_plan(run_dir, [CELL])
    ParquetSink(run_dir).write_block(CELL.cell_id, 0, 0, episodes)


def last_credit(run_dir: Path) -> tuple[int, str]:
    """Number and decision of the last credit of shard 0: nothing was decided after it."""
    path = journal_path(run_dir / "policy", 0)
    num_shards = len(list(path.parent.glob("shard-*.sqlite")))
    with closing(SqliteJournal(path, shard=0, num_shards=num_shards, read_only=True)) as journal:
        found = [(row.seq, row.decision_id) for row, event in journal.read() if isinstance(event, Credited)]
    return found[-1]


def with_reward(decision_id: str, reward: float) -> Callable[[list[Event]], list[Event]]:
    """A change of the outcome that the journal has of one decision."""
    return lambda events: [
        dataclasses.replace(event, reward=reward)
        if isinstance(event, Credited) and event.decision_id == decision_id
        else event
        for event in events
    ]


def change_first_decision(run_dir: Path, column: str, value: object) -> None:
    [file] = (run_dir / "decisions").rglob("*.parquet")
    table = pq.read_table(file, partitioning=None)
    rows = table.to_pylist()
    rows[0][column] = value
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("num_shards", [1, 3])
async def test_an_untouched_run_holds_and_is_left_untouched(tmp_path: Path, num_shards: int) -> None:
    await play(tmp_path, num_shards)
    before = files(tmp_path)

    report = verify(tmp_path)

    assert (report.ok, report.problems) == (True, ())
    assert (report.shards, report.tables, report.events) == (num_shards, 1, num_shards + 40)
    assert files(tmp_path) == before


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("recompute", [False, True])
async def test_one_altered_reward_is_found_and_named(tmp_path: Path, num_shards: int, *, recompute: bool) -> None:
    await play(tmp_path, num_shards)
    seq, decision_id = last_credit(tmp_path)

    rewritten(journal_path(tmp_path / "policy", 0), with_reward(decision_id, 0.9), recompute=recompute)

    report = verify(tmp_path)
    assert not report.ok
    named = f"event {seq} (credited of decision {decision_id})" if recompute else f"to {seq} were altered"
    assert any(named in problem for problem in report.problems)


async def test_recomputed_checksums_without_parquet_are_found_by_the_served_tables(tmp_path: Path) -> None:
    await play(tmp_path, 1)
    for table in ("episodes", "steps", "decisions"):
        shutil.rmtree(tmp_path / table)
    snapshot_path(tmp_path / "policy", 0).unlink(missing_ok=True)
    _, decision_id = last_credit(tmp_path)

    rewritten(journal_path(tmp_path / "policy", 0), with_reward(decision_id, 0.9), recompute=True)

    [problem] = verify(tmp_path).problems
    assert "the served tables > tables >" in problem


async def test_an_altered_arm_is_named_by_the_fold(tmp_path: Path) -> None:
    await play(tmp_path, 1)
    altered_arms: list[Event] = []

    def to_noop(events: list[Event]) -> list[Event]:
        for place, event in enumerate(events):
            if isinstance(event, Decided) and event.action_id == "retrieve_medium" and not altered_arms:
                altered_arms.append(event)
                events[place] = dataclasses.replace(event, action_id="noop")
        return events

    rewritten(journal_path(tmp_path / "policy", 0), to_noop, recompute=True)

    assert altered_arms
    assert any("does not fit what came before it" in problem for problem in verify(tmp_path).problems)


@pytest.mark.parametrize(
    ("column", "value"),
    [("state_key", "key 9"), ("propensity", 0.5), ("tie_set", ["noop"]), ("forced", False), ("action_id", "noop")],
)
async def test_a_choice_that_parquet_tells_otherwise_is_named(tmp_path: Path, column: str, value: object) -> None:
    # What an off-policy estimate rests on must be what the owner did.
    await play(tmp_path, 1)
    change_first_decision(tmp_path, column, value)

    [problem] = verify(tmp_path).problems

    assert f"the journal gives {column} " in problem
    assert problem.endswith(f"the run's Parquet {value!r}")


async def test_a_decision_without_its_episode_is_named(tmp_path: Path) -> None:
    await play(tmp_path, 1)
    change_first_decision(tmp_path, "episode_id", "nobody's")

    [problem] = verify(tmp_path).problems

    assert problem.endswith("the run's Parquet has no episode nobody's")


async def test_a_removed_credit_with_recomputed_checksums_is_named(tmp_path: Path) -> None:
    await play(tmp_path, 1)
    seq, decision_id = last_credit(tmp_path)
    snapshot_path(tmp_path / "policy", 0).unlink(missing_ok=True)
    rewritten(
        journal_path(tmp_path / "policy", 0),
        lambda events: [
            event for event in events if getattr(event, "decision_id", "") != decision_id or isinstance(event, Decided)
        ],
        recompute=True,
    )
    served = export_path(tmp_path / "policy", 0)
    served.write_text(json.dumps({**json.loads(served.read_text()), "last_seq": seq - 1}))

    problems = verify(tmp_path).problems

    assert any(f"decision {decision_id}" in problem and "no journal has one" in problem for problem in problems)


async def test_a_resumed_run_is_held_against_the_tables_of_its_last_end(tmp_path: Path) -> None:
    await play(tmp_path, 1)
    # A launch that was killed: its events are in the journal, its tables were never exported.
    client = LocalPolicyClient(tmp_path / "policy", 1)
    await client.decide(
        DecideRequest(table=CELL.cell_id, decision_id="d", episode_id="e", position=0, keys=("key 0",), draw=0)
    )
    for owner in client._owners:
        await owner.close()

    report = verify(tmp_path)

    assert report.problems == ()
    assert report.events == 42


async def test_a_run_that_never_ended_is_told_so(tmp_path: Path) -> None:
    await play(tmp_path, 1)
    export_path(tmp_path / "policy", 0).unlink()

    [problem] = verify(tmp_path).problems

    assert "run the same command again" in problem


async def test_a_lost_shard_is_found(tmp_path: Path) -> None:
    await play(tmp_path, 2)
    journal_path(tmp_path / "policy", 1).unlink()

    assert any("is shard 0 of 2, not 0 of 1" in problem for problem in verify(tmp_path).problems)


def test_a_folder_without_a_journal_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no policy journal"):
        verify(tmp_path)


@pytest.mark.parametrize("num_shards", [1, 3])
async def test_a_compacted_run_is_folded_from_its_base_and_that_is_said(tmp_path: Path, num_shards: int) -> None:
    await play(tmp_path, num_shards)
    policy = tmp_path / "policy"
    export_events(policy, policy / "events")
    dropped = sum(compact(policy, shard, num_shards).dropped for shard in range(num_shards))

    report = verify(tmp_path)

    # Parquet has credits whose events are gone: no problem of the run.
    assert (report.problems, report.events, report.compacted) == ((), 0, num_shards + 40)
    assert dropped == num_shards + 40


async def test_a_run_goes_on_after_a_compaction_and_holds(tmp_path: Path) -> None:
    await play(tmp_path, 1)
    policy = tmp_path / "policy"
    export_events(policy, policy / "events")
    compact(policy, 0, 1)
    client = LocalPolicyClient(policy, 1)
    reply = await client.decide(
        DecideRequest(table=CELL.cell_id, decision_id="d", episode_id="e", position=0, keys=("key 0",), draw=0)
    )
    await client.outcomes([outcome_request(reply, 1.0)])
    await client.close()

    report = verify(tmp_path)

    assert (report.problems, report.events, report.compacted) == ((), 2, 41)


async def test_a_snapshot_that_says_otherwise_than_the_fold_is_named(tmp_path: Path) -> None:
    await play(tmp_path, 1)
    policy = tmp_path / "policy"
    core, last_seq = folded(policy, 0, 1)
    with closing(SqliteJournal(journal_path(policy, 0), shard=0, num_shards=1, read_only=True)) as journal:
        head = journal.head_at(last_seq)
    assert head is not None
    core.cancel_episode(CELL.cell_id, "one that no event cancelled")
    write_snapshot(snapshot_path(policy, 0), shard=0, num_shards=1, seq=last_seq, head=head, state=core.state())

    [problem] = verify(tmp_path).problems

    assert problem.startswith(f"{snapshot_path(policy, 0)}: the snapshot > tables > ")
    assert "closed_episodes" in problem


async def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    await play(tmp_path, 1)
    snapshot_path(tmp_path / "policy", 0).write_bytes(b"torn")

    [problem] = verify(tmp_path).problems

    assert "shard-0.snapshot is damaged: it is no memcon snapshot" in problem


async def test_a_served_policy_is_verified_by_its_own_folder(tmp_path: Path) -> None:
    await play(tmp_path, 2)
    policy = (tmp_path / "policy").rename(tmp_path / "served")

    assert (verify(policy).problems, verify(policy).events) == ((), 42)

    rewritten(journal_path(policy, 0), lambda events: events[:-1], recompute=True)
    assert verify(policy).problems
