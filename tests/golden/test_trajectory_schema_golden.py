"""A change of the stored columns must raise the schema version: files of earlier runs are read by it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from memcon import codec, ids
from memcon.types import Episode
from memcon_platform.trajectory import check, compare, read_run
from memcon_platform.trajectory.schemas import ALL_TABLES, SCHEMA_VERSION, SCHEMAS
from support.episodes import FakeCell, stream_episodes, write_plan, write_run

# Version -> fingerprint of each table's columns, types, nullability and volatility. Add a line, never change one.
FINGERPRINTS = {
    1: {"episodes": "fdc349d75b2955f0", "steps": "4ef291bbd15c0faa", "decisions": "b246c750565dc25b"},
    2: {
        "episodes": "a912327311df67b9",
        "steps": "4ef291bbd15c0faa",
        "decisions": "a81eb7299ccb61ca",
        "trials": "96d8b6345a2dd627",
    },
    3: {
        "episodes": "1129191de9622a8d",
        "steps": "4ef291bbd15c0faa",
        "decisions": "a81eb7299ccb61ca",
        "trials": "96d8b6345a2dd627",
    },
}
# Two tasks as version 1 stored them, the second of them `unevaluable`.
RUN_OF_VERSION_1 = Path(__file__).parent / "run_of_schema_1"
# The same as version 2 stored them, each played under every arm.
RUN_OF_VERSION_2 = Path(__file__).parent / "run_of_schema_2"


def test_the_columns_are_those_of_their_version() -> None:
    found = {
        table: ids.stable_hash([[f.name, str(f.type), f.nullable, bool(f.metadata)] for f in SCHEMAS[table]])
        for table in ALL_TABLES
    }

    assert found == FINGERPRINTS[SCHEMA_VERSION]


def test_files_of_version_1_are_read_with_the_defaults_of_what_they_lack() -> None:
    tables = read_run(RUN_OF_VERSION_1, tables=ALL_TABLES)

    assert tables.episodes["ordinal"].to_pylist() == [0, 1]
    assert tables.episodes["outcome_class"].to_pylist() == ["truncated", "unevaluable"]
    assert tables.episodes["maintenance"].to_pylist() == [[], []]
    assert tables.episodes["num_trials"].to_pylist() == [0, 0]
    assert tables.decisions["feature_goal_type"].to_pylist() == ["put"] * 4
    assert tables.decisions["feature_benchmark"].to_pylist() == [""] * 4
    assert tables.decisions["feature_setup"].to_pylist() == [""] * 4
    assert (tables.steps.num_rows, tables.trials.num_rows) == (5, 0)
    assert all(getattr(tables, table).schema.equals(SCHEMAS[table]) for table in ALL_TABLES)


def test_files_of_version_2_are_read_with_all_that_they_have_and_without_model_ids() -> None:
    tables = read_run(RUN_OF_VERSION_2, tables=ALL_TABLES)

    assert tables.episodes["num_trials"].to_pylist() == [9, 9]
    assert tables.episodes["model_ids"].to_pylist() == [None, None]
    assert (tables.steps.num_rows, tables.trials.num_rows) == (5, 18)
    assert all(getattr(tables, table).schema.equals(SCHEMAS[table]) for table in ALL_TABLES)


def test_columns_that_came_later_may_be_chosen_alone() -> None:
    tables = read_run(RUN_OF_VERSION_1, tables=("decisions",), columns={"decisions": ("feature_setup",)})

    assert tables.decisions.column_names == ["cell", "stream", "ordinal", "feature_setup"]


def test_a_run_of_version_1_is_equal_to_the_same_tasks_stored_today(tmp_path: Path) -> None:
    cell = FakeCell(num_tasks=2, broken=(1,))
    today = write_run(tmp_path / "today", [cell])
    # The facts that version 1 did not store, as it would have told them.
    assert compare(RUN_OF_VERSION_1, today) == []

    write_plan(tmp_path / "then", [cell])
    shutil.copytree(RUN_OF_VERSION_1, tmp_path / "then", dirs_exist_ok=True)
    report = check(tmp_path / "then")
    assert (report.problems, report.notes, report.found) == ([], [], 2)


def test_a_run_of_version_2_is_equal_to_the_same_tasks_stored_today(tmp_path: Path) -> None:
    cell = FakeCell(num_tasks=2, broken=(1,), trials=True, models=("a-2025",))
    today = write_run(tmp_path / "today", [cell])

    # What version 2 did not store is no difference; what it did is one.
    assert compare(RUN_OF_VERSION_2, today) == []
    without = write_run(tmp_path / "without", [FakeCell(num_tasks=2, broken=(1,))])
    assert {found.column for found in compare(RUN_OF_VERSION_2, without) if found.column} == {"num_trials"}

    write_plan(tmp_path / "then", [cell])
    shutil.copytree(RUN_OF_VERSION_2, tmp_path / "then", dirs_exist_ok=True)
    report = check(tmp_path / "then")
    assert (report.problems, report.notes, report.found) == ([], [], 2)


def test_the_ids_of_models_are_held_against_each_other_where_both_sides_have_them(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", [FakeCell(num_tasks=2, models=("a-2025",))])
    other = write_run(tmp_path / "other", [FakeCell(num_tasks=2, models=("a-2025", "b-2025"))])

    (difference,) = compare(one, other)

    assert (difference.column, difference.num_rows, difference.first, difference.second) == (
        "model_ids", 1, "['a-2025']", "['b-2025']"
    )  # fmt: skip


def test_a_run_that_an_earlier_version_began_is_equal_where_it_kept_no_ids(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole", [FakeCell(num_tasks=2, models=("a-2025",))])
    began = write_run(tmp_path / "began", [FakeCell(num_tasks=2)])

    # Both are files of today: the tasks in one of them are older.
    assert compare(whole, began) == compare(began, whole) == []


def test_episodes_of_earlier_stream_files_are_read_with_the_defaults_of_what_they_lack() -> None:
    episode = stream_episodes(FakeCell(num_tasks=1, policy="none"))[0]
    record = json.loads(codec.encode_json(episode))
    for late in ("maintenance", "trials", "model_ids"):
        del record[late]
    for decision in record["decisions"]:
        for late in ("benchmark", "setup"):
            del decision["features"][late]

    assert codec.decode_json(Episode, json.dumps(record)) == episode
