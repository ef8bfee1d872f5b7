"""What a study prints: the verdict, all yardsticks, every learner with its label, and no row beyond 80 columns."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from memcon import codec
from memcon.learning.credit import RewardSettings
from memcon_platform.report.wording import interval
from memcon_platform.study.findings import ArenaFindings, findings
from memcon_platform.study.matrix_plan import Arena, Skipped
from memcon_platform.study.terminal import render
from support.episodes import FakeCell
from support.matrices import learner_of, outcome_matrix, table_settings

OPPOSED = {"audit": (0.1, 0.2, 0.9), "house": (0.2, 0.9, 0.1)}
LABELS = {"benchmark": "made up", "framework": "f", "backbone": "b", "memory": "m"}


@pytest.fixture(scope="module")
def found() -> ArenaFindings:
    learner = learner_of(table_settings("ucb", c=0.2), label="ucb estimator=mean state_key=goal_plan c=0.2")
    skipped = (Skipped(policy="ucb action_set=retrieval_heavy", reason="its arms are not in the matrix"),)
    cells = (FakeCell(benchmark="mix").planned(0),)
    arena = Arena(labels=LABELS, cells=cells, learners=(learner,), skipped=skipped)
    matrix = outcome_matrix(OPPOSED, seeds=2, streams=4, tasks=40, unevaluable=0.05)
    return findings(matrix, arena, (1, 8, 64), RewardSettings())


@pytest.fixture(scope="module")
def lines(found: ArenaFindings) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=80).print(render(found))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_verdict_comes_before_any_table(lines: list[str]) -> None:
    assert lines[0] == "Outcome matrix: 8 streams (2 seeds) x 40 tasks x 3 arms"
    first = next(i for i, line in enumerate(lines) if line.startswith("headroom: the oracle per family has +"))
    assert first < next(i for i, line in enumerate(lines) if "─" in line)


def test_no_number_is_cut_at_80_columns(lines: list[str], found: ArenaFindings) -> None:
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    text = " ".join(" ".join(lines).split())
    for row in found.headroom.yardsticks:
        assert row.name in text
        if row.difference:
            assert interval(row.difference.low, row.difference.high) in text


def test_a_replay_is_labelled_and_shows_its_repetitions(lines: list[str]) -> None:
    text = " ".join(" ".join(lines).split())
    assert "exact replay on the outcome matrix: the memory does not react to the policy" in text
    assert " 1 x8 " in text
    assert " 8 x1 " in text
    # One table tells nothing of others; and eight streams bring it no task that one has not.
    assert "‡ one table: for other tasks only" in text
    assert re.search(r" 8 x1 +\S+ [+-]\d+\.\d \(\d+\.\d\)‡ ", text)
    assert not re.search(r" 1 x8 +\S+ [+-]\d+\.\d \(\d+\.\d\)‡ ", text)
    assert "All streams have the same 40 tasks." in text
    assert "A table of n streams meets each of the 40 tasks n times" in text
    assert "picked on other seeds and tasks: 5 folds of tasks" in text
    assert "64 streams a table: not replayed, the matrix has 8" in text
    assert "ucb action_set=retrieval_heavy: not replayed: its arms are not in the matrix" in text
    assert "outcomes could not be evaluated" in text


def test_a_study_says_what_its_numbers_are_no_evidence_of(lines: list[str], found: ArenaFindings) -> None:
    imitator, constructed = found.disclosures
    assert "not a language model" in imitator
    # Of the matrix's families only `audit` is one of the constructed ones.
    assert "audit (memory does harm)." in constructed
    text = " ".join(" ".join(lines).split())
    assert text.index(imitator) < text.index(constructed) < text.index("All streams have the same")
    assert codec.encode(found)["disclosures"] == [imitator, constructed]


def test_an_interval_that_excludes_nothing_is_told_from_one_that_hits_it(
    lines: list[str], found: ArenaFindings
) -> None:
    rows = {row.name: row.difference for row in found.headroom.yardsticks if row.difference}
    text = "\n".join(lines)
    assert {low > 0 or high < 0 for low, high in ((one.low, one.high) for one in rows.values())} == {True, False}
    for one in rows.values():
        mark = "\\*" if one.low > 0 or one.high < 0 else "[^*]"
        assert re.search(re.escape(interval(one.low, one.high)) + mark, text), one
    # No sign before a nothing.
    assert "+0.0," not in text
    assert "[+" not in text


def test_gains_by_family_name_each_policy_once_with_its_table(lines: list[str]) -> None:
    label = "ucb estimator=mean state_key=goal_plan c=0.2, a table 8 x1"
    table = next(place for place, line in enumerate(lines) if line.startswith("points over the best single arm in a"))
    text = "\n".join(lines[table:])
    assert " ".join(text.split()).count(label) == 1
    assert re.search(r"^  audit +[+-]", text, re.MULTILINE)
    assert re.search(r"^  house +[+-]", text, re.MULTILINE)
    titles = " ".join(" ".join(lines).split())
    assert "a table 8 x1: 8 streams share it, 1 of them" in titles
    assert "those with fewer than 30 outcomes" in titles


def test_findings_are_json_without_nan(found: ArenaFindings) -> None:
    record = json.loads(json.dumps(codec.encode(found), allow_nan=False))
    assert next(row["name"] for row in record["headroom"]["yardsticks"]) == "best single arm"
    assert {result["group"] for result in record["learners"]} == {1, 8}
    context = record["learners"][0]["contexts"][0]
    assert set(context) == {"key", "level", "tables", "pulls", "by_arm", "not_learned"}
