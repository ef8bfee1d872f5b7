"""What the terminal tells in few lines: the reference of a study, gains by family, what was learned."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memcon.types import Episode
from memcon_platform.report import ReportData, build, html, terminal
from memcon_platform.report.json_form import to_json
from support.episodes import FakeCell
from support.report_runs import Played, Won, by_family, fixed, write_played

AUDIT = by_family(audit=True, household=False)
HOUSEHOLD = by_family(audit=False, household=True)
ALL = by_family(audit=True, household=True)
NOTHING = by_family(audit=False, household=False)


def _learned(won: Won, *, key: Callable[[Episode], str] | None = None, **changed: Any) -> Played:
    return Played(cell=FakeCell(**changed), won=won, key=key)


def _printed(data: ReportData) -> str:
    out = StringIO()
    Console(file=out, width=80, no_color=True).print(terminal.render(data))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


# --- reference -------------------------------------------------------------------------------------------------------


def _with_reference(tmp_path: Path, reference: str | None) -> ReportData:
    cells = [Played(cell=FakeCell(memory="empty", policy="none", seed=seed), won=NOTHING) for seed in (0, 1)]
    for arm, won in (("noop", NOTHING), ("retrieve_shallow", NOTHING), ("retrieve_deep", AUDIT)):
        cells += fixed(arm, won, seeds=(0, 1))
    cells += [Played(cell=FakeCell(policy="uniform", seed=seed), won=AUDIT) for seed in (0, 1)]
    for seed in (0, 1):
        cells += [_learned(HOUSEHOLD, seed=seed), _learned(ALL, seed=seed, policy="greedy")]
        cells += [_learned(ALL, seed=seed, memory="other", policy="greedy")]
    return build(write_played(tmp_path / f"run-{reference}", cells, reference=reference))


def test_every_other_row_of_the_memory_is_compared_with_the_reference(tmp_path: Path) -> None:
    data = _with_reference(tmp_path, "ucb")

    found = {
        group.label: [
            (yard.label, yard.difference.mean if yard.difference else None, yard.differs)
            for yard in group.yardsticks
            if yard.kind == "reference"
        ]
        for group in data.groups
    }
    ucb = "metagpt ucb"
    assert found == {
        "no memory": [],
        "metagpt fixed:noop": [(ucb, -0.5, ())],
        "metagpt fixed:retrieve_shallow": [(ucb, -0.5, ())],
        "metagpt fixed:retrieve_deep": [(ucb, 0.0, ())],
        "metagpt uniform": [(ucb, 0.0, ())],
        ucb: [],
        "metagpt greedy": [(ucb, 0.5, ())],
        "other greedy": [],
    }
    kinds = [yard["kind"] for yard in to_json(data)["groups"][6]["yardsticks"]]
    assert kinds[-1] == "reference"
    assert {"best static arm", "default static arm", "noop arm", "random arm", "no memory"} <= set(kinds)
    assert "other greedy: no row of 'ucb' has its benchmark and memory to stand beside it." in data.notes
    assert '<td class="text">reference (ucb)</td>' in html.render(data)


def test_a_reference_is_most_like_the_row_that_it_stands_beside(tmp_path: Path) -> None:
    cells = [_learned(ALL, streams=streams, policy=policy) for policy in ("ucb", "greedy") for streams in (1, 2)]

    data = build(write_played(tmp_path / "run", cells, reference="ucb"))

    found = {group.name: [yard.name for yard in group.yardsticks if yard.kind == "reference"] for group in data.groups}
    assert found == {
        "ucb": [],
        "greedy": ["ucb"],
        "ucb, 2 streams, 1 table": [],
        "greedy, 2 streams, 1 table": ["ucb, 2 streams, 1 table"],
    }


def _of_learned_rows(text: str) -> str:
    return text.partition("success of learned rows")[2].partition("prompt")[0]


def test_with_a_reference_the_terminal_leaves_what_stands_beside_all_rows_to_html_and_json(tmp_path: Path) -> None:
    plain, told = (_printed(_with_reference(tmp_path, reference)) for reference in (None, "ucb"))

    for other in ("noop", "default static: retrieve_shallow", "random arm", "no memory"):
        line = re.compile(rf"^{other}\s+\d".replace(" ", r"\s+"), re.MULTILINE)
        assert line.search(_of_learned_rows(plain)), other
        assert not line.search(_of_learned_rows(told)), other
    assert re.search(r"^best static: retrieve_deep +\d", told, re.MULTILINE)
    assert "oracle, other seeds: family" in told
    reference = told.partition("success minus the reference, ucb")[2].partition("success minus no memory")[0]
    assert re.search(r"^greedy +24 +\+50\.0", reference, re.MULTILINE)
    assert re.search(r"^fixed:noop +24 +-50\.0", reference, re.MULTILINE)


def test_a_reference_that_no_row_has_is_one_note(tmp_path: Path) -> None:
    data = _with_reference(tmp_path, "ubc")

    (note,) = [note for note in data.notes if "reference" in note]
    assert note == (
        "study.reference 'ubc': no row with a memory has this policy, so none is compared with it; policies of the "
        "run: fixed:noop, fixed:retrieve_shallow, fixed:retrieve_deep, uniform, ucb, greedy."
    )
    assert all(yard.kind != "reference" for group in data.groups for yard in group.yardsticks)


def test_memories_are_named_by_what_tells_them_apart(tmp_path: Path) -> None:
    memories = [f"metagpt top_k={k} preload.source={source} preload.frozen=true" for k in (1, 3) for source in "ab"]
    cells = [_learned(ALL, memory=memory) for memory in memories]

    data = build(write_played(tmp_path / "run", cells))

    text = _printed(data)
    for name in ("top_k=1 source=a", "top_k=3 source=b"):
        assert re.search(rf"^metagpt {name}$", text, re.MULTILINE)
    assert "backbone imitator, all memories preload.frozen=true" in " ".join(text.split())
    assert [data.sections[0].name(group) for group in data.groups][2] == "metagpt top_k=3 source=a ucb"


# --- gains and contexts ----------------------------------------------------------------------------------------------


def test_the_terminal_tells_gains_and_contexts_in_a_line_or_two_a_learner(tmp_path: Path) -> None:
    def key(episode: Episode) -> str:
        return f"goal_type/1|goal_type={'rare' if episode.ordinal % 6 == 0 else 'often'}"

    cells = [*fixed("retrieve_deep", HOUSEHOLD, seeds=(0, 1)), *fixed("noop", NOTHING, seeds=(0, 1))]
    rules = [f"rule-{place}" for place in range(8)]
    cells += [_learned(ALL, seed=seed, num_tasks=24, key=key, policy=rule) for rule in rules for seed in (0, 1)]

    lines = _printed(build(write_played(tmp_path / "run", cells))).splitlines()

    assert [line for line in lines if re.match(r"rule-\d +\+100\.0\* +\+0\.0", line)] != []
    without = [line for line in lines if line.startswith("  without it")]
    assert len(without) == 8
    assert all(re.match(r"  without it +\+0\.0 +\+100\.0\*", line) for line in without)
    text = " ".join(" ".join(lines).split())
    assert text.count("1 of 2 contexts learned (n >= 30), 83.3 % of decisions there; forced") == 8
    assert text.count("most pulled: often 40.0, rare 8.0 (not learned)") == 8
    # One context of each learner, with its pulls a table.
    assert sum(line.startswith("often ") for line in lines) == 8
    assert not any(line.startswith("rare ") for line in lines)


def test_pulls_of_contexts_that_are_not_learned_are_marked(tmp_path: Path) -> None:
    cells = [_learned(ALL, num_tasks=8, key=lambda episode: "goal_type/1|goal_type=put")]

    lines = _printed(build(write_played(tmp_path / "run", cells))).splitlines()

    heading = lines.index("ucb: not learned")
    (n, *counts) = lines[heading + 1].split()[1:]
    assert n == "16.0"
    assert sum(float(count) for count in counts) == pytest.approx(16)
