"""plan.json and config.yaml: what `write_plan` writes, `read_plan` reads back or refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from memcon.errors import DamagedFileError, MemconError, NotFoundError, SchemaVersionError, StorageError
from memcon_platform.config import RunPlan, has_plan, load, plan_file, provenance, read_plan, read_record, write_plan
from support.config_plugins import GRID, toy_plugins


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with toy_plugins():
        yield


@pytest.fixture
def plan(tmp_path: Path) -> RunPlan:
    policies = ["none", {"name": "ucb", "c": 0.3, "control": {"plan_injection": False}}]
    include = [{"policy": "ucb", "seed": 3, "streams": 3, "split": "partition"}]
    document = {"axes": {**GRID, "policy": policies}, "include": include, "root": str(tmp_path / "runs")}
    path = tmp_path / "trial.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create(document)), encoding="utf-8")
    return load(path, ["task_time_limit_s=2.5"])


def test_a_written_plan_reads_back_equal(plan: RunPlan) -> None:
    assert not has_plan(plan.run_dir)

    write_plan(plan.run_dir, plan, wall_time_s=0.0)

    assert has_plan(plan.run_dir)
    assert read_plan(plan.run_dir) == plan


@pytest.mark.parametrize("how", ["copied", "renamed"])
def test_a_run_is_named_as_its_folder_so_that_the_folder_that_was_asked_for_is_read(plan: RunPlan, how: str) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=0.0)
    other = plan.root / "other"
    if how == "copied":
        shutil.copytree(plan.run_dir, other)
    else:
        plan.run_dir.rename(other)

    read = read_plan(other)

    assert (read.run_dir, read.run) == (other, "other")
    assert read == replace(plan, run="other")


def test_a_run_is_found_from_inside_its_folder(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=0.0)
    (plan.run_dir / "policy").mkdir()
    for inside, given in ((".", "."), ("policy", "..")):
        monkeypatch.chdir(plan.run_dir / inside)
        assert read_plan(Path(given)).run_dir.resolve() == plan.run_dir.resolve()
        assert read_plan(Path(given)).run == plan.run


def test_the_record_has_what_its_readers_need(plan: RunPlan) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=1_700_000_000.0)

    record = json.loads((plan.run_dir / "plan.json").read_text(encoding="utf-8"))

    assert (record["schema_version"], record["run"]) == (1, "trial")
    assert record["created_at"] == "2023-11-14T22:13:20+00:00"
    assert record["provenance"] == provenance()
    shared = record["cells"][-1]
    assert (shared["num_tasks"], shared["stream_tasks"], shared["streams"]) == (4, [4, 3, 3], 3)
    assert shared["policy"] == {"name": "ucb", "parameters": {}, "label": "ucb"}
    assert shared["settings"]["policy"]["c"] == 1.4


def test_the_written_config_gives_the_same_cells_again(plan: RunPlan) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=0.0)

    again = load(plan.run_dir / "config.yaml")

    assert again == plan


def test_a_plan_read_by_a_later_version_still_reads(plan: RunPlan) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=0.0)

    with toy_plugins(runner="LATER_RUNNER"):
        assert read_plan(plan.run_dir).cells == plan.cells


def test_a_continued_run_keeps_its_beginning_and_shows_a_change_of_version(
    plan: RunPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=0.0)
    write_plan(plan.run_dir, plan, wall_time_s=60.0)
    same = json.loads((plan.run_dir / "plan.json").read_text(encoding="utf-8"))

    monkeypatch.setattr(plan_file, "provenance", lambda _plugins: {"memcon_version": "9.9.9"})
    write_plan(plan.run_dir, plan, wall_time_s=120.0)
    write_plan(plan.run_dir, plan, wall_time_s=180.0)
    mixed = json.loads((plan.run_dir / "plan.json").read_text(encoding="utf-8"))

    assert (same["created_at"], same["continued_with"]) == ("1970-01-01T00:00:00+00:00", [])
    assert (mixed["created_at"], mixed["provenance"]) == (same["created_at"], same["provenance"])
    assert mixed["continued_with"] == [
        {"at": "1970-01-01T00:02:00+00:00", "provenance": {"memcon_version": "9.9.9"}},
    ]


def test_the_endpoints_of_every_launch_are_on_record(plan: RunPlan) -> None:
    one, two, moved = (
        "backbone 'a' at http://localhost:1/v1",
        "backbone 'b' at http://localhost:2/v1",
        "backbone 'b' at http://localhost:3/v1",
    )
    launches = [
        (one, two),
        # Less is left, and then nothing.
        (two,),
        (),
        (moved,),
        (moved,),
        (one, moved),
    ]
    for number, endpoints in enumerate(launches):
        write_plan(plan.run_dir, plan, wall_time_s=60.0 * number, endpoints=endpoints)

    record = read_record(plan.run_dir)

    assert record.provenance == {**provenance(), "endpoints": [one, two]}
    assert [(later.at[14:16], later.provenance["endpoints"]) for later in record.continued_with] == [
        ("03", [moved]),
        ("05", [one, moved]),
    ]


def test_the_record_reads_back_with_the_launches_that_differ(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=0.0)
    first = provenance()
    monkeypatch.setattr(plan_file, "provenance", lambda _plugins: {"memcon_version": "9.9.9"})
    write_plan(plan.run_dir, plan, wall_time_s=120.0)

    record = read_record(plan.run_dir)

    assert (record.plan, record.created_at, record.provenance) == (plan, "1970-01-01T00:00:00+00:00", first)
    assert [(item.at, item.provenance) for item in record.continued_with] == [
        ("1970-01-01T00:02:00+00:00", {"memcon_version": "9.9.9"})
    ]


@pytest.mark.parametrize(
    ("key", "value"), [("created_at", 3), ("provenance", []), ("continued_with", [{"at": "later"}]), ("run", None)]
)
def test_a_record_of_another_form_is_refused(plan: RunPlan, key: str, value: object) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=0.0)
    path = plan.run_dir / "plan.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), key: value}), encoding="utf-8")

    with pytest.raises(DamagedFileError, match=rf"plan\.json is damaged: {key}"):
        read_record(plan.run_dir)


def test_a_plan_is_read_without_omegaconf() -> None:
    # It takes 50 ms to import, and those who only read a plan, such as `memcon report`, have no use for it.
    code = "import sys, memcon_platform.report, memcon_platform.trajectory; print('omegaconf' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"schema_version": 1}', '{"schema_version": 1, "run": "x", "cells": [3]}', "\x00\x01"],
)
def test_a_damaged_plan_is_refused_and_not_written_over(plan: RunPlan, text: str) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=0.0)
    path = plan.run_dir / "plan.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises((DamagedFileError, SchemaVersionError)):
        read_plan(plan.run_dir)

    with pytest.raises(MemconError):
        write_plan(plan.run_dir, plan, wall_time_s=0.0)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", "0"), ("streams", None), ("policy", {"name": "ucb"}), ("settings", {}), ("stream_tasks", [1.5])],
)
def test_a_cell_of_another_form_is_refused(plan: RunPlan, key: str, value: object) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=0.0)
    path = plan.run_dir / "plan.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["cells"][1][key] = value
    path.write_text(json.dumps(record), encoding="utf-8")

    with pytest.raises(DamagedFileError, match=r"plan\.json is damaged"):
        read_plan(plan.run_dir)


def test_a_plan_of_a_later_schema_is_refused(plan: RunPlan) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=0.0)
    path = plan.run_dir / "plan.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"schema_version": 1', '"schema_version": 2'), "utf-8")

    with pytest.raises(SchemaVersionError, match="schema version 2"):
        read_plan(plan.run_dir)


def test_an_unknown_run_names_the_runs_beside(plan: RunPlan) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=0.0)

    with pytest.raises(NotFoundError, match=r"no run folder .*trail; runs in .*: trial \(did you mean '.*trial'\?\)"):
        read_plan(plan.root / "trail")

    (plan.root / "trail").mkdir()
    with pytest.raises(NotFoundError, match=r"trail holds no plan\.json.*runs in .*: trial"):
        read_plan(plan.root / "trail")

    with pytest.raises(NotFoundError, match=r"holds no plan\.json.*runs in .*: trial"):
        read_plan(plan.root)


def test_a_place_that_cannot_be_written_is_one_clear_error(plan: RunPlan, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder", encoding="utf-8")

    with pytest.raises(StorageError, match="cannot write"):
        write_plan(tmp_path / "taken" / "trial", plan, wall_time_s=0.0)


def test_a_failed_write_leaves_the_old_plan(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plan(plan.run_dir, plan, wall_time_s=0.0)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StorageError, match="No space left"):
        write_plan(plan.run_dir, replace(plan, cells=plan.cells[:1]), wall_time_s=0.0)
    monkeypatch.undo()

    assert read_plan(plan.run_dir) == plan
