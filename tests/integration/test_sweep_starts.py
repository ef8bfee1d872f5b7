"""Warm starts in whole launches of this process: what is taken over, what is refused, and what is said of it."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memcon.errors import ConfigError, DamagedFileError, LockedError, MemconError, NotFoundError, UnknownNameError
from memcon.learning.events import Created, Imported
from memcon_platform.assembly import table_name
from memcon_platform.config import RunPlan, load, read_plan
from memcon_platform.replay import verify
from memcon_platform.sweep.launch import Launch, launch, open_local
from memcon_platform.sweep.run_folder import driving, policy_folder
from memcon_platform.sweep.runner import RunEnd
from memcon_platform.sweep.starts import read_starts
from memcon_platform.trajectory import read_run
from memcon_policy_server.journal.fold import folded
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import journal_path, snapshot_path
from memcon_workers.spec import TaskEnded
from support.sweeps import CONFIG

# Few keys, so that two short runs meet at the same ones.
POLICY = "axes.policy=[{name: ucb, state_key: goal_plan}]"


class Nobody:
    """An observer that does not look."""

    def task_ended(self, task: TaskEnded) -> None:
        return

    def cell_ended(self, cell: str) -> None:
        return


def plan_of(root: Path, run: str, *settings: str, limit: int = 12) -> RunPlan:
    config = root / f"{run}.yaml"
    config.write_text(CONFIG)
    return load(config, [f"run={run}", f"root={root / 'runs'}", POLICY, *settings], limit)


def launched(plan: RunPlan) -> RunEnd:
    how = Launch(open_pool=open_local, observe=lambda *_: Nobody(), console=Console(quiet=True))
    _, end = asyncio.run(launch(plan, how))
    assert not end.failures, end.failures
    return end


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `first`: one learned cell with two streams in one table, over two shards."""
    root = tmp_path_factory.mktemp("starts")
    launched(plan_of(root, "first", "streams=2", "policy_server.shards=2", "max_open_episodes=1"))
    return root


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    """A copy of `root` to change."""
    return Path(shutil.copytree(root, tmp_path / "tree"))


def start(run: str = "first", **more: Any) -> str:
    return f"start_from={json.dumps({'policy': {'run': run, **more}})}"


def dumps(plan: RunPlan, table: str) -> dict[str, Any]:
    """The numbers of a table over all shards, as the journals give them."""
    shards = plan.settings.policy_server.shards
    numbers: dict[str, Any] = {}
    for shard in range(shards):
        core, _ = folded(policy_folder(plan), shard, shards)
        numbers |= core.dump(table)["numbers"]["keys"]
    return numbers


def imports(plan: RunPlan) -> list[Imported]:
    found: list[Imported] = []
    for shard in range(plan.settings.policy_server.shards):
        num_shards = plan.settings.policy_server.shards
        journal = SqliteJournal(
            journal_path(policy_folder(plan), shard), shard=shard, num_shards=num_shards, read_only=True
        )
        found += [event for _, event in journal.read() if isinstance(event, Imported)]
        journal.close()
    return found


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_frozen_table_is_the_capped_one_of_the_earlier_run_whatever_happens(root: Path) -> None:
    earlier = read_plan(root / "runs" / "first")
    plan = plan_of(root, "frozen", start(cap=2, frozen=True), "policy_server.shards=3", limit=6)

    launched(plan)

    table = dumps(plan, table_name(plan.cells[0], 0))
    source = dumps(earlier, table_name(earlier.cells[0], 0))
    learned = {key: arms for key, arms in source.items() if any(row["credited"] for row in arms.values())}
    assert table.keys() == learned.keys()
    for key, arms in learned.items():
        for arm, row in arms.items():
            assert table[key][arm]["credited"] == table[key][arm]["taken"] == min(2, row["credited"])
            if row["credited"]:
                assert table[key][arm]["q"] == row["q"]
    assert verify(plan.run_dir).ok
    decisions = read_run(plan.run_dir).decisions
    assert decisions.num_rows >= 6


def test_a_warm_table_goes_on_learning_and_says_where_it_comes_from(root: Path) -> None:
    plan = plan_of(root, "warm", start(), limit=6)

    launched(plan)

    (warm,) = read_starts(plan.run_dir).tables
    earlier = read_plan(root / "runs" / "first").cells[0]
    assert (warm.source_run, warm.source_cell, warm.cap, warm.frozen) == ("first", earlier.cell_id, 20, False)
    assert warm.source_table == f"cell/{earlier.cell_id}"
    assert len(warm.events) == 2
    assert [event.source for event in imports(plan)] == [warm.source]
    # Arms that the earlier run had tried at a key are no first visits here.
    cold = plan_of(root, "cold", limit=6)
    launched(cold)
    forced = [sum(read_run(p.run_dir).decisions["forced"].to_pylist()) for p in (plan, cold)]
    assert forced[0] < forced[1]
    assert verify(plan.run_dir).ok


def test_the_same_command_again_takes_nothing_over_twice(tree: Path) -> None:
    launched(plan_of(tree, "again", start(), limit=3))
    before = read_starts(tree / "runs" / "again")
    # The source is not needed any more.
    shutil.rmtree(tree / "runs" / "first")

    plan = plan_of(tree, "again", start(), limit=3)
    path = next(plan.run_dir.glob("episodes/cell=*/*.parquet"))
    path.unlink()
    launched(plan)

    assert len(imports(plan)) == 1
    assert read_starts(plan.run_dir) == before
    assert path.exists()


def test_a_launch_that_died_before_its_first_stream_is_repeated_with_the_same_table(tree: Path) -> None:
    plan = plan_of(tree, "died", start(), limit=3)
    launched(plan)
    table = table_name(plan.cells[0], 0)
    # As if it had been killed between the import and the first claim.
    for folder in ("streams", "episodes", "steps", "decisions"):
        shutil.rmtree(plan.run_dir / folder)
    _keep_only_the_import(plan)

    launched(plan)

    assert len(imports(plan)) == 1
    assert verify(plan.run_dir).ok
    assert dumps(plan, table)


def _keep_only_the_import(plan: RunPlan) -> None:
    path = journal_path(policy_folder(plan), 0)
    old = SqliteJournal(path, shard=0, num_shards=1, read_only=True)
    kept = [event for _, event in old.read() if isinstance(event, Created | Imported)]
    old.close()
    path.unlink()
    snapshot_path(policy_folder(plan), 0).unlink(missing_ok=True)
    new = SqliteJournal(path, shard=0, num_shards=1)
    new.claim()
    new.append(kept)
    new.close()


def test_streams_with_tables_of_their_own_start_from_the_one_that_was_shared(root: Path) -> None:
    plan = plan_of(root, "apart", start(), "streams=2", "table_scope=stream", limit=2)

    launched(plan)

    assert [warm.table for warm in read_starts(plan.run_dir).tables] == [
        f"stream/{plan.cells[0].cell_id}/{stream}" for stream in range(2)
    ]
    assert verify(plan.run_dir).ok


def test_cells_that_share_a_named_table_fill_it_once(root: Path) -> None:
    plan = plan_of(root, "named", start(), "axes.seed=[0,1]", "table_scope=both", "max_open_episodes=1", limit=2)

    launched(plan)

    (warm,) = read_starts(plan.run_dir).tables
    assert warm.table == "named/both"
    assert len(imports(plan)) == 1
    assert set(read_run(plan.run_dir).decisions["table"].to_pylist()) == {"named/both"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ("reward.token_cost=0.1",),
            r"no cell of run 'first' fits \(\w+: reward\.token_cost: recorded 0\.0, asked 0\.1\)",
        ),
        (
            ("axes.policy=[{name: ucb, state_key: goal_plan, action_set: compact}]",),
            "no cell of run 'first' fits .*arms: recorded",
        ),
        (
            ("axes.policy=[{name: ucb, state_key: goal_plan, estimator: mean}]",),
            "no cell of run 'first' fits .*estimator: recorded average, asked mean",
        ),
        (
            ("control.decision_points=start",),
            "no cell of run 'first' fits .*control.decision_points: recorded events, asked start",
        ),
        (
            ("axes.memory=[{name: metagpt, preload: {per_type: 1}}]",),
            "no cell of run 'first' fits .*backend.preload: recorded None",
        ),
        (("axes.policy=[ucb]",), "no cell of run 'first' fits .*keys: recorded"),
        (("axes.benchmark=[pddl]",), "no cell of run 'first' fits .*goal_types: only recorded"),
        (("axes.memory=[{name: metagpt, index_failures: true}]",), "no cell of run 'first' fits .*index_failures"),
    ],
)
def test_a_table_of_something_else_is_refused_before_anything_is_written(
    root: Path, settings: tuple[str, ...], said: str
) -> None:
    plan = plan_of(root, "other", start(), *settings)
    with pytest.raises(ConfigError, match=said) as raised:
        launched(plan)
    assert "\n" not in str(raised.value)
    assert not (plan.run_dir / "plan.json").exists()


def test_a_cell_that_is_named_must_exist_and_fit(root: Path) -> None:
    cell = read_plan(root / "runs" / "first").cells[0].cell_id
    with pytest.raises(UnknownNameError, match=f"cell of run 'first' 'nothing'.*{cell}"):
        launched(plan_of(root, "other", start(cell="nothing")))
    with pytest.raises(ConfigError, match=f"cell {cell} of run 'first' does not fit: reward.token_cost"):
        launched(plan_of(root, "other", start(cell=cell), "reward.token_cost=0.1"))


def test_several_cells_that_fit_are_listed(root: Path) -> None:
    launched(
        plan_of(
            root,
            "pair",
            "axes.policy=[{name: ucb, state_key: goal_plan},{name: ucb, state_key: goal_plan, c: 0.3}]",
            limit=1,
        )
    )
    cells = [cell.cell_id for cell in read_plan(root / "runs" / "pair").cells]

    with pytest.raises(
        ConfigError, match=f"2 cells of run 'pair' fit; give start_from.policy.cell.*{cells[0]}.*{cells[1]}"
    ):
        launched(plan_of(root, "other", start("pair")))
    launched(plan_of(root, "chosen", start("pair", cell=cells[1]), limit=1))

    assert read_starts(root / "runs" / "chosen").tables[0].source_cell == cells[1]


def test_cells_of_several_seeds_start_from_those_of_their_seed(root: Path) -> None:
    launched(plan_of(root, "seeds", "axes.seed=[0,1]", limit=1))
    plan = plan_of(root, "paired", start("seeds"), "axes.seed=[0,1]", limit=1)

    launched(plan)

    seed_of = {
        cell.cell_id: cell.seed for name in ("seeds", "paired") for cell in read_plan(root / "runs" / name).cells
    }
    taken = {warm.table.partition("/")[2]: warm.source_cell for warm in read_starts(plan.run_dir).tables}
    assert {seed_of[cell]: seed_of[source] for cell, source in taken.items()} == {0: 0, 1: 1}


def test_a_memory_that_is_taken_over_brings_its_preload(root: Path) -> None:
    filled = "axes.memory=[{name: metagpt, preload: {per_type: 1}}]"
    launched(plan_of(root, "filled", filled, limit=1))
    both = json.dumps({"policy": {"run": "filled"}, "memory": {"run": "filled"}})

    launched(plan_of(root, "carried", f"start_from={both}", limit=1))

    starts = read_starts(root / "runs" / "carried")
    assert (starts.tables[0].source_run, starts.memories[0].source_run) == ("filled", "filled")


def test_a_shared_table_is_about_all_that_has_fed_it(root: Path) -> None:
    memories = "axes.memory=[metagpt,{name: metagpt, failed_top_k: 1}]"
    both = ("table_scope=both", "max_open_episodes=1")
    launched(plan_of(root, "fed", memories, *both, limit=1))

    # One of the two memories alone: the other has fed the table too.
    cell = next(cell for cell in read_plan(root / "runs" / "fed").cells if not cell.memory.parameters)
    with pytest.raises(ConfigError, match=r"table 'named/both' of run 'fed' does not fit .*has fed it.*failed_top_k"):
        launched(plan_of(root, "other", start("fed", cell=cell.cell_id), *both))
    # Two memories over one that was fed by one.
    with pytest.raises(ConfigError, match=r"does not fit .*asks.*failed_top_k"):
        launched(plan_of(root, "other", start(), memories, *both))
    launched(plan_of(root, "alike", start("fed", cell=cell.cell_id), memories, *both, limit=1))

    assert [warm.source_table for warm in read_starts(root / "runs" / "alike").tables] == ["named/both"]


def test_one_table_cannot_start_from_several(root: Path) -> None:
    launched(plan_of(root, "several", "streams=2", "table_scope=stream", limit=1))
    with pytest.raises(ConfigError, match="has 2 tables"):
        launched(plan_of(root, "other", start("several")))


def test_a_run_that_is_not_there_or_is_running_or_is_this_one_is_refused(root: Path) -> None:
    with pytest.raises(NotFoundError, match=r"furst.*did you mean.*first"):
        launched(plan_of(root, "other", start("furst")))
    with pytest.raises(ConfigError, match="this run itself"):
        launched(plan_of(root, "other", start("other")))
    with driving(root / "runs" / "first"), pytest.raises(LockedError, match="still changes"):
        launched(plan_of(root, "other", start()))


def test_a_damaged_journal_of_the_earlier_run_is_named(tree: Path) -> None:
    journal = tree / "runs" / "first" / "policy" / "shard-1.sqlite"
    journal.write_bytes(b"no database at all, and long enough to be told from an empty one")
    with pytest.raises(MemconError, match=r"first/policy/shard-1\.sqlite"):
        launched(plan_of(tree, "other", start()))


def test_what_a_run_says_of_its_start_is_checked_when_it_is_read(tree: Path) -> None:
    launched(plan_of(tree, "said", start(), limit=1))
    path = tree / "runs" / "said" / "starts.json"
    path.write_text(path.read_text().replace('"cap"', '"cup"'))
    with pytest.raises(DamagedFileError, match=r"starts\.json.*cup"):
        read_starts(path.parent)


# --- memories --------------------------------------------------------------------------------------------------------


def memory(run: str = "first", **more: Any) -> str:
    return f"start_from={json.dumps({'memory': {'run': run, **more}})}"


def sizes(plan: RunPlan) -> dict[int, list[int]]:
    """Memory size after each task, by stream."""
    found: dict[int, list[int]] = {}
    episodes = read_run(plan.run_dir).episodes.sort_by([("stream", "ascending"), ("ordinal", "ascending")])
    for stream, size in zip(episodes["stream"].to_pylist(), episodes["memory_size"].to_pylist(), strict=True):
        found.setdefault(stream, []).append(size)
    return found


def test_streams_start_from_the_memories_of_the_earlier_ones_in_turn(root: Path) -> None:
    last = {stream: values[-1] for stream, values in sizes(read_plan(root / "runs" / "first")).items()}
    plan = plan_of(root, "memory", memory(), "streams=3", limit=2)

    launched(plan)

    for stream, values in sizes(plan).items():
        assert values[0] >= last[stream % 2] > 0
    (warm,) = read_starts(plan.run_dir).memories
    assert (warm.source_run, warm.frozen) == ("first", False)


def test_a_frozen_memory_stays_as_it_was(root: Path) -> None:
    last = sizes(read_plan(root / "runs" / "first"))[0][-1]
    plan = plan_of(root, "frozen_memory", memory(frozen=True), limit=3)

    launched(plan)

    assert sizes(plan) == {0: [last] * 3}


def test_a_memory_of_something_else_is_refused_before_anything_is_written(root: Path) -> None:
    cell = read_plan(root / "runs" / "first").cells[0].cell_id
    other = "axes.memory=[{name: metagpt, index_failures: true}]"
    with pytest.raises(ConfigError, match=f"no cell of run 'first' fits .{cell}: memory: recorded metagpt, asked"):
        launched(plan_of(root, "other", memory(), other))
    with pytest.raises(ConfigError, match="does not fit: embedder"):
        launched(plan_of(root, "other", memory(cell=cell), "embedder=wordllama"))
    with pytest.raises(ConfigError, match="seed: recorded 0, asked 5"):
        launched(plan_of(root, "other", memory(), "axes.seed=[5]"))
    launched(plan_of(root, "seed5", memory(cell=cell), "axes.seed=[5]", limit=1))
    assert not (root / "runs" / "other" / "plan.json").exists()


def test_a_stream_of_the_earlier_run_that_has_not_begun_is_named(tree: Path) -> None:
    for path in tree.glob("runs/first/streams/*/001.sqlite"):
        path.unlink()
    with pytest.raises(ConfigError, match=r"stream 1 of cell .* has ended no task"):
        launched(plan_of(tree, "other", memory(), "streams=2"))
