"""Means over tables and tasks, cross-fitted oracles and the pulls of a gap, on matrices whose truth is known."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import numpy as np
import pytest

from memcon.errors import InvariantError
from memcon.learning.credit import RewardSettings
from memcon.seeds import SeedTree
from memcon_platform.report.statistics import mean_interval, standard_error, these_seeds_interval
from memcon_platform.study.estimates import Estimate, estimate
from memcon_platform.study.headroom import headroom
from memcon_platform.study.matrix import Floats, Ints, OutcomeMatrix
from memcon_platform.study.oracles import best_single, cross_fitted, folds, needs
from support.matrices import ARMS, outcome_matrix

# Two families that want opposite arms, and one that does not care.
OPPOSED = {"audit": (0.2, 0.3, 0.9), "house": (0.6, 0.8, 0.1)}
FLAT = {"audit": (0.5, 0.5, 0.5), "house": (0.5, 0.5, 0.5)}


# --- estimates --------------------------------------------------------------------------------------------------------


def in_order(values: Floats) -> Ints:
    """Numbers of tasks that all streams play in one order."""
    return np.broadcast_to(np.arange(values.shape[1]), values.shape).astype(np.int64)


def noise(streams: int, tasks: int, *place: str | int) -> Floats:
    generator = SeedTree(("tests", "study", *place)).generator()
    return np.array([[generator.gauss(0.0, 0.3) for _ in range(tasks)] for _ in range(streams)])


def measured(values: Floats, tasks: Ints | None = None, **options: Any) -> Estimate:
    found = estimate(values, tasks=in_order(values) if tasks is None else tasks, **options)
    assert found is not None
    return found


def test_a_study_and_a_report_tell_the_same_of_the_same_outcomes() -> None:
    values = noise(6, 20, "same")
    tables = [0, 0, 0, 1, 1, 1]

    found, interval = measured(values, group=3), mean_interval(values, tables=tables)

    assert interval is not None
    assert found.mean == pytest.approx(values.mean())
    assert found.se == standard_error(values, tables=tables)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert (found.tables, found.tasks) == (2, 20)


def test_a_task_is_one_cluster_wherever_in_its_stream_it_lies() -> None:
    values = noise(5, 12, "places")
    shifted = np.array([np.roll(row, place) for place, row in enumerate(values)])
    tasks = np.array([np.roll(np.arange(12), place) for place in range(5)])

    assert measured(shifted, tasks) == measured(values)
    # By place instead of by task the effect of a task would be lost.
    effect = values + np.linspace(-1, 1, 12)
    moved = np.array([np.roll(row, place * 5) for place, row in enumerate(effect)])
    by_task = measured(moved, np.array([np.roll(np.arange(12), place * 5) for place in range(5)]))
    by_place = measured(moved)
    assert by_task.se is not None
    assert by_place.se is not None
    assert by_task.se > 1.5 * by_place.se


def test_rows_of_a_group_are_one_table_and_a_broken_group_is_left_out() -> None:
    values = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    found = measured(values, group=2)
    assert (found.mean, found.tables) == (0.75, 2)
    assert found.se == pytest.approx(np.std([0.5, 1.0], ddof=1) / np.sqrt(2))


def test_absent_values_weigh_nothing() -> None:
    found = measured(np.array([[1.0, np.nan, np.nan], [0.0, 0.0, np.nan], [np.nan, np.nan, np.nan]]))
    assert found.mean == pytest.approx(1 / 3)
    assert (found.tables, found.tasks) == (2, 2)
    assert estimate(np.full((2, 2), np.nan), tasks=in_order(np.zeros((2, 2)))) is None


def test_one_table_speaks_for_other_tasks_only_and_is_never_clear() -> None:
    values = 0.5 + noise(4, 30, "one")
    found, over_tasks = measured(values, group=4), these_seeds_interval(values)
    assert over_tasks is not None
    assert (found.low, found.high) == (over_tasks.low, over_tasks.high)
    assert found.se is not None
    assert found.mean > 2 * found.se
    assert not found.is_clear
    assert measured(values).is_clear


def test_one_task_has_no_standard_error() -> None:
    found = measured(np.array([[0.2], [0.4]]))
    assert (found.se, found.low, found.high, found.is_clear) == (None, -1.0, 1.0, False)


def test_two_tables_that_alone_vary_say_very_little() -> None:
    found = measured(np.array([[0.0] * 9, [0.0] * 9, [0.02] * 9, [0.02] * 9]), group=2)
    assert found.se == pytest.approx(0.01)
    # Student's t at one degree of freedom.
    assert (found.high - found.mean) / 0.01 == pytest.approx(12.7062, rel=1e-3)


# --- oracles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seeds", "streams"), [(2, 3), (1, 6)])
def test_an_oracle_sees_neither_the_seed_nor_the_tasks_that_it_is_judged_on(seeds: int, streams: int) -> None:
    # Given equal arms, so that every outcome may turn a pick.
    matrix = outcome_matrix(FLAT, seeds=seeds, streams=streams)
    fold = folds(matrix)
    assert fold.words == ("other seeds and tasks" if seeds > 1 else "other streams and tasks")

    def picks(success: Floats) -> Ints:
        return cross_fitted(success, matrix.costs, labels=matrix.benchmark, fold=fold)

    # Whatever a stream gave on any task, or a task in any stream, its own picks stay.
    by_stream = np.broadcast_to((fold.stream == fold.stream[0])[:, None], fold.task.shape)
    for own in (by_stream, fold.task == 3):
        altered = np.where(own[:, :, None], 1 - matrix.success, matrix.success)
        assert (picks(altered)[own] == picks(matrix.success)[own]).all()
        assert (picks(altered) != picks(matrix.success)).any()


def test_folds_of_tasks_are_the_same_in_all_streams_and_part_each_goal_type() -> None:
    matrix = outcome_matrix(OPPOSED, tasks=40)
    fold = folds(matrix)
    for task in range(40):
        assert len(set(fold.task[matrix.task == task].tolist())) == 1
    for goal_type in np.unique(matrix.goal_type):
        assert set(fold.task[matrix.goal_type == goal_type].tolist()) == set(range(5))


@pytest.mark.parametrize(("streams", "tasks", "missing"), [(1, 24, "one stream only"), (3, 1, "one task only")])
def test_without_anything_to_pick_elsewhere_there_is_no_oracle(streams: int, tasks: int, missing: str) -> None:
    matrix = outcome_matrix(OPPOSED, seeds=1, streams=streams, tasks=tasks)
    assert folds(matrix).missing.startswith(missing)
    found = headroom(matrix, RewardSettings())
    assert (found.picked_on, found.oracles, found.needs) == ("", (), ())
    with pytest.raises(InvariantError, match=missing):
        cross_fitted(matrix.success, matrix.costs, labels=matrix.benchmark, fold=folds(matrix))


def test_equal_arms_go_to_the_one_of_fewer_tokens() -> None:
    matrix = outcome_matrix({"trivia": (1.0, 1.0, 1.0)})
    assert ARMS[best_single(matrix.success, matrix.costs)] == "noop"
    idle = outcome_matrix({"trivia": (1.0, 1.0)}, arms=("consolidate", "noop"))
    idle = dataclasses.replace(idle, tokens=np.zeros_like(idle.tokens))
    # Without tokens too, what leaves the memory alone goes before what works on it.
    assert idle.action_ids[best_single(idle.success, idle.costs)] == "noop"


def test_a_context_that_no_other_fold_has_gets_the_best_arm_over_all_contexts_there() -> None:
    matrix = outcome_matrix({"house": (0.0, 1.0, 0.0)}, seeds=2)
    labels = matrix.benchmark.copy()
    labels[matrix.seeds == 0] = "new"
    picks = cross_fitted(matrix.success, matrix.costs, labels=labels, fold=folds(matrix))
    assert (picks == ARMS.index("retrieve_deep")).all()


def test_opposed_families_have_headroom_and_equal_ones_have_none() -> None:
    opposed = headroom(outcome_matrix(OPPOSED, seeds=3, streams=6), RewardSettings())
    flat = headroom(outcome_matrix(FLAT, seeds=3, streams=6), RewardSettings())
    assert [oracle.level for oracle in opposed.oracles] == ["benchmark", "goal_type"]
    assert all(oracle.has_headroom for oracle in opposed.oracles)
    gain = opposed.oracles[0].headroom
    # Truth: (0.9 + 0.8) / 2 - max of the arm means = 0.85 - 0.55.
    assert gain is not None
    assert gain.se is not None
    assert abs(gain.mean - 0.30) < 3 * gain.se
    assert not any(oracle.has_headroom for oracle in flat.oracles)


def _gain_of_picks_on_the_other_seed(matrix: OutcomeMatrix) -> float:
    """Of the best arm of each goal type on the other of two seeds, its tasks seen, over the best single arm."""
    total = 0.0
    for seed, goal_type in product((0, 1), np.unique(matrix.goal_type)):
        here, own = matrix.goal_type == goal_type, (matrix.seeds == seed)[:, None]
        total += matrix.success[here & own][:, matrix.success[here & ~own].mean(axis=0).argmax()].sum()
    return float(total / matrix.goal_type.size - matrix.success.mean(axis=(0, 1)).max())


def test_no_headroom_where_arms_differ_by_task_alone_and_headroom_where_families_differ() -> None:
    # Given 20 matrices whose arms are equal over tasks; on half of the tasks an arm does the same in every stream.
    verdicts, gains, seen = [], [], []
    for place in range(20):
        equal = {f"f{i}": (0.5, 0.5, 0.5) for i in range(6)}
        matrix = outcome_matrix(equal, streams=4, tasks=132, settled=0.5, place=place + 1)
        found = headroom(matrix, RewardSettings()).oracles
        verdicts += [oracle.has_headroom for oracle in found]
        gains += [oracle.headroom.mean for oracle in found if oracle.headroom]
        seen.append(_gain_of_picks_on_the_other_seed(matrix))

    # Of 40 verdicts 2.5 % are one.
    assert len(verdicts) == 40
    assert sum(verdicts) <= 1
    assert np.mean(gains) < 0
    # Whoever knows the tasks from other seeds gains on nothing.
    assert np.mean(seen) > 0.03

    gaps = {f"f{i}": tuple(0.7 if arm == i % 3 else 0.4 for arm in range(3)) for i in range(6)}
    real = headroom(outcome_matrix(gaps, streams=4, tasks=132, settled=0.5), RewardSettings())
    assert [oracle.has_headroom for oracle in real.oracles] == [True, True]


def test_yardsticks_are_those_of_the_issue_with_the_random_arm_as_an_expectation() -> None:
    matrix = outcome_matrix(OPPOSED)
    found = headroom(matrix, RewardSettings())
    assert [(row.name, row.arm, row.chosen) for row in found.yardsticks] == [
        ("best single arm", "retrieve_deep", "in hindsight"),
        ("best single arm", None, "on other seeds and tasks"),
        ("default arm", "retrieve_shallow", "fixed"),
        ("no memory", "noop", "fixed"),
        ("random arm", None, "expectation"),
        ("oracle per family", None, "on other seeds and tasks"),
        ("oracle per goal type", None, "on other seeds and tasks"),
    ]
    rows = {(row.name, row.chosen): row for row in found.yardsticks}
    random = rows["random arm", "expectation"]
    assert random.success is not None
    assert random.success.mean == pytest.approx(matrix.success.mean())
    assert random.tokens == pytest.approx(400 / 3)
    # Success or failure alone: 1 or -0.5.
    assert random.reward == pytest.approx(1.5 * matrix.success.mean() - 0.5)
    assert rows["best single arm", "in hindsight"].difference is None


def test_the_last_quarter_is_that_of_the_stream() -> None:
    matrix = outcome_matrix({"house": (0.0, 0.0, 0.0)}, tasks=24)
    success = matrix.success.copy()
    success[:, 18:, 0] = 1.0
    found = headroom(dataclasses.replace(matrix, success=success), RewardSettings())
    (default,) = (row for row in found.yardsticks if row.name == "default arm")
    assert default.success is not None
    assert default.last_quarter is not None
    assert (default.success.mean, default.last_quarter.mean) == (0.25, 1.0)


def test_pulls_are_four_times_both_variances_over_the_squared_gap() -> None:
    # Given an arm that never fails: its rewards do not vary, those of the other do.
    matrix = outcome_matrix({"audit": (0.2, 0.6, 1.0), "house": (0.1, 0.95, 0.1)}, seeds=3, streams=8, tasks=40)
    rewards = matrix.rewards(RewardSettings())
    audit, house = needs(matrix, rewards, "benchmark")
    assert (audit.context, audit.arm) == ("audit", "noop")
    here = rewards[matrix.benchmark == "audit"]
    gap = (here[:, 2] - here[:, 1]).mean()
    assert audit.gap is not None
    assert audit.gap.mean == pytest.approx(gap)
    assert here[:, 2].var() == 0
    assert audit.pulls == np.ceil(4 * here[:, 1].var() / gap**2)
    assert audit.sd == pytest.approx(np.sqrt(here[:, 1].var() / 2))
    # The best single arm is the best one here: there is no gap to learn.
    assert (house.context, house.arm, house.gap, house.pulls) == ("house", None, None, None)


def test_where_the_best_single_arm_is_picked_most_often_there_is_no_gap() -> None:
    # Given equal arms: folds disagree on the best one.
    matrix = outcome_matrix({f"f{i}": (0.5, 0.5, 0.5) for i in range(6)}, streams=4, tasks=60)
    rewards = matrix.rewards(RewardSettings())
    single = ARMS[best_single(rewards, matrix.costs)]
    found = needs(matrix, rewards, "goal_type")
    assert {need.arm for need in found} - {None}
    for need in found:
        assert need.arm != single
        assert (need.arm is None) == (need.gap is None)


# --- the matrix -------------------------------------------------------------------------------------------------------


def test_rewards_follow_equation_5_with_its_step_budget() -> None:
    matrix = outcome_matrix({"house": (1.0, 0.0, 0.0)}, unevaluable=0.2)
    budget = dataclasses.replace(matrix, has_step_budget=np.ones_like(matrix.has_step_budget))
    settings = RewardSettings(failure_penalty=1.0)
    known = ~np.isnan(matrix.success[:, :, 0])
    assert 0 < known.sum() < known.size
    assert np.unique(matrix.rewards(settings)[known], axis=0).tolist() == [[1.0, -1.0, -1.0]]
    # 0.3 (1 - 10/30) = 0.2 for all under efficiency_on: all.
    assert np.allclose(budget.rewards(settings)[known], [1.2, -0.8, -0.8])
    assert np.isnan(matrix.rewards(settings)[~known]).all()


def test_shapes_that_do_not_fit_are_refused() -> None:
    matrix = outcome_matrix(FLAT)
    with pytest.raises(InvariantError, match="outcomes of shape"):
        dataclasses.replace(matrix, action_ids=("one",))
    with pytest.raises(InvariantError, match="tokens has shape"):
        dataclasses.replace(matrix, tokens=matrix.tokens[:1])
    with pytest.raises(InvariantError, match="plays a task twice"):
        dataclasses.replace(matrix, task=np.zeros_like(matrix.task))
    with pytest.raises(InvariantError, match="none of 1 task ids"):
        dataclasses.replace(matrix, task_ids=("one",))
    with pytest.raises(InvariantError, match="no arm 'plan_inject'"):
        matrix.arm("plan_inject")
