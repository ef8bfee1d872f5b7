"""A package of somebody else, installed beside memcon: its plug-ins run in sweeps, and what it gets wrong is told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from memcon import registry
from memcon_platform.trajectory import read_run
from support.shell import ROOT, Printed, memcon, the_error
from support.sweeps import Sweep, record
from support.third_party import BROKEN, RIVAL, environment, install

CONFIG = """
axes:
  benchmark: [greenhouse]
  framework: [dialogue, {name: lobster, list_actions: true, few_shot: 0}]
  backbone: [gardener]
  memory: [notebook, metagpt]
  policy: [boltzmann, none]
  seed: [0]
include:
  - benchmark: {name: mix, num_tasks: 8, parts: [{name: greenhouse, weight: 0.5}, {name: habit, weight: 0.5}]}
    framework: dialogue
    memory: {name: notebook, insight_k: 5, preload: {per_type: 2}}
    policy: {name: boltzmann, temperature: 0.1}
embedder: hashing
limit: 4
workers: 1
tracking: {enabled: false}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, and beside it one that is broken: whatever runs here runs in spite of that one."""
    return install(tmp_path_factory.mktemp("packages"), BROKEN)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "plugged.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def printed_json(printed: Printed) -> Any:
    assert printed.code == 0, printed.err
    return json.loads(printed.out)


# --- its plug-ins run -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(site: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep."""
    root = tmp_path_factory.mktemp("runs")
    swept = memcon("sweep", config, "--local", f"root={root}", environment=environment(site))
    assert (swept.code, swept.err) == (0, "")
    return root / "plugged"


def test_cells_of_every_kind_run_in_a_sweep_and_stand_in_its_report(site: Path, run: Path) -> None:
    sees = environment(site)

    report = printed_json(memcon("report", run, "--json", environment=sees))
    cells = {(cell["framework"], cell["memory"], cell["policy"]): cell for cell in report["cells"]}
    lobster = "lobster few_shot=0 list_actions=true"
    filled = "notebook insight_k=5 preload.per_type=2"
    assert set(cells) == {
        *((framework, memory, policy) for framework in ("dialogue", lobster) for memory in ("notebook", "metagpt")
          for policy in ("boltzmann", "none")),
        ("dialogue", filled, "boltzmann temperature=0.1"),
    }  # fmt: skip
    assert all((cell["status"], cell["n"], cell["unevaluable"]) == ("done", 4, 0) for cell in cells.values())
    assert {cell["backbone"] for cell in cells.values()} == {"gardener"}
    assert report["provenance"]["plugin_packages"] == "memcon-notebook 1.2.0"
    assert any("greenhouse (only the past tells" in text for text in report["disclosures"])
    for word in ("greenhouse", "dialogue", "gardener", "notebook", "boltzmann"):
        assert word in (run / "report.html").read_text(encoding="utf-8")
    verified = printed_json(memcon("replay", "verify", run, "--json", environment=sees))
    assert (verified["ok"], verified["tables"]) == (True, 5)
    decisions = read_run(run).decisions
    # A softmax gives every arm a chance: no propensity is 1, none is 0.
    chosen = [row for row in decisions.to_pylist() if row["action_id"] != "default"]
    assert len(chosen) >= 4 * 5
    assert all(0 < row["propensity"] < 1 for row in chosen)
    assert sum(decisions["tokens_insights"].to_pylist()) > 0


def test_the_config_of_the_guide_runs(site: Path, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "greenhouse.yaml").write_text(text, encoding="utf-8")

    swept = memcon(
        "sweep", "greenhouse.yaml", "--local", "limit=1", "--json", cwd=tmp_path, environment=environment(site)
    )

    assert [cell["n"] for cell in printed_json(swept)["cells"]] == [1] * (2 * 3 * 2)


@pytest.mark.ray
@pytest.mark.timeout(180)
def test_a_served_policy_decides_by_the_rule_as_one_in_process_does(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given workers and a policy owner in processes of their own, which find the package as this one does
    monkeypatch.setenv("PYTHONPATH", environment(site)["PYTHONPATH"])
    axes = {
        "benchmark": "greenhouse", "framework": "dialogue", "backbone": "gardener", "memory": "notebook",
        "policy": "boltzmann",
    }  # fmt: skip
    settings = (*(f"axes.{axis}=[{name}]" for axis, name in axes.items()), "limit=6", "workers=1")
    here, served = Sweep(tmp_path, "here", *settings), Sweep(tmp_path, "served", *settings)

    here.finish("--local")
    served.finish()

    # Then the runs are equal decision by decision, and the journal of the owner folds to what it served
    assert record("data", "compare", here.run_dir, served.run_dir)["equal"]
    assert record("replay", "verify", served.run_dir)["ok"]
    assert read_run(served.run_dir).decisions.num_rows >= 6


# --- what is wrong is told, and stops nobody else ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "axes.memory=[{name: notebook, insigth_k: 3}]",
            "axes.memory[0]: unknown key 'insigth_k'; allowed: insight_k, min_tried, top_k (did you mean 'insight_k'?)",
        ),
        (
            "axes.policy=[{name: boltzmann, decay: 2}]",
            "axes.policy[0]: decay = 2.0: expected a finite number in [0, 1]",
        ),
        (
            "axes.benchmark=[{name: unbuilt, size: 10}]",
            "axes.benchmark[0]: benchmark 'unbuilt' refuses its parameters: ValueError: size is too large",
        ),
        (
            "axes.memory=[halfway]",
            "axes.memory[0]: memory 'halfway' (memcon_halfway.memory:PLUGIN of memcon-halfway 0.3) cannot be imported: "
            "ModuleNotFoundError: No module named 'a_library_that_is_not_there'; mend or uninstall that package",
        ),
        (
            "axes.benchmark=[unbuilt]",
            "axes: benchmark 'unbuilt' cannot be built: OSError: the world file is missing "
            "(memcon_halfway.unbuilt:PLUGIN of memcon-halfway 0.3)",
        ),
    ],
)
def test_a_mistake_of_a_config_or_a_package_is_one_line(
    override: str, message: str, site: Path, config: Path, tmp_path: Path
) -> None:
    printed = memcon(
        "sweep", config, "--local", f"root={tmp_path}", "include=[]", override, environment=environment(site)
    )

    assert the_error(printed) == f"error: override '{override}': {message}"
    assert list(tmp_path.iterdir()) == []


def test_plugins_lists_every_plug_in_and_names_what_cannot_be_used(tmp_path: Path) -> None:
    sees = environment(install(tmp_path, BROKEN, RIVAL))

    rows = printed_json(memcon("plugins", "--json", environment=sees))
    shown = memcon("plugins", environment=sees)

    found = {(row["kind"], row["name"], row["package"]): row for row in rows}
    ours = [row for row in rows if row["package"] == "memcon"]
    assert len(ours) == sum(len(registry.names(kind)) for kind in registry.KINDS)
    assert all(row["error"] is None and row["summary"] for row in ours)
    assert found["policy", "boltzmann", "memcon-notebook"] == {
        "kind": "policy", "name": "boltzmann", "package": "memcon-notebook", "version": "1.2.0",
        "entry_point": "memcon_notebook.rule:PLUGIN", "error": None,
        "summary": "softmax exploration; its temperature falls with the decisions at a key",
    }  # fmt: skip
    assert "'a_library_that_is_not_there'" in found["memory", "halfway", "memcon-halfway"]["error"]
    # It ends the process that imports it, but not this one.
    assert "cannot be imported: SystemExit: 3" in found["memory", "quitter", "memcon-halfway"]["error"]
    both = (
        "registered 2 times: memcon.control.memory.empty:PLUGIN of memcon-rival 0.3 and memcon_notebook.memory:PLUGIN"
    )
    for package in ("memcon-notebook", "memcon-rival"):
        assert both in found["memory", "notebook", package]["error"]
    assert "group memcon.memories is no kind of plug-in" in found["memories", "diary", "memcon-rival"]["error"]
    lines = shown.out.splitlines()
    assert (shown.code, shown.err, len(lines)) == (0, "", len(rows) + 1)
    assert lines[-1] == f"6 of {len(rows)} cannot be used"
    assert sum("NOT USABLE: " in line for line in lines) == 6
    (halfway,) = (line.split() for line in lines if line.startswith("memory     halfway"))
    assert halfway[:6] == ["memory", "halfway", "memcon-halfway", "0.3", "NOT", "USABLE:"]


def test_plugins_of_one_kind(site: Path) -> None:
    sees = environment(site)

    rows = printed_json(memcon("plugins", "framework", "--json", environment=sees))
    wrong = memcon("plugins", "frameworks", environment=sees)

    assert [(row["kind"], row["name"]) for row in rows] == [("framework", "dialogue"), ("framework", "lobster")]
    assert "unknown plug-in kind 'frameworks'" in the_error(wrong)
    assert "did you mean 'framework'?" in wrong.err


def test_benchmarks_are_listed_beside_broken_ones(site: Path) -> None:
    rows = {
        row["name"]: row for row in printed_json(memcon("benchmarks", "list", "--json", environment=environment(site)))
    }

    assert rows["greenhouse"]["goal_types"] == {"feed": 8, "repot": 8, "water": 8}
    assert "memcon-halfway 0.3" in rows["nowhere"]["error"]
    assert rows["unbuilt"]["error"].startswith(
        "benchmark 'unbuilt' cannot be built: OSError: the world file is missing"
    )
    assert set(rows) == {*registry.names("benchmark"), "greenhouse", "nowhere", "unbuilt"}


def test_a_run_can_be_read_where_the_package_is_not_installed(run: Path, config: Path) -> None:
    report = printed_json(memcon("report", run, "--json"))
    again = memcon("sweep", config, "--local", f"root={run.parent}", "include=[]")

    assert [cell["n"] for cell in report["cells"]] == [4] * 9
    assert any("unknown benchmark 'greenhouse'" in text for text in report["disclosures"])
    assert "axes.benchmark[0]: unknown benchmark 'greenhouse'; allowed: " in the_error(again)
