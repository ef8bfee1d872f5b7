"""`memcon study` as a user meets it: headroom, the same numbers again, a whole study, and its mistakes in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.shell import memcon, the_error

CONFIG = """
run: tiny
axes:
  benchmark: [household]
  framework: [{name: lobster, history_window: all, few_shot: 0, list_actions: true, loop_stop: false}]
  backbone: [imitator]
  memory: [metagpt]
  policy: [ucb, "fixed:noop"]
  seed: [0, 1]
embedder: hashing
limit: 3
tracking: {enabled: false}
workers: 1
study: {streams: 1, groups: [1, 2]}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "tiny.yaml"
    path.write_text(f"root: {path.parent / 'runs'}\n{CONFIG}")
    return path


def test_headroom_prints_its_verdict_and_repeats_to_the_digit(config: Path) -> None:
    first = memcon("study", "headroom", config, "--local", "--json")
    assert first.code == 0, first.err
    again = memcon("study", "headroom", config, "--local", "--json")
    assert again.out == first.out
    assert "nothing is left to run" in again.err
    record = json.loads(first.out)
    (matrix,) = record["matrices"]
    assert (record["run"], matrix["streams"], matrix["tasks"], matrix["seeds"]) == ("tiny-matrix", 2, 3, [0, 1])
    assert [row["policy"] for row in matrix["learners"]] == ["ucb", "ucb"]
    printed = memcon("study", "headroom", config, "--local")
    assert printed.code == 0, printed.err
    assert "no headroom: " in printed.out
    assert "exact replay on the outcome matrix" in printed.out


def test_a_whole_study_is_headroom_then_the_sweep_with_its_report(config: Path) -> None:
    printed = memcon("study", "run", config, "--local", "--limit", "2", "run=whole")
    assert printed.code == 0, printed.err
    verdict, report = printed.out.index("headroom: "), printed.out.index("report: ")
    assert verdict < report
    assert (config.parent / "runs" / "whole" / "report.html").exists()
    assert (config.parent / "runs" / "whole-matrix" / "plan.json").exists()


def test_a_config_without_a_memory_is_refused_in_one_line(config: Path) -> None:
    refused = memcon("study", "headroom", config, "axes.memory=[empty]", "axes.policy=[none]", "--local")
    assert "every cell has the memory 'empty'" in the_error(refused)
    wrong = memcon("study", "headroom", config, "study.groups=[0]", "--local")
    assert "groups = 0" in the_error(wrong)
