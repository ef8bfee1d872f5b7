"""Parquet blocks: what is written, what a crash leaves, what a bad place does."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from memcon.errors import DamagedFileError, InvariantError, NotFoundError, SchemaVersionError, StorageError
from memcon.types import Decision, Episode, Outcome, StateFeatures, Step, Task, TokenUsage, Trial
from memcon_platform.trajectory import SCHEMA_VERSION, ParquetSink, SinkFactory, read_run
from memcon_platform.trajectory.schemas import SCHEMAS, is_volatile
from support.episodes import FakeCell, make_decision, stream_episodes, write_run, write_stream

CELL = FakeCell(num_tasks=60)
MATRIX = FakeCell(num_tasks=60, policy="every_arm", trials=True)


def _names(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_every_field_of_the_types_has_a_column_except_the_token() -> None:
    nested = {"task", "outcome", "steps", "decisions", "tokens", "trials"}
    episodes = (_names(Episode) | _names(Task) | _names(Outcome)) - nested
    tokens = {f"tokens_{name}" for name in _names(TokenUsage)}
    assert set(SCHEMAS["episodes"].names) == episodes | tokens | {"success", "num_trials"}

    place = {"cell", "stream", "ordinal"}
    assert set(SCHEMAS["steps"].names) == _names(Step) | place
    features = {f"feature_{name}" for name in _names(StateFeatures)}
    assert set(SCHEMAS["decisions"].names) == (_names(Decision) - {"features"}) | features | place
    assert set(SCHEMAS["trials"].names) == _names(Trial) | place | {"success"}
    assert "token" not in SCHEMAS["decisions"].names


def test_the_volatile_columns_are_those_that_the_architecture_names() -> None:
    volatile = {(table, name) for table in SCHEMAS for name in SCHEMAS[table].names if is_volatile(table, name)}

    assert volatile == {
        *(("episodes", name) for name in ("run", "episode_id", "epoch", "duration_s", "started_at")),
        *(("steps", name) for name in ("model_s", "environment_s")),
        *(
            ("decisions", name)
            for name in ("decision_id", "episode_id", "table_version", "shard", "received", "latency_s")
        ),
    }


def test_a_written_run_reads_back_with_all_values(tmp_path: Path) -> None:
    write_run(tmp_path / "demo", [CELL])

    tables = read_run(tmp_path / "demo")

    assert tables.episodes["ordinal"].to_pylist() == list(range(60))
    first = tables.decisions.slice(0, 1).to_pylist()[0]
    expected = stream_episodes(CELL, count=1)[0].decisions[0]
    assert first["allowed"] == list(expected.allowed)
    assert first["masked"] == [("consolidate", "unsupported"), ("forget", "unsupported")]
    assert first["per_arm"][1] == ("noop", [("bonus", float("inf")), ("q", 0.5)])
    assert tables.episodes["payload"][0].as_py().startswith('{"b":{"a":2,"z":1}')
    assert tables.steps.num_rows == sum(len(episode.steps) for episode in stream_episodes(CELL))


def test_equal_episodes_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, [MATRIX])

    files = sorted((tmp_path / "a").rglob("*.parquet"))

    assert len(files) == 8
    assert all(path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes() for path in files)


def test_the_order_of_a_mapping_does_not_reach_the_bytes(tmp_path: Path) -> None:
    episode = stream_episodes(CELL, count=1)[0]
    turned = make_decision(masked={"forget": "unsupported", "consolidate": "unsupported"})
    upkeep = {"forget": "", "consolidate": "OSError: gone"}
    for name, decision, done in (("a", make_decision(), upkeep), ("b", turned, dict(reversed(upkeep.items())))):
        changed = dataclasses.replace(episode, decisions=(decision,), maintenance=done)
        ParquetSink(tmp_path / name).write_block(CELL.cell_id, 0, 0, [changed])

    for table in ("decisions", "episodes"):
        a, b = (next((tmp_path / name / table).rglob("*.parquet")).read_bytes() for name in ("a", "b"))
        assert a == b, table
    pairs = read_run(tmp_path / "b").episodes["maintenance"].to_pylist()
    assert pairs == [[("consolidate", "OSError: gone"), ("forget", "")]]


def test_trials_are_written_in_arm_order_and_read_on_demand(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [MATRIX])

    tables = read_run(tmp_path / "run", tables=("trials",))

    episodes = stream_episodes(MATRIX)
    assert tables.trials["action_id"].to_pylist() == [t.action_id for episode in episodes for t in episode.trials]
    row = tables.trials.to_pylist()[9 + 7]
    assert (row["ordinal"], row["action_id"], row["success"], row["reward"]) == (1, "insight_only", False, None)
    assert tables.episodes["num_trials"].to_pylist() == [9] * 60
    assert read_run(tmp_path / "run").trials.num_rows == 0


def test_without_trials_there_is_no_file_of_them(tmp_path: Path) -> None:
    write_stream(tmp_path, CELL)
    assert not (tmp_path / "trials").exists()

    write_stream(tmp_path, FakeCell(num_tasks=2, policy="every_arm", trials=True))
    assert read_run(tmp_path, tables=("trials",)).trials.num_rows == 18


def test_a_missing_file_of_trials_is_named(tmp_path: Path) -> None:
    write_stream(tmp_path, MATRIX, count=3)
    next((tmp_path / "trials").rglob("*.parquet")).unlink()

    assert read_run(tmp_path).episodes.num_rows == 3
    with pytest.raises(DamagedFileError, match=r"trials.*missing although its block is finished"):
        read_run(tmp_path, tables=("trials",))


def test_a_partial_block_is_rewritten_under_its_name(tmp_path: Path) -> None:
    write_stream(tmp_path, CELL, count=3)
    write_stream(tmp_path, CELL, count=7)

    assert read_run(tmp_path).episodes.num_rows == 7
    assert [path.name for path in (tmp_path / "episodes").rglob("*.parquet")] == ["stream-000-block-0000.parquet"]


def test_a_crash_between_the_files_of_a_block_leaves_the_old_tasks(tmp_path: Path) -> None:
    # Given a block of 3 tasks whose rewrite with 7 died before the episodes file.
    write_stream(tmp_path / "run", MATRIX, count=3)
    write_stream(tmp_path / "newer", MATRIX, count=7)
    for table in ("steps", "decisions", "trials"):
        newer = next((tmp_path / "newer" / table).rglob("*.parquet"))
        newer.replace(tmp_path / "run" / newer.relative_to(tmp_path / "newer"))

    tables = read_run(tmp_path / "run", tables=("steps", "decisions", "trials"))

    assert set(tables.trials["ordinal"].to_pylist()) == {0, 1, 2}
    assert set(tables.steps["ordinal"].to_pylist()) == {0, 1, 2}
    assert set(tables.decisions["ordinal"].to_pylist()) == {0, 1, 2}


def test_a_leftover_temporary_file_is_ignored_and_then_replaced(tmp_path: Path) -> None:
    write_stream(tmp_path, CELL, count=3)
    file = next((tmp_path / "episodes").rglob("*.parquet"))
    leftover = file.with_name(f".{file.name}.tmp")
    leftover.write_bytes(b"PAR1 half")

    assert read_run(tmp_path).episodes.num_rows == 3
    write_stream(tmp_path, CELL, count=4)

    assert not leftover.exists()
    assert read_run(tmp_path).episodes.num_rows == 4


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    write_stream(tmp_path, CELL, count=3)
    file = next((tmp_path / "steps").rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-10])

    with pytest.raises(DamagedFileError, match=file.name):
        read_run(tmp_path)


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    write_stream(tmp_path, CELL, count=3)
    file = next((tmp_path / "episodes").rglob("*.parquet"))
    sound, content = read_run(tmp_path).episodes, file.read_bytes()
    found = 0
    positions = range(0, len(content), len(content) // 97)
    for position in positions:
        flipped = bytearray(content)
        flipped[position] ^= 1
        file.write_bytes(flipped)
        try:
            # A bit of a page's statistics may turn unnoticed; a value never does.
            assert read_run(tmp_path).episodes.equals(sound), position
        except (DamagedFileError, SchemaVersionError) as error:
            found += file.name in str(error)
    assert found > len(positions) // 2


def test_a_missing_file_of_a_finished_block_is_named(tmp_path: Path) -> None:
    write_stream(tmp_path, CELL, count=3)
    next((tmp_path / "decisions").rglob("*.parquet")).unlink()

    with pytest.raises(DamagedFileError, match=r"decisions.*missing although its block is finished"):
        read_run(tmp_path)


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    write_stream(tmp_path, CELL, count=3)
    file = next((tmp_path / "episodes").rglob("*.parquet"))
    table = pq.read_table(file)
    pq.write_table(table.replace_schema_metadata({b"memcon.table": b"episodes", b"memcon.schema_version": b"99"}), file)

    with pytest.raises(
        SchemaVersionError, match=f"version episodes 99, this memcon reads episodes 1, 2, {SCHEMA_VERSION};"
    ):
        read_run(tmp_path)


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "steps").write_text("a file where a folder belongs")

    with pytest.raises(StorageError, match=r"cannot write .*steps.*run the same command again"):
        write_stream(tmp_path / "run", CELL, count=1)


def test_a_full_disk_keeps_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stream(tmp_path, CELL, count=3)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("memcon.files.os.fsync", full)
    with pytest.raises(StorageError, match="No space left on device"):
        write_stream(tmp_path, CELL, count=5)

    assert read_run(tmp_path).episodes.num_rows == 3
    assert not list(tmp_path.rglob("*.tmp"))


def test_episodes_of_another_block_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvariantError, match=r"block 1 of cell .* holds ordinals 50\.\.99"):
        ParquetSink(tmp_path).write_block(CELL.cell_id, 0, 1, stream_episodes(CELL, count=2))


def test_no_run_and_no_task_yet_are_told_apart(tmp_path: Path) -> None:
    write_run(tmp_path / "known", [FakeCell(num_tasks=1)])
    (tmp_path / "fresh").mkdir()

    with pytest.raises(NotFoundError, match=r"no run folder .*absent; runs in .*: known"):
        read_run(tmp_path / "absent")
    with pytest.raises(NotFoundError, match="no finished task in Parquet yet"):
        read_run(tmp_path / "fresh")


def test_chosen_columns_come_with_their_place(tmp_path: Path) -> None:
    write_stream(tmp_path, CELL, count=2)

    tables = read_run(tmp_path, tables=("episodes",), columns={"episodes": ("success",)})

    assert tables.episodes.column_names == ["cell", "stream", "ordinal", "success"]
    assert tables.decisions.num_rows == 0


def test_the_factory_survives_pickling(tmp_path: Path) -> None:
    factory = pickle.loads(pickle.dumps(SinkFactory(run_dir=tmp_path)))

    factory().write_block(CELL.cell_id, 0, 0, stream_episodes(CELL, count=1))

    assert read_run(tmp_path).episodes.num_rows == 1
