"""Warm starts over several launches: what was taken stays, and what is still to be taken comes from the same state."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memcon.errors import ConfigError, ConflictError, DamagedFileError
from memcon.learning.events import Created, Imported
from memcon_platform.config import RunPlan, load, read_plan
from memcon_platform.sweep.earlier import earlier_plan
from memcon_platform.sweep.launch import Launch, launch, open_local
from memcon_platform.sweep.overview import statuses
from memcon_platform.sweep.run_folder import policy_folder
from memcon_platform.sweep.runner import RunEnd
from memcon_platform.sweep.starts import prepare_starts, read_starts
from memcon_platform.trajectory import compare
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import journal_path, snapshot_path
from memcon_workers.spec import TaskEnded
from support.sweeps import CONFIG

# Few keys, so that two short runs meet at the same ones.
POLICY = "axes.policy=[{name: ucb, state_key: goal_plan}]"
# One stream after the other, so that a stop leaves some that have not begun.
APART = ("streams=3", "table_scope=stream", "workers=1", "streams_per_worker=1")


class StopAfter:
    """An observer that asks for a stop when `tasks` have ended; None: never."""

    def __init__(self, tasks: int | None) -> None:
        self._left = tasks

    def task_ended(self, task: TaskEnded) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                signal.raise_signal(signal.SIGINT)

    def cell_ended(self, cell: str) -> None:
        return


def plan_of(root: Path, run: str, *settings: str, limit: int = 4) -> RunPlan:
    config = root / f"{run}.yaml"
    config.write_text(CONFIG)
    return load(config, [f"run={run}", f"root={root / 'runs'}", POLICY, *settings], limit)


def launched(plan: RunPlan, *, stop_after: int | None = None) -> RunEnd:
    how = Launch(open_pool=open_local, observe=lambda *_: StopAfter(stop_after), console=Console(quiet=True))
    _, end = asyncio.run(launch(plan, how))
    assert not end.failures, end.failures
    assert end.stopped is (stop_after is not None)
    return end


def source_of(root: Path) -> RunPlan:
    return plan_of(root, "first", "streams=2", "max_open_episodes=1", limit=12)


def start(what: str, run: str = "first", **more: Any) -> str:
    return f"start_from={json.dumps({what: {'run': run, **more}})}"


def ended_in(run_dir: Path) -> tuple[int, ...]:
    """Ended tasks of the streams of a run."""
    return tuple(status.num_ended for status, _ in statuses(read_plan(run_dir)).values())


def imports(plan: RunPlan) -> int:
    journal = SqliteJournal(journal_path(policy_folder(plan), 0), shard=0, num_shards=1, read_only=True)
    with closing(journal):
        return sum(isinstance(event, Imported) for _, event in journal.read())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `first`, stopped half-way: two streams that take turns at one table."""
    root = tmp_path_factory.mktemp("resumed")
    launched(source_of(root), stop_after=10)
    return root


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    """A copy of `root` to change."""
    return Path(shutil.copytree(root, tmp_path / "tree"))


# --- a source that goes on --------------------------------------------------------------------------------------------


def test_streams_of_one_run_never_copy_two_states_of_a_memory(tree: Path) -> None:
    plan, asked = plan_of(tree, "warm", start("memory"), *APART), plan_of(tree, "whole", start("memory"), *APART)
    launched(asked)
    shutil.copytree(tree / "runs" / "first", tree / "as it was")
    launched(plan, stop_after=2)
    before = read_starts(plan.run_dir)
    ended = ended_in(tree / "runs" / "first")
    assert before.memories[0].ended == ended

    launched(source_of(tree))

    with pytest.raises(
        ConflictError, match=r"run 'first' has gone on since this run took its memory \(stream 1"
    ) as told:
        launched(plan)
    assert f"had ended {ended[1]} tasks, now 12); put that run back as it was, or start a new" in str(told.value)
    assert "\n" not in str(told.value)
    assert read_starts(plan.run_dir) == before
    # As the message says.
    shutil.rmtree(tree / "runs" / "first")
    shutil.copytree(tree / "as it was", tree / "runs" / "first")
    launched(plan)
    assert compare(plan.run_dir, asked.run_dir) == []
    assert read_starts(plan.run_dir) == before


def test_a_source_that_goes_on_within_a_launch_ends_the_streams_that_still_need_it(tree: Path) -> None:
    plan = plan_of(tree, "warm", start("memory"), *APART)
    ended = ended_in(tree / "runs" / "first")[1]

    class GoesOn(StopAfter):
        """Whoever drives the source may begin right after the launch has looked."""

        def task_ended(self, task: TaskEnded) -> None:
            if task.stream == 0 and task.ordinal == 0:
                (path,) = tree.glob("runs/first/streams/*/001.sqlite")
                with closing(sqlite3.connect(path)) as connection:
                    connection.execute("INSERT INTO episodes SELECT MAX(ordinal) + 1, record FROM episodes")
                    connection.commit()

    how = Launch(open_pool=open_local, observe=lambda *_: GoesOn(None), console=Console(quiet=True))
    _, end = asyncio.run(launch(plan, how))

    (name,) = end.failures
    assert name[1] == 1
    said = f"its run has gone on, it had ended {ended} tasks when this run looked, now {ended + 1}"
    assert said in end.failures[name]


def test_a_table_that_was_filled_is_not_asked_for_again(tree: Path) -> None:
    plan = plan_of(tree, "warm", start("policy"), *APART)
    launched(plan, stop_after=2)
    before = read_starts(plan.run_dir)
    assert len(before.tables) == imports(plan) == 3

    launched(source_of(tree))
    launched(plan)

    assert read_starts(plan.run_dir) == before
    assert imports(plan) == 3


def test_a_table_that_was_not_filled_is_refused_when_the_source_has_gone_on(tree: Path) -> None:
    plan = plan_of(tree, "warm", start("policy"), *APART)
    launched(plan)
    before = read_starts(plan.run_dir)
    _died_after(plan, lambda filled: filled == 1)

    launched(source_of(tree))

    said = r"run 'first' has gone on since this run took its table \(its journals ended at event \d+, now at \d+\)"
    with pytest.raises(ConflictError, match=said):
        launched(plan)
    assert read_starts(plan.run_dir) == before


@pytest.mark.parametrize("what", ["policy", "memory"])
def test_a_launch_that_took_nothing_binds_nobody(tree: Path, what: str) -> None:
    plan = plan_of(tree, "warm", start(what), *APART)
    launched(plan)
    before = read_starts(plan.run_dir)
    _died_after(plan, lambda filled: False)

    launched(source_of(tree))
    launched(plan)

    after = read_starts(plan.run_dir)
    assert (len(after.tables), len(after.memories)) == (len(before.tables), len(before.memories))
    assert after != before


def _died_after(plan: RunPlan, kept: Callable[[int], bool]) -> None:
    """As if the launch had been killed while it filled the tables; `kept` says which fills were committed, from 1."""
    for folder in ("streams", "episodes", "steps", "decisions"):
        shutil.rmtree(plan.run_dir / folder)
    path = journal_path(policy_folder(plan), 0)
    with closing(SqliteJournal(path, shard=0, num_shards=1, read_only=True)) as old:
        events = [event for _, event in old.read() if isinstance(event, Created | Imported)]
    filled, chosen = 0, []
    for event in events:
        filled += isinstance(event, Imported)
        if isinstance(event, Created) or kept(filled):
            chosen.append(event)
    path.unlink()
    snapshot_path(policy_folder(plan), 0).unlink(missing_ok=True)
    with closing(SqliteJournal(path, shard=0, num_shards=1)) as new:
        new.claim()
        new.append(chosen)


def test_a_stream_that_is_filled_does_not_ask_for_its_source_again(tree: Path) -> None:
    plan = plan_of(tree, "warm", start("memory"), *APART, limit=1)
    launched(plan)
    # As if it had been killed inside its first tasks.
    for path in plan.run_dir.glob("streams/*/*.sqlite"):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DELETE FROM episodes")
            connection.commit()
    shutil.rmtree(tree / "runs" / "first")
    before = read_starts(plan.run_dir)

    prepared = prepare_starts(plan, statuses(plan))

    assert (prepared.starts, prepared.memory_files) == (before, {})


def test_a_run_whose_starts_are_of_an_earlier_version_goes_on(tree: Path) -> None:
    plan = plan_of(tree, "warm", start("memory"), *APART)
    launched(plan, stop_after=2)
    path = plan.run_dir / "starts.json"
    record = json.loads(path.read_text())
    del record["memories"][0]["ended"]
    path.write_text(json.dumps(record))

    launched(plan)

    assert read_starts(plan.run_dir).memories[0].ended == ()


# --- which run is meant -----------------------------------------------------------------------------------------------


def test_a_copied_run_is_read_from_its_own_folder(tree: Path) -> None:
    shutil.copytree(tree / "runs" / "first", tree / "runs" / "kept")
    # The run that the copy was made from goes on: another memory, another table.
    launched(source_of(tree))

    for what in ("policy", "memory"):
        plan = plan_of(tree, f"from_{what}", start(what, str(tree / "runs" / "kept")), limit=1)
        launched(plan)
        starts = read_starts(plan.run_dir)
        named = [warm.source_run for warm in starts.tables] + [warm.source_run for warm in starts.memories]
        assert named == ["kept"]
        assert all(warm.ended == ended_in(tree / "runs" / "kept")[:1] for warm in starts.memories)
    events = [read_starts(tree / "runs" / "from_policy").tables[0].events]
    launched(plan_of(tree, "later", start("policy"), limit=1))
    assert events[0] < read_starts(tree / "runs" / "later").tables[0].events


def test_a_bare_name_is_the_run_beside_this_one_before_one_in_the_current_folder(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    for name in ("first", "only here"):
        shutil.copytree(tree / "runs" / "first", elsewhere / name)
    monkeypatch.chdir(elsewhere)
    plan = plan_of(tree, "warm")

    assert earlier_plan(plan, "first").run_dir == tree / "runs" / "first"
    assert earlier_plan(plan, "./first").run_dir.resolve() == elsewhere / "first"
    assert earlier_plan(plan, str(elsewhere / "first")).run_dir == elsewhere / "first"
    assert earlier_plan(plan, "only here").run_dir.resolve() == elsewhere / "only here"


def test_cells_that_share_one_table_are_one_candidate(tree: Path) -> None:
    shared = ("axes.seed=[0,1]", "table_scope=both", "max_open_episodes=1")
    fed = plan_of(tree, "fed", *shared, limit=1)
    launched(fed)

    plan = plan_of(tree, "warm", start("policy", "fed"), *shared, limit=1)
    launched(plan)

    (warm,) = read_starts(plan.run_dir).tables
    assert (warm.source_table, warm.source_cell) == ("named/both", read_plan(fed.run_dir).cells[0].cell_id)
    # Memories are each cell's own.
    with pytest.raises(ConfigError, match="seed: recorded"):
        launched(plan_of(tree, "other", start("memory", "fed"), "axes.seed=[5]", limit=1))


def test_a_missing_journal_of_the_source_is_called_missing(tree: Path) -> None:
    (tree / "runs" / "first" / "policy" / "shard-0.sqlite").unlink()
    with pytest.raises(
        DamagedFileError, match=r"first/policy/shard-0\.sqlite is damaged: it is missing, .*leave start"
    ):
        launched(plan_of(tree, "warm", start("policy")))
