"""The report's numbers, recomputed by hand from the synthetic episodes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from memcon.errors import DamagedFileError, NotFoundError
from memcon.types import Episode, OutcomeClass
from memcon_platform.report import GroupResult, ReportData, build
from memcon_platform.report.json_form import to_json
from memcon_platform.report.statistics import TASKS_ONLY, TWO_WAY
from memcon_platform.trajectory import ParquetSink
from support.episodes import FakeCell, demo_cells, stream_episodes, write_plan, write_run, write_stream

EMPTY = FakeCell(memory="empty", policy="none", success=(0.3, 0.3))
UCB = FakeCell()


def _fixed(arm: str, **changed: Any) -> FakeCell:
    return FakeCell(policy="fixed", policy_parameters={"action_id": arm}, **changed)


def _group(data: ReportData, label: str) -> GroupResult:
    return next(group for group in data.groups if group.name == label)


def _write(run: Path, cell: FakeCell, episodes: list[Episode]) -> None:
    ParquetSink(run).write_block(cell.cell_id, 0, 0, episodes)


def _with_outcomes(cell: FakeCell, won: list[bool]) -> list[Episode]:
    def changed(episode: Episode, success: bool) -> Episode:
        outcome = OutcomeClass.SUCCESS if success else OutcomeClass.FAILURE
        return dataclasses.replace(episode, outcome=dataclasses.replace(episode.outcome, outcome_class=outcome))

    return [changed(episode, success) for episode, success in zip(stream_episodes(cell), won, strict=True)]


def test_rates_pool_the_seeds_and_leave_unevaluable_tasks_out(tmp_path: Path) -> None:
    cells = [FakeCell(seed=0, broken=(1, 2)), FakeCell(seed=1)]
    episodes = [episode for cell in cells for episode in stream_episodes(cell)]
    won = sum(episode.outcome.success for episode in episodes)

    (group,) = build(write_run(tmp_path / "run", cells)).groups

    assert (group.success.num_tasks, group.success.successes, group.success.unevaluable) == (22, won, 2)
    assert group.success.rate == pytest.approx(won / 22)
    assert group.seeds == (0, 1)
    assert group.success.interval is not None
    assert group.success.interval.low < won / 22 < group.success.interval.high


def test_differences_are_paired_by_task_and_skip_what_one_side_lacks(tmp_path: Path) -> None:
    # Given tasks 0..5 in the same order in both cells; no memory could not evaluate task 1, ucb did not reach task 5.
    empty, ucb = dataclasses.replace(EMPTY, num_tasks=6, broken=(1,)), dataclasses.replace(UCB, num_tasks=6)
    write_plan(tmp_path, [empty, ucb])
    lost = stream_episodes(empty)[1]
    plain = _with_outcomes(empty, [False, False, False, True, True, False])
    _write(tmp_path, empty, [plain[0], lost, *plain[2:]])
    _write(tmp_path, ucb, _with_outcomes(ucb, [True, True, True, True, False, False])[:5])

    found = _group(build(tmp_path), "ucb").difference

    assert found is not None
    # Tasks 0, 2, 3, 4: +1, +1, 0, -1.
    assert (found.num_pairs, found.mean) == (4, 0.25)
    assert found.interval.low < 0.25 < found.interval.high


def test_a_difference_is_sure_for_these_seeds_and_open_for_others_where_seeds_disagree(tmp_path: Path) -> None:
    # Given seeds under which ucb wins all tasks, most of them, or hardly one more than no memory.
    write_plan(tmp_path, [dataclasses.replace(cell, seed=seed) for seed in range(3) for cell in (EMPTY, UCB)])
    for seed, gain in enumerate((12, 9, 1)):
        for cell, count in ((EMPTY, 0), (UCB, gain)):
            seeded = dataclasses.replace(cell, seed=seed)
            _write(tmp_path, seeded, _with_outcomes(seeded, [number < count for number in range(12)]))

    data = build(tmp_path)
    found = _group(data, "ucb").difference

    assert found is not None
    assert found.mean == pytest.approx(22 / 36)
    assert (found.num_pairs, found.num_streams) == (36, 3)
    assert found.interval_these_seeds.low > 0.3
    assert found.interval.low < 0.0
    assert (found.interval_these_seeds.method, found.interval.method) == (TASKS_ONLY, TWO_WAY)
    form = to_json(data)["groups"][1]["difference_to_no_memory"]
    assert form["interval_these_seeds"]["low"] == found.interval_these_seeds.low
    assert form["interval"]["low"] == found.interval.low


def test_identical_rows_differ_by_exactly_nothing(tmp_path: Path) -> None:
    write_plan(tmp_path, [EMPTY, UCB])
    won = [number % 3 == 0 for number in range(12)]
    for cell in (EMPTY, UCB):
        _write(tmp_path, cell, _with_outcomes(cell, won))

    found = _group(build(tmp_path), "ucb").difference

    assert found is not None
    assert (found.mean, found.interval.low, found.interval.high) == (0.0, 0.0, 0.0)


def test_a_learned_policy_has_best_static_random_and_no_memory_beside_it(tmp_path: Path) -> None:
    shallow, deep = _fixed("retrieve_shallow"), _fixed("retrieve_deep")
    uniform = FakeCell(policy="uniform")
    cells = [EMPTY, shallow, deep, uniform, UCB]
    write_plan(tmp_path, cells)
    for cell, count in zip(cells, (2, 4, 6, 5, 3), strict=True):
        _write(tmp_path, cell, _with_outcomes(cell, [number < count for number in range(12)]))

    data = build(tmp_path)

    ucb = _group(data, "ucb")
    assert [(yard.kind, yard.label, yard.rate) for yard in ucb.yardsticks] == [
        ("best static arm", "metagpt fixed:retrieve_deep", 0.5),
        ("random arm", "metagpt uniform", 5 / 12),
        ("no memory", "no memory", 2 / 12),
        ("default static arm", "metagpt fixed:retrieve_shallow", 4 / 12),
    ]
    differences = [yard.difference.mean for yard in ucb.yardsticks if yard.difference]
    assert differences == pytest.approx([-3 / 12, -2 / 12, 1 / 12, -1 / 12])
    assert ucb.missing_yardsticks == (
        "noop arm (fixed:noop did not run)",
        "oracle from other seeds (it chooses on other seeds, and one ran)",
    )
    assert any("ucb: nothing stands beside it as noop arm (fixed:noop did not run)" in note for note in data.notes)
    assert [group.mark for group in data.groups] == ["", "", "best static arm", "", ""]
    assert [group.role for group in data.groups] == ["no memory", "static arm", "static arm", "random arm", "learned"]


def test_rows_tell_the_story_whatever_the_order_of_the_plan(tmp_path: Path) -> None:
    other = FakeCell(memory="other", policy="none")
    cells = [UCB, FakeCell(streams=2), other, _fixed("plan_inject"), FakeCell(policy="uniform"), EMPTY]

    data = build(write_run(tmp_path / "run", cells))

    assert [group.label for group in data.groups] == [
        "no memory",
        "metagpt fixed:plan_inject",
        "metagpt uniform",
        "metagpt ucb",
        "metagpt ucb, 2 streams, 1 table",
        "other own retrieval",
    ]
    assert data.sections[0].memories == ("metagpt", "other")


def test_rows_of_another_backbone_stand_in_a_section_of_their_own(tmp_path: Path) -> None:
    cells = [EMPTY, UCB, dataclasses.replace(EMPTY, backbone="model"), dataclasses.replace(UCB, backbone="model")]

    data = build(write_run(tmp_path / "run", cells))

    assert [section.title for section in data.sections] == ["household, lobster, imitator", "household, lobster, model"]
    assert [[group.name for group in section.groups] for section in data.sections] == [["no memory", "ucb"]] * 2
    assert data.backbones == {"imitator": ({"name": "imitator"},), "model": ({"name": "model"},)}


def test_a_tie_of_static_arms_is_told(tmp_path: Path) -> None:
    cells = [_fixed("retrieve_shallow"), _fixed("retrieve_deep")]
    write_plan(tmp_path, cells)
    for cell in cells:
        _write(tmp_path, cell, _with_outcomes(cell, [number < 5 for number in range(12)]))

    assert [group.mark for group in build(tmp_path).groups] == ["best static arm (tie)"] * 2


def test_a_single_static_arm_is_not_called_the_best(tmp_path: Path) -> None:
    data = build(write_run(tmp_path / "run", [_fixed("retrieve_shallow"), UCB]))

    assert data.groups[0].mark == "only static arm"
    assert data.groups[1].yardsticks[0].kind == "only static arm"


def test_cells_with_a_shared_table_are_their_own_row(tmp_path: Path) -> None:
    shared = FakeCell(streams=3)
    data = build(write_run(tmp_path / "run", [EMPTY, UCB, shared]))

    group = _group(data, "ucb, 3 streams, 1 table")

    assert (group.exact, group.num_streams, group.success.num_tasks) == (False, 3, 36)
    assert _group(data, "ucb").exact
    # Only stream 0 has a partner in the cell without memory.
    assert group.difference is not None
    assert (group.difference.num_pairs, group.difference.num_streams) == (12, 1)
    assert group.difference.interval == group.difference.interval_these_seeds
    assert group.difference.interval.method == TASKS_ONLY
    assert any("not exact" in note for note in data.notes)


def test_rows_that_differ_in_a_setting_only_are_told_apart(tmp_path: Path) -> None:
    cells = [FakeCell(num_tasks=4), FakeCell(num_tasks=4, seed=1), FakeCell(num_tasks=5)]
    write_run(tmp_path, cells)
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["cells"][2]["settings"]["control"]["plan_form"] = "bare"
    (tmp_path / "plan.json").write_text(json.dumps(plan))

    labels = [(group.label, group.seeds) for group in build(tmp_path).groups]

    assert labels == [
        ("metagpt ucb plan_form=numbered", (0, 1)),
        ("metagpt ucb plan_form=bare", (0,)),
    ]


def test_tokens_arms_keys_and_forced_visits_are_counted(tmp_path: Path) -> None:
    cell = FakeCell(num_tasks=12, broken=(3,))
    episodes = stream_episodes(cell)
    decided = [decision for episode in episodes for decision in episode.decisions]

    (group,) = build(write_run(tmp_path / "run", [cell])).groups

    evaluated = [episode for episode in episodes if episode.reward is not None]
    mean = sum(episode.outcome.tokens.agent_prompt for episode in evaluated) / 11
    assert group.tokens.by_purpose["agent_prompt"] == pytest.approx(mean)
    # Two decisions a task, 120 tokens of items and 30 of plan each.
    assert group.tokens.by_source == {"items": 240.0, "insights": 0.0, "plan": 60.0, "hint": 0.0}
    did = group.decisions
    assert did is not None
    assert (did.num_decisions, did.per_task) == (24, 2.0)
    assert did.forced_share == pytest.approx(sum(decision.forced for decision in decided) / 24)
    assert did.keys_visited == len({decision.state_key for decision in decided})
    # MC-10: 2,160 keys for each of the four goal types.
    assert did.keys_possible == 8640
    assert sum(arm.count for arm in did.arms) == 24
    assert sum(arm.share for arm in did.arms) == pytest.approx(1.0)


def test_keys_are_counted_a_table(tmp_path: Path) -> None:
    cell = FakeCell(streams=2, table_scope="stream")

    (group,) = build(write_run(tmp_path / "run", [cell])).groups

    assert group.decisions is not None
    assert group.decisions.num_tables == 2
    assert group.exact


def test_quarters_and_goal_types_add_up_to_the_whole(tmp_path: Path) -> None:
    cell = FakeCell(num_tasks=22)
    episodes = stream_episodes(cell)

    (group,) = build(write_run(tmp_path / "run", [cell])).groups

    assert [point.num_tasks for point in group.quarters] == [6, 5, 6, 5]
    last = [episode.outcome.success for episode in episodes if episode.ordinal * 4 // 22 == 3]
    assert (group.last_quarter.num_tasks, group.last_quarter.successes) == (len(last), sum(last))
    assert sum(found.num_tasks for found in group.by_goal_type.values()) == 22
    assert sum(found.successes for found in group.by_goal_type.values()) == group.success.successes


def test_an_unfinished_run_is_reported_with_its_state(tmp_path: Path) -> None:
    waiting = FakeCell(seed=2)
    write_plan(tmp_path, [EMPTY, UCB, waiting])
    write_stream(tmp_path, EMPTY)
    write_stream(tmp_path, UCB, count=5)

    data = build(tmp_path)

    assert [(cell.status, cell.found, cell.planned) for cell in data.cells] == [
        ("done", 12, 12),
        ("partial", 5, 12),
        ("pending", 0, 12),
    ]
    assert any("2 of 3 cells lack 19 tasks" in note for note in data.notes)
    difference = _group(data, "ucb").difference
    assert difference is not None
    assert difference.num_pairs == 5


def test_a_run_without_any_evaluable_task_is_reported(tmp_path: Path) -> None:
    cell = FakeCell(num_tasks=3, broken=(0, 1, 2))

    (group,) = build(write_run(tmp_path / "run", [cell])).groups

    assert (group.success.rate, group.success.interval, group.success.unevaluable) == (None, None, 3)
    assert group.mean_score is None


def test_a_run_whose_tasks_all_failed_before_a_decision_says_why(tmp_path: Path) -> None:
    cell, why = FakeCell(num_tasks=3), ("memory failed\nduring retrieve", "x" * 999, "memory failed during retrieve")
    episodes = [
        dataclasses.replace(
            episode,
            decisions=(),
            outcome=dataclasses.replace(episode.outcome, outcome_class=OutcomeClass.UNEVALUABLE, error=error),
        )
        for episode, error in zip(stream_episodes(cell), why, strict=True)
    ]
    run = tmp_path / "run"
    write_plan(run, [cell])
    _write(run, cell, episodes)

    data = build(run)

    (note,) = [note for note in data.notes if note.startswith("Not evaluated because")]
    assert note == f"Not evaluated because: memory failed during retrieve (2 tasks); {'x' * 300} (1 tasks)."
    assert to_json(data)["cells"][0]["unevaluable_reasons"] == {"memory failed during retrieve": 2, "x" * 999: 1}


def test_the_note_on_the_imitator_stands_only_where_it_ran(tmp_path: Path) -> None:
    imitator = build(write_run(tmp_path / "a", [UCB]))
    model = build(write_run(tmp_path / "b", [FakeCell(backbone="some-model")]))

    assert any("not a language model" in note for note in imitator.disclosures)
    assert not any("imitator" in note for note in (*model.disclosures, *model.notes))


def test_a_run_that_was_continued_under_another_version_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, [UCB])
    plan = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "continued_with": [{"at": "later", "provenance": {}}]}))

    assert any("continued under another version" in note for note in build(tmp_path).notes)


def test_the_json_form_has_the_promised_fields_and_no_nan(tmp_path: Path) -> None:
    data = build(write_run(tmp_path / "run", [*demo_cells(8, (0, 1)), FakeCell(num_tasks=2, broken=(0, 1), seed=7)]))

    form = json.loads(json.dumps(to_json(data), allow_nan=False))

    axes = {"benchmark", "framework", "backbone", "memory", "policy", "seed"}
    promised = axes | {"n", "successes", "interval", "tokens", "provenance", "status"}
    assert all(promised <= set(cell) for cell in form["cells"])
    assert len(form["cells"]) == len(data.cells)
    compared = [group["difference_to_no_memory"] for group in form["groups"] if group["difference_to_no_memory"]]
    assert all(set(form["difference_intervals"]) <= set(difference) for difference in compared)
    assert "seeds" in form["difference_intervals"]["interval"]["generalises_to"]
    first = form["cells"][0]
    assert first["interval"][0] <= first["successes"] / first["n"] <= first["interval"][1]
    assert first["provenance"] == "self-made"


def test_the_same_run_gives_the_same_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", demo_cells(10, (0, 1)))

    assert to_json(build(run)) == to_json(build(run))


def test_a_missing_run_an_empty_run_and_a_broken_plan_are_clear(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no run folder"):
        build(tmp_path / "absent")
    write_plan(tmp_path / "fresh", [UCB])
    with pytest.raises(NotFoundError, match="no finished task"):
        build(tmp_path / "fresh")
    (tmp_path / "fresh" / "plan.json").write_text("{")
    with pytest.raises(DamagedFileError, match=r"plan\.json is damaged"):
        build(tmp_path / "fresh")


def test_a_stream_that_the_plan_does_not_know_is_refused(tmp_path: Path) -> None:
    two = FakeCell(streams=2)
    write_run(tmp_path, [two])
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["cells"][0] |= {"streams": 1}
    (tmp_path / "plan.json").write_text(json.dumps(plan))

    with pytest.raises(DamagedFileError, match="has stream 1, the plan promises 1 streams"):
        build(tmp_path)
