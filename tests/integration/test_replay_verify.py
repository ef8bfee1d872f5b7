"""verify: an untouched run holds; one altered reward is found and named, recomputed checksums or not."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from memcon import ids
from memcon.errors import NotFoundError
from memcon.learning.exploration import UcbConfig
from memcon.policy_types import DecideRequest
from memcon.testing.policy import outcome_request
from memcon.types import Decision
from memcon_platform.replay import verify
from memcon_platform.trajectory import ParquetSink
from memcon_policy_server.client.local import LocalPolicyClient
from memcon_policy_server.journal import Entry, _checksum
from memcon_policy_server.sharding import export_path, journal_path
from support.episodes import FakeCell, make_decision, make_episode, write_plan

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


def alter(journal: Path, statement: str, parameters: Sequence[object] = (), *, recompute: bool = False) -> None:
    connection = sqlite3.connect(journal)
    connection.execute(statement, parameters)
    if recompute:
        head = ""
        for seq, kind, table, decision, body in connection.execute(
            "SELECT seq, kind, table_name, decision_id, body FROM events ORDER BY seq"
        ).fetchall():
            head = _checksum(head, seq, Entry(kind=kind, table=table, decision_id=decision, body=body))
            connection.execute("UPDATE events SET checksum = ? WHERE seq = ?", (head, seq))
        connection.execute("UPDATE meta SET head = ?", (head,))
    connection.commit()
    connection.close()


def last_credit(journal: Path) -> tuple[int, str, str]:
    """Number, decision and body of the journal's last credit: nothing was decided after it."""
    connection = sqlite3.connect(journal)
    row = connection.execute(
        "SELECT seq, decision_id, body FROM events WHERE kind = 'credited' ORDER BY seq DESC LIMIT 1"
    ).fetchone()
    connection.close()
    return row[0], row[1], row[2]


def change_first_decision(run_dir: Path, column: str, value: object) -> None:
    [file] = (run_dir / "decisions").rglob("*.parquet")
    table = pq.read_table(file, partitioning=None)
    rows = table.to_pylist()
    rows[0][column] = value
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def with_reward(body: str, reward: float) -> str:
    return json.dumps({**json.loads(body), "reward": reward}, separators=(",", ":"))


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
    journal = journal_path(tmp_path / "policy", 0)
    seq, decision_id, body = last_credit(journal)

    alter(journal, "UPDATE events SET body = ? WHERE seq = ?", (with_reward(body, 0.9), seq), recompute=recompute)

    report = verify(tmp_path)
    assert not report.ok
    assert any(f"event {seq} (credited of decision {decision_id})" in problem for problem in report.problems)


async def test_recomputed_checksums_without_parquet_are_found_by_the_served_tables(tmp_path: Path) -> None:
    await play(tmp_path, 1)
    for table in ("episodes", "steps", "decisions"):
        shutil.rmtree(tmp_path / table)
    journal = journal_path(tmp_path / "policy", 0)
    seq, _, body = last_credit(journal)

    alter(journal, "UPDATE events SET body = ? WHERE seq = ?", (with_reward(body, 0.9), seq), recompute=True)

    [problem] = verify(tmp_path).problems
    assert "the served tables > tables >" in problem


async def test_an_altered_arm_is_named_by_the_fold(tmp_path: Path) -> None:
    await play(tmp_path, 1)
    journal = journal_path(tmp_path / "policy", 0)

    alter(
        journal,
        "UPDATE events SET body = replace(body, 'retrieve_medium', 'noop') WHERE seq = "
        "(SELECT min(seq) FROM events WHERE kind = 'decided' AND body LIKE '%retrieve_medium%')",
        recompute=True,
    )

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
    journal = journal_path(tmp_path / "policy", 0)
    seq, decision_id, _ = last_credit(journal)
    alter(journal, "DELETE FROM events WHERE seq = ?", (seq,))
    alter(journal, "UPDATE meta SET last_seq = ?", (seq - 1,), recompute=True)
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

    assert "run its sweep command again" in problem


async def test_a_lost_shard_is_found(tmp_path: Path) -> None:
    await play(tmp_path, 2)
    journal_path(tmp_path / "policy", 1).unlink()

    assert any("is shard 0 of 2, not 0 of 1" in problem for problem in verify(tmp_path).problems)


def test_a_folder_without_a_journal_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no policy journal"):
        verify(tmp_path)
