"""Heat map, gains, scatter and arm shares: what they are drawn from, and what is said where they cannot be."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memcon.learning import actions
from memcon.policy_types import LearningSettings
from memcon_platform.report import GroupResult, ReportData, axes, build, drawing, heatmap, html
from memcon_platform.report.measures import HeatCell, HeatMap, HeatRow
from memcon_platform.report.served import MAX_ROWS
from support.episodes import FakeCell, write_run
from support.report_runs import Played, by_family, fixed, write_played, write_served

ALL = by_family(audit=True, household=True)
UCB = FakeCell()
LOOK = drawing.Look(colour=2, pattern=1)


def _settings(**changed: Any) -> LearningSettings:
    arms = actions.action_set("default")
    values: dict[str, Any] = {
        "rule": "ucb",
        "rule_parameters": {"c": 1.4},
        "action_ids": arms.action_ids,
        "priors": (0.0,) * len(arms.action_ids),
        "action_set": "default",
        "fingerprint": "f" * 16,
        "key_schema": "goal_type/1",
    }
    return LearningSettings(**{**values, **changed})


def _numbers(taken: Mapping[str, int], q: float = 0.5) -> dict[str, Any]:
    return {
        arm: {"q": q.hex(), "taken": count, "credited": count, "squares": (q * q * count).hex()}
        for arm, count in taken.items()
    }


def _key(name: str) -> str:
    return f"goal_type/1|goal_type={name}"


def _learned(data: ReportData) -> GroupResult:
    return next(group for group in data.groups if group.role == "learned")


def _map(data: ReportData) -> HeatMap:
    found = _learned(data).heat_map
    assert found is not None
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", [UCB])


def test_the_heat_map_has_q_visits_and_the_bonus_of_the_rule(run: Path) -> None:
    numbers = {
        _key("put"): _numbers({"noop": 3, "plan_inject": 1}, q=0.25),
        _key("heat"): _numbers({"retrieve_deep": 7}),
    }
    write_served(run, {UCB.cell_id: (_settings(), numbers)})

    found = _map(build(run))

    assert (found.table, found.rule, found.source, found.other_keys) == (UCB.cell_id, "ucb", "elsewhere", 0)
    assert [(row.key, row.taken) for row in found.rows] == [(_key("heat"), 7), (_key("put"), 4)]
    put = dict(zip(found.arms, found.rows[1].cells, strict=True))
    assert (put["noop"].q, put["noop"].taken) == (0.25, 3)
    # Eq. 6.
    assert put["noop"].bonus == pytest.approx(1.4 * math.sqrt(math.log(4) / 3))
    assert put["plan_inject"].bonus == pytest.approx(1.4 * math.sqrt(math.log(4) / 1))
    assert (put["forget"].taken, put["forget"].bonus) == (0, None)


def test_the_biggest_keys_are_drawn_and_the_rest_is_counted(run: Path) -> None:
    numbers = {_key(f"type {size:02d}"): _numbers({"noop": size}) for size in range(1, 51)}
    write_served(run, {UCB.cell_id: (_settings(), numbers)})

    data = build(run)
    found = _map(data)

    assert [row.taken for row in found.rows] == list(range(50, 10, -1))
    assert len(found.rows) == MAX_ROWS
    assert (found.other_keys, found.other_decisions) == (10, 55)
    assert "10 more keys with 55 decisions are not drawn" in html.render(data)


def test_a_chain_is_drawn_coarsest_first_with_its_shrunk_means(run: Path) -> None:
    settings = _settings(
        rule="thompson",
        estimator="mean",
        rule_parameters={"sigma": 0.5, "prior_strength": 2.0, "pool_strength": 8.0},
        key_schema="benchmark+goal_type/1",
        pooling=("benchmark/1",),
    )
    keys = ("benchmark+goal_type/1|benchmark=b|goal_type=x", "benchmark/1|benchmark=b")
    write_served(run, {UCB.cell_id: (settings, {key: _numbers({"noop": 2}) for key in keys})})

    data = build(run)
    found = _map(data)

    assert [row.schema for row in found.rows] == ["benchmark/1", "benchmark+goal_type/1"]
    coarse, fine = (row.cells[found.arms.index("noop")] for row in found.rows)
    # Two returns of mean 0.5 at each level; prior mean 0 of strength 2, pool strength 8.
    assert (coarse.mean, coarse.deviation) == pytest.approx((0.25, 0.5 / math.sqrt(2 + 2)))
    assert (fine.mean, fine.deviation) == pytest.approx(((8 * 0.25 + 2 * 0.5) / 10, 0.5 / math.sqrt(2 + 4)))
    assert fine.bonus is None
    assert f">2 m 0.30±{0.5 / math.sqrt(6):.2f}<" in html.render(data)


def test_the_table_with_the_most_decisions_is_drawn_and_the_others_are_counted(tmp_path: Path) -> None:
    cells = [FakeCell(seed=seed) for seed in (0, 1, 2)]
    run = write_run(tmp_path / "run", cells)
    sizes = (3, 9, 9)
    tables = {
        cell.cell_id: (_settings(), {_key("put"): _numbers({"noop": size})})
        for cell, size in zip(cells, sizes, strict=True)
    }
    write_served(run, tables)

    found = _map(build(run))

    assert (found.table, found.seed, found.other_tables) == (cells[1].cell_id, 1, 2)


def test_a_run_that_served_nothing_yet_says_so(run: Path) -> None:
    data = build(run)

    assert _map(data).missing == "no launch of this run has ended yet, so that no table was written"
    assert "no heat map, no launch of this run has ended yet" in html.render(data)


@pytest.mark.parametrize("content", ["{", "[]", '{"tables": {"x": {"settings": {}, "numbers": {}}}}'])
def test_a_broken_export_is_named_and_stops_no_report(run: Path, content: str) -> None:
    path = write_served(run, {UCB.cell_id: (_settings(), {_key("put"): _numbers({"noop": 1})})})
    path.write_text(content)

    missing = _map(build(run)).missing

    assert missing.startswith(f"{path} cannot be read")
    assert "\n" not in missing


def test_a_table_that_cannot_be_folded_is_named(run: Path) -> None:
    # Given a key that no table has.
    path = write_served(run, {UCB.cell_id: (_settings(), {_key("put"): _numbers({"noop": 1})})})
    path.write_text(path.read_text().replace('"goal_type/1|goal_type=put"', '""'))

    assert "imported key" in _map(build(run)).missing


def test_fields_are_as_strong_as_their_q_and_the_best_one_is_framed() -> None:
    numbers = {"low": 0.0, "high": 1.0, "never": 0.5}
    cells = tuple(
        HeatCell(q=q, taken=0 if name == "never" else 12, bonus=None if name == "never" else 0.5)
        for name, q in numbers.items()
    )
    found = HeatMap(arms=tuple(numbers), rows=(HeatRow(key=_key("put"), schema="goal_type/1", cells=cells),), table="t")

    text = heatmap.draw(found, "title")

    assert re.findall(r'class="(heat[^"]*)"[^>]*?(?:fill-opacity="([\d.]+)")?/>', text) == [
        ("heat", "0.04"),
        ("heat best", "0.50"),
        ("heat never", ""),
    ]
    assert ">12 +0.50<" in text
    assert "goal_type/1: goal_type" in text


def test_gains_are_drawn_where_their_numbers_say() -> None:
    line = drawing.Gain(label="a", quarters=(0, 3), points=((-10.0, 0.0, 10.0), (0.0, 10.0, 20.0)), look=LOOK)

    text = drawing.gain_curves([line], "title")

    # Ticks -10 .. 20 over pixels 250 .. 12; quarters 197.5 pixels wide from 46.
    assert '<polyline class="curve l2 p1" points="144.8,170.7 737.2,91.3">' in text
    assert "M144.8 250.0V91.3" in text
    assert text.count('class="zero"') == 1


def test_marks_in_one_place_share_their_numbers() -> None:
    def point(x: float, y: float) -> drawing.Point:
        return drawing.Point(label="p", x=x, y=y, low=y - 5, high=y + 5, colour=1)

    text = drawing.scatter([point(0, 20), point(500, 30), point(0, 20)], "t", x_label="x", y_label="y")

    assert re.findall(r'<text class="(?:onbar|label)"[^>]*>([^<]*)</text>', text) == ["1, 3", "2"]
    assert len(re.findall(r'class="upright', text)) == 3


def test_every_row_has_a_look_of_its_own(tmp_path: Path) -> None:
    # Given 24 rows with memory and nine colours for them.
    cells = [Played(cell=FakeCell(memory="empty", policy="none"), won=ALL)]
    cells += [Played(cell=FakeCell(policy=f"rule-{place:02d}", num_tasks=4), won=ALL) for place in range(24)]

    text = html.render(build(write_played(tmp_path / "run", cells)))

    keys = re.findall(r'<th scope="row"><svg class="key-row".*?<line class="curve ([^"]*)"', text)
    assert len(keys) == len(set(keys)) == 25
    assert keys[0] == "l9 p0 dashed"
    # A curve looks as its key does.
    curves = re.search(r'aria-label="Success over the stream.*?</svg>', text)
    assert curves
    assert [kind.removesuffix(" heavy") for kind in re.findall(r'class="curve ([^"]*)"', curves[0])] == keys


def test_what_differences_are_of_stands_once_above_them() -> None:
    def row(of: str, label: str) -> drawing.Difference:
        return drawing.Difference(of=of, label=label, value=0.0, thick=(-1.0, 1.0), thin=(-2.0, 2.0))

    text = drawing.forest([row("ucb", "minus a"), row("ucb", "minus b"), row("pooled", "minus a")], "t")

    labels = re.findall(r'class="(label[^"]*)" x="[^"]*" y="([^"]*)"[^>]*>([^<]*)<', text)
    assert [(kind, name) for kind, _, name in labels] == [
        ("label heavy", "ucb"),
        ("label", "minus a"),
        ("label", "minus b"),
        ("label heavy", "pooled"),
        ("label", "minus a"),
    ]
    places = [float(y) for _, y, _ in labels]
    assert places == sorted(places)
    assert min(b - a for a, b in itertools.pairwise(places)) >= 20


def test_a_long_bold_name_is_cut_and_whole_in_its_title() -> None:
    name = "ucb " + "control.goal_decomposition=false " * 3

    text = axes.row_label(name, 10, end=280, strong=True)

    shown = re.search(r">([^<]*)…<title>", text)
    assert shown
    # 12 px bold in a wide font, such as DejaVu Sans: 8 px a letter.
    assert 8 * (len(shown[1]) + 1) <= 280
    assert name.strip() in text


def test_every_figure_of_a_learner_is_in_the_html(tmp_path: Path) -> None:
    cells = fixed("retrieve_deep", by_family(audit=False, household=True), seeds=(0, 1))
    cells += fixed("noop", by_family(audit=True, household=False), seeds=(0, 1), tokens=0)
    cells += [Played(cell=FakeCell(seed=seed), won=ALL) for seed in (0, 1)]
    run = write_played(tmp_path / "run", cells)
    table = FakeCell(seed=0).cell_id
    write_served(
        run, {table: (_settings(), {_key("<put>").replace("<", "%3C").replace(">", "%3E"): _numbers({"noop": 4})})}
    )

    text = html.render(build(run))

    for figure in (
        "Success against injected tokens",
        "Success minus that of the best static arm by quarter of the stream",
        "Share of decisions that each arm got, by quarter of the stream",
        "State by arm, ucb",
    ):
        assert f'aria-label="{figure}' in text, figure
    assert "&lt;put&gt;" in text
    assert "<put>" not in text
    assert "headroom +50.0 points" in text
    assert ">not learned<" in text
    assert text.count("<h3>Success by family</h3>") == 1
