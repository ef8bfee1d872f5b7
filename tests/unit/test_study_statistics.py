"""Means over clusters, cross-fitted oracles and the pulls that a gap needs, on matrices whose truth is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from memcon.errors import InvariantError
from memcon.learning.credit import RewardSettings
from memcon.seeds import SeedTree
from memcon_platform.study.estimates import estimate
from memcon_platform.study.headroom import headroom
from memcon_platform.study.oracles import best_single, cross_fitted, folds, needs, taken
from support.matrices import ARMS, outcome_matrix

# Two families that want opposite arms, and one that does not care.
OPPOSED = {"audit": (0.2, 0.3, 0.9), "house": (0.6, 0.8, 0.1)}
FLAT = {"audit": (0.5, 0.5, 0.5), "house": (0.5, 0.5, 0.5)}


# --- estimates --------------------------------------------------------------------------------------------------------


def test_mean_and_se_are_those_of_the_clusters() -> None:
    values = np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    found = estimate(values)
    means = values.mean(axis=1)
    assert found is not None
    assert found.mean == pytest.approx(values.mean())
    assert found.se == pytest.approx(means.std(ddof=1) / np.sqrt(4))
    assert found.clusters == 4
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.mean < found.high


def test_rows_of_a_group_are_one_cluster_and_a_broken_group_is_left_out() -> None:
    values = np.array([[0.0], [1.0], [1.0], [1.0], [0.0]])
    found = estimate(values, group=2)
    assert found is not None
    assert (found.mean, found.clusters) == (0.75, 2)
    assert found.se == pytest.approx(np.std([0.5, 1.0], ddof=1) / np.sqrt(2))


def test_absent_values_weigh_nothing() -> None:
    values = np.array([[1.0, np.nan], [0.0, 0.0], [np.nan, np.nan]])
    found = estimate(values)
    assert found is not None
    assert found.mean == pytest.approx(1 / 3)
    assert found.clusters == 2
    assert estimate(np.full((2, 2), np.nan)) is None


def test_one_cluster_has_no_standard_error_and_is_never_clear() -> None:
    found = estimate(np.array([[1.0, 1.0]]))
    assert found is not None
    assert (found.se, found.low, found.high, found.is_clear) == (None, None, None, False)


def test_two_clusters_say_very_little() -> None:
    found = estimate(np.array([[0.0], [0.2]]))
    assert found is not None
    assert found.se == pytest.approx(0.1)
    assert found.high is not None
    # Student's t at one degree of freedom.
    assert (found.high - found.mean) / 0.1 == pytest.approx(12.7062, rel=1e-3)


def test_interval_over_streams_holds_the_truth_as_often_as_it_says() -> None:
    # Streams with an effect of their own: single outcomes are no repetitions.
    generator = SeedTree(("tests", "study", "coverage")).generator()
    hits = 0
    for _ in range(300):
        rows = [generator.gauss(0.0, 0.1) for _ in range(8)]
        values = np.array([[row + generator.gauss(0.0, 0.3) for _ in range(20)] for row in rows])
        found = estimate(values)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 0 <= found.high
    assert 0.91 <= hits / 300 <= 0.99


# --- oracles ----------------------------------------------------------------------------------------------------------


def test_an_oracle_never_sees_the_seed_that_it_is_judged_on() -> None:
    matrix = outcome_matrix(OPPOSED, seeds=2)
    fold, words = folds(matrix)
    picks = cross_fitted(matrix.success, matrix.costs, labels=matrix.benchmark, fold=fold)
    # Whatever seed 0 gave, its own picks stay: they come from seed 1.
    altered = matrix.success.copy()
    altered[fold == 0] = 1 - altered[fold == 0]
    again = cross_fitted(altered, matrix.costs, labels=matrix.benchmark, fold=fold)
    assert words == "other seeds"
    assert (picks[fold == 0] == again[fold == 0]).all()
    assert (picks[fold == 1] != again[fold == 1]).any()


def test_one_seed_is_folded_by_streams() -> None:
    fold, words = folds(outcome_matrix(OPPOSED, seeds=1, streams=4))
    assert (sorted(fold.tolist()), words) == ([0, 1, 2, 3], "other streams")


def test_one_fold_is_refused() -> None:
    matrix = outcome_matrix(OPPOSED, seeds=1, streams=1)
    with pytest.raises(InvariantError, match="one fold"):
        cross_fitted(matrix.success, matrix.costs, labels=matrix.benchmark, fold=folds(matrix)[0])


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
    picks = cross_fitted(matrix.success, matrix.costs, labels=labels, fold=matrix.seeds)
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


def test_the_oracle_of_pure_noise_gains_nothing_although_hindsight_would() -> None:
    # 40 goal types of 6 tasks each: picked in hindsight, an arm of equals always looks better.
    matrix = outcome_matrix({f"f{i}": (0.5, 0.5, 0.5) for i in range(40)}, seeds=4, streams=2, tasks=40)
    fold, _ = folds(matrix)
    picks = cross_fitted(matrix.success, matrix.costs, labels=matrix.benchmark, fold=fold)
    gain = estimate(taken(matrix.success, picks) - matrix.success.mean(axis=2))
    hindsight = np.mean([matrix.success[matrix.benchmark == f].mean(axis=0).max() for f in matrix.families])
    assert gain is not None
    assert gain.se is not None
    assert abs(gain.mean) < 3 * gain.se
    assert hindsight - matrix.success.mean() > 0.1


def test_yardsticks_are_those_of_the_issue_with_the_random_arm_as_an_expectation() -> None:
    matrix = outcome_matrix(OPPOSED)
    found = headroom(matrix, RewardSettings())
    assert [(row.name, row.arm, row.chosen) for row in found.yardsticks] == [
        ("best single arm", "retrieve_deep", "in hindsight"),
        ("best single arm", None, "on other seeds"),
        ("default arm", "retrieve_shallow", "fixed"),
        ("no memory", "noop", "fixed"),
        ("random arm", None, "expectation"),
        ("oracle per family", None, "on other seeds"),
        ("oracle per goal type", None, "on other seeds"),
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


def test_pulls_are_eight_variances_over_the_squared_gap() -> None:
    matrix = outcome_matrix(OPPOSED, seeds=3, streams=8, tasks=40)
    rewards = matrix.rewards(RewardSettings())
    audit, house = needs(matrix, rewards, "benchmark")
    assert (audit.context, audit.arm) == ("audit", "noop")
    here = matrix.benchmark == "audit"
    gap = (rewards[here][:, 2] - rewards[here][:, 1]).mean()
    assert audit.gap is not None
    assert audit.gap.mean == pytest.approx(gap)
    assert audit.pulls == np.ceil(8 * audit.sd**2 / gap**2)
    # A Bernoulli outcome of 1 or -0.5: sd = 1.5 sqrt(p (1 - p)).
    assert audit.sd == pytest.approx(1.5 * (0.3 + np.sqrt(0.21)) / 2, abs=0.05)
    # The best single arm is the best one here: there is no gap to learn.
    assert (house.context, house.arm, house.gap, house.pulls) == ("house", None, None, None)


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
    with pytest.raises(InvariantError, match="no arm 'plan_inject'"):
        matrix.arm("plan_inject")
