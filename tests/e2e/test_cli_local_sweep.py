"""The whole path without Ray: `configs/smoke.yaml --local`, then every command that reads its run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcon import registry
from memcon_platform.config import load
from support.shell import SMOKE, Printed, memcon

COMMANDS = ("bench", "benchmarks", "data", "plugins", "replay", "report", "status", "sweep", "track")


def record(printed: Printed) -> Any:
    """What a command printed as JSON, once it succeeded."""
    assert printed.code == 0, printed.err
    return json.loads(printed.out)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Printed]:
    """The folder of a finished run with tracking, and what the command printed."""
    root = tmp_path_factory.mktemp("first") / "runs"
    return root / "smoke", memcon("sweep", SMOKE, "--local", f"root={root}")


@pytest.fixture(scope="module")
def run(swept: tuple[Path, Printed]) -> Path:
    return swept[0]


def test_a_sweep_ends_with_its_table_and_says_where_everything_is(swept: tuple[Path, Printed]) -> None:
    run, printed = swept
    assert printed.code == 0, printed.err
    assert printed.err == ""
    assert "8 of 8 tasks" in printed.out
    assert f"report: {run / 'report.html'}" in printed.out
    assert f"mlflow ui --backend-store-uri sqlite:///{run.parent / 'mlflow.db'}" in printed.out
    assert (run / "report.html").read_text().rstrip().endswith("</html>")


def test_status_counts_every_task(run: Path) -> None:
    found = record(memcon("status", run, "--json"))
    counts = {key: found[key] for key in ("run", "cells", "planned", "done", "failed", "unevaluable", "pending")}
    assert counts == {
        "run": "smoke", "cells": 2, "planned": 8, "done": 8, "failed": 0, "unevaluable": 0, "pending": 0
    }  # fmt: skip


def test_report_gives_every_cell_with_its_axes_and_interval(run: Path) -> None:
    cells = record(memcon("report", run, "--json"))["cells"]
    assert {(cell["memory"], cell["policy"], cell["n"]) for cell in cells} == {
        ("metagpt", "ucb", 4),
        ("empty", "none", 4),
    }
    for cell in cells:
        low, high = cell["interval"]
        assert 0 <= low <= cell["successes"] / cell["n"] <= high <= 1
        # BE-8: what is named is what ran.
        assert (cell["benchmark"], cell["provenance"]) == ("household", "self-made")
        assert cell["tokens"]


def test_the_journal_verifies_and_the_tables_are_whole(run: Path) -> None:
    verified = record(memcon("replay", "verify", run, "--json"))
    assert verified["ok"]
    assert verified["tables"] == 1
    assert verified["events"] > 0
    checked = record(memcon("data", "check", run, "--json"))
    assert (checked["ok"], checked["found"], checked["planned"]) == (True, 8, 8)


def test_the_same_settings_give_the_same_bytes(run: Path, tmp_path: Path) -> None:
    # The second run has another root and two streams in a worker at once, and no tracking.
    again = memcon(
        "sweep", SMOKE, "--local", f"root={tmp_path}", "workers=1", "streams_per_worker=2", "tracking.enabled=false"
    )
    assert again.code == 0, again.err
    compared = memcon("data", "compare", run, tmp_path / "smoke")
    assert (compared.code, compared.out.strip()) == (0, "equal")
    assert record(memcon("data", "compare", run, tmp_path / "smoke", "--json")) == {"equal": True, "differences": []}


def test_different_settings_are_told_apart(run: Path, tmp_path: Path) -> None:
    other = memcon(
        "sweep", SMOKE, "--local", f"root={tmp_path}", "axes.memory=[empty]", "axes.policy=[none]", "include=[]",
        "tracking.enabled=false", "limit=2", "--json",
    )  # fmt: skip
    assert record(other)["cells"]
    compared = memcon("data", "compare", run, tmp_path / "smoke", "--json")
    assert compared.code == 1
    assert not json.loads(compared.out)["equal"]


def test_a_repeated_rebuild_adds_nothing(run: Path) -> None:
    first = record(memcon("track", "rebuild", run, "--json"))
    second = record(memcon("track", "rebuild", run, "--json"))
    assert (first["cells"], first["tasks"]) == (2, 8)
    # The sweep itself tracked everything already.
    assert (first["added"], second["added"]) == (0, 0)


def test_the_same_command_again_has_nothing_left_to_run(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*.parquet")}
    printed = memcon("sweep", SMOKE, "--local", f"root={run.parent}")
    assert printed.code == 0, printed.err
    assert "nothing is left to run" in printed.out
    assert {path: path.read_bytes() for path in run.rglob("*.parquet")} == before


def test_plan_tells_cells_tasks_and_decisions_and_runs_nothing(tmp_path: Path) -> None:
    plan = record(memcon("sweep", SMOKE, "--plan", f"root={tmp_path / 'runs'}", "--limit", "7", "--json"))
    assert (plan["run"], plan["tasks"], plan["streams"]) == ("smoke", 14, 2)
    assert [cell["tasks"] for cell in plan["cells"]] == [7, 7]
    assert [cell["label"] for cell in plan["cells"]] == [
        cell.label for cell in load(SMOKE, [f"root={tmp_path}"], 7).cells
    ]
    assert plan["decisions"] > 7
    assert not (tmp_path / "runs").exists()


def test_benchmarks_list_has_every_registered_benchmark() -> None:
    rows = record(memcon("benchmarks", "list", "--json"))
    assert [row["name"] for row in rows] == registry.names("benchmark")
    household = next(row for row in rows if row["name"] == "household")
    assert household["tasks"] == sum(household["goal_types"].values()) == 134


def test_help_lists_every_command_with_one_line_and_examples() -> None:
    printed = memcon("--help")
    assert printed.code == 0
    listed = {line.split()[0]: line for line in printed.out.splitlines() if line.startswith("  ") and line.split()}
    assert set(COMMANDS) <= set(listed)
    for name in COMMANDS:
        words = listed[name].split()[1:]
        assert words, name
        # Told whole: nothing is cut at the end of the line.
        assert words[-1].endswith((".", "?")), listed[name]
        assert not words[-1].endswith("..."), listed[name]
    sweep = memcon("sweep", "--help").out
    assert "\n    memcon sweep configs/demo.yaml\n" in sweep
    assert "\\b" not in sweep
