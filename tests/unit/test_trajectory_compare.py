"""compare and check: equality outside volatile columns, and the integrity of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from memcon.errors import DamagedFileError, NotFoundError
from memcon.types import Episode
from memcon_platform.trajectory import ParquetSink, check, compare, read_run
from memcon_platform.trajectory.schemas import ADDED
from support.episodes import FakeCell, stream_episodes, write_plan, write_run, write_stream

CELL = FakeCell(num_tasks=6)
MATRIX = FakeCell(num_tasks=4, policy="every_arm", trials=True)


def _write(run: Path, episodes: list[Episode]) -> Path:
    write_plan(run, [CELL])
    ParquetSink(run).write_block(CELL.cell_id, 0, 0, episodes)
    return run


def test_runs_that_differ_in_volatile_columns_only_are_equal(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [CELL], run="a", epoch=1)
    b = write_run(tmp_path / "b", [CELL], run="b", epoch=2)

    assert compare(a, b) == []


def test_another_value_is_told_with_its_place(tmp_path: Path) -> None:
    episodes = stream_episodes(CELL)
    a = _write(tmp_path / "a", episodes)
    b = _write(tmp_path / "b", [*episodes[:4], dataclasses.replace(episodes[4], reward=0.75), episodes[5]])

    (difference,) = compare(a, b)

    assert (difference.table, difference.column, difference.num_rows) == ("episodes", "reward", 1)
    assert f"cell {CELL.cell_id}, stream 0, ordinal 4" in str(difference)
    assert "0.75" in str(difference)


def test_floats_are_compared_by_their_bits(tmp_path: Path) -> None:
    episodes = [dataclasses.replace(episode, reward=0.0) for episode in stream_episodes(CELL)]
    a = _write(tmp_path / "a", episodes)
    b = _write(tmp_path / "b", [dataclasses.replace(episode, reward=-0.0) for episode in episodes])

    (difference,) = compare(a, b)

    assert (difference.column, difference.num_rows) == ("reward", 6)


def test_a_number_inside_the_per_arm_values_counts(tmp_path: Path) -> None:
    episodes = stream_episodes(CELL)
    decision = dataclasses.replace(episodes[0].decisions[0], per_arm={"noop": {"q": 0.5000000001}})
    a = _write(tmp_path / "a", episodes)
    changed = dataclasses.replace(episodes[0], decisions=(decision, *episodes[0].decisions[1:]))
    b = _write(tmp_path / "b", [changed, *episodes[1:]])

    assert [(d.table, d.column) for d in compare(a, b)] == [("decisions", "per_arm")]


def test_a_trial_that_differs_and_one_that_is_gone_are_told(tmp_path: Path) -> None:
    episodes = stream_episodes(MATRIX)
    worse = dataclasses.replace(episodes[2].trials[0], num_steps=99)
    b = [
        *episodes[:2],
        dataclasses.replace(episodes[2], trials=(worse, *episodes[2].trials[1:])),
        dataclasses.replace(episodes[3], trials=episodes[3].trials[:-1]),
    ]
    for name, written in (("a", episodes), ("b", b)):
        ParquetSink(tmp_path / name).write_block(MATRIX.cell_id, 0, 0, written)

    found = [(d.table, d.column, d.kind, d.num_rows) for d in compare(tmp_path / "a", tmp_path / "b")]

    assert found == [
        ("episodes", "num_trials", "values", 1),
        ("trials", "", "only_in_first", 1),
        ("trials", "num_steps", "values", 1),
    ]


def _as_version_1(run: Path) -> Path:
    """`run` with files as version 1 wrote them: without the columns that were added later."""
    for table, added in ADDED.items():
        for path in (run / table).rglob("*.parquet"):
            rows = pq.read_table(path, partitioning=None).drop_columns(list(added))
            told = {b"memcon.table": table.encode(), b"memcon.schema_version": b"1"}
            pq.write_table(rows.replace_schema_metadata(told), path, write_page_checksum=True)
    return run


@pytest.mark.parametrize("older_first", [True, False])
def test_columns_that_the_files_of_one_run_lack_are_left_out(tmp_path: Path, older_first: bool) -> None:
    episodes = [_of_a_setup(episode) for episode in stream_episodes(CELL)]
    old, new = _as_version_1(_write(tmp_path / "a", episodes)), _write(tmp_path / "b", episodes)
    assert read_run(new).decisions["feature_setup"].to_pylist() != read_run(old).decisions["feature_setup"].to_pylist()

    assert compare(*((old, new) if older_first else (new, old))) == []

    other = _write(tmp_path / "c", [dataclasses.replace(episodes[0], maintenance={}, reward=0.75), *episodes[1:]])
    assert [(d.table, d.column) for d in compare(old, other)] == [("episodes", "reward")]
    # Of two runs that have them they count.
    assert [(d.table, d.column) for d in compare(new, other)] == [("episodes", "reward"), ("episodes", "maintenance")]


def _of_a_setup(episode: Episode) -> Episode:
    """`episode` with something in the columns of version 2."""
    decisions = [
        dataclasses.replace(decision, features=dataclasses.replace(decision.features, setup="a", benchmark="b"))
        for decision in episode.decisions
    ]
    return dataclasses.replace(episode, decisions=tuple(decisions), maintenance={"forget": ""})


def test_missing_tasks_are_told_and_the_rest_is_still_compared(tmp_path: Path) -> None:
    episodes = stream_episodes(CELL)
    a = _write(tmp_path / "a", episodes)
    b = _write(tmp_path / "b", [dataclasses.replace(episodes[0], memory_size=99), *episodes[1:4]])

    found = [(d.table, d.kind, d.column, d.num_rows) for d in compare(a, b) if d.table == "episodes"]

    assert found == [("episodes", "only_in_first", "", 2), ("episodes", "values", "memory_size", 1)]


def test_a_finished_run_is_sound(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [CELL, FakeCell(num_tasks=5, streams=2, broken=(1,)), MATRIX])

    report = check(run)

    assert (report.ok, report.problems, report.notes) == (True, [], [])
    assert (report.planned, report.found) == (20, 20)


def test_an_unfinished_stream_is_a_note(tmp_path: Path) -> None:
    write_plan(tmp_path / "run", [CELL])
    write_stream(tmp_path / "run", CELL, count=4)

    report = check(tmp_path / "run")

    assert report.ok
    assert report.notes == [f"cell {CELL.cell_id}, stream 0: 4 of 6 tasks; the same `memcon sweep` command continues"]


def test_a_missing_block_is_a_gap(tmp_path: Path) -> None:
    cell = FakeCell(num_tasks=120)
    run = write_run(tmp_path / "run", [cell])
    for table in ("episodes", "steps", "decisions"):
        (run / table / f"cell={cell.cell_id}" / "stream-000-block-0001.parquet").unlink()

    report = check(run)

    assert len(report.problems) == 1
    assert "ordinals missing inside the stream: 50, 51, 52" in report.problems[0]


def test_a_doubled_ordinal_and_one_in_a_wrong_block_are_found(tmp_path: Path) -> None:
    cell = FakeCell(num_tasks=60)
    run = write_run(tmp_path / "run", [cell])
    for table in ("episodes", "steps", "decisions"):
        folder = run / table / f"cell={cell.cell_id}"
        (folder / "stream-000-block-0000.parquet").replace(folder / "stream-000-block-0002.parquet")
        (folder / "stream-000-block-0000.parquet").write_bytes((folder / "stream-000-block-0002.parquet").read_bytes())

    text = "\n".join(check(run).problems)

    assert "ordinals stored more than once: 0, 1, 2" in text
    assert "ordinal 0 does not belong to block 2 (100..149)" in text


def test_damaged_and_foreign_files_are_all_listed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [CELL])
    write_stream(run, FakeCell(num_tasks=3, seed=9))
    next((run / "steps" / f"cell={CELL.cell_id}").glob("*.parquet")).write_bytes(b"")

    problems = check(run).problems

    assert len(problems) == 2
    assert any("is damaged" in problem for problem in problems)
    assert any("this cell is not in plan.json" in problem for problem in problems)


def test_steps_that_are_gone_are_found(tmp_path: Path) -> None:
    episodes = stream_episodes(CELL)
    run = _write(tmp_path / "run", [dataclasses.replace(episodes[0], steps=episodes[0].steps[:-1]), *episodes[1:]])

    assert check(run).problems == [f"cell {CELL.cell_id}, stream 0: ordinal 0 took 4 steps, 3 are stored"]


def test_trials_that_are_gone_or_doubled_are_found(tmp_path: Path) -> None:
    write_plan(tmp_path / "run", [MATRIX])
    episodes = stream_episodes(MATRIX)
    twice = dataclasses.replace(episodes[1], trials=(episodes[1].trials[0], *episodes[1].trials[:-1]))
    ParquetSink(tmp_path / "run").write_block(MATRIX.cell_id, 0, 0, [episodes[0], twice, *episodes[2:]])
    where = f"cell {MATRIX.cell_id}, stream 0: ordinal"
    assert check(tmp_path / "run").problems == [f"{where} 1 has two trials of one arm"]

    file = next((tmp_path / "run" / "trials").rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-9])
    (problem,) = check(tmp_path / "run").problems
    assert "is damaged" in problem

    file.unlink()
    assert check(tmp_path / "run").problems == [f"{where} {n} has 9 trials, 0 are stored" for n in range(4)]


def test_without_a_plan_that_can_be_trusted_nothing_is_checked(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"holds no plan\.json"):
        check(tmp_path)

    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(DamagedFileError, match=r"plan\.json is damaged: not JSON"):
        check(tmp_path)
