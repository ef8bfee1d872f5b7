"""Exact replay of rules on an outcome matrix: rounds, sharing, cost, counts, and what a study says of a learner."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from memcon import registry
from memcon.learning.credit import RewardSettings
from memcon_platform.study.exact_replay import Learner, replay
from memcon_platform.study.findings import findings
from memcon_platform.study.matrix_plan import Arena, Skipped
from memcon_platform.study.terminal import verdicts
from support.matrices import ARMS, TOKENS, learner_of, outcome_matrix, table_settings

OPPOSED = {"audit": (0.1, 0.2, 0.9), "house": (0.2, 0.9, 0.1)}
UCB = table_settings("ucb", c=0.2)


def arena(*learners: Learner) -> Arena:
    labels = {"benchmark": "made up", "framework": "f", "backbone": "b", "memory": "m"}
    return Arena(labels=labels, cells=(), learners=learners, skipped=(Skipped(policy="p", reason="why"),))


def test_a_fixed_arm_gets_its_own_column() -> None:
    matrix = outcome_matrix(OPPOSED)
    found = replay(matrix, learner_of(table_settings("fixed", action_id="retrieve_deep")), group=2)
    assert (found.picks == ARMS.index("retrieve_deep")).all()
    assert found.tables == 3
    assert not found.forced.any()


def test_a_replay_repeats_to_the_bit() -> None:
    matrix = outcome_matrix(OPPOSED)
    one, other = (replay(matrix, learner_of(table_settings("uniform")), group=3) for _ in range(2))
    assert (one.picks == other.picks).all()
    assert len(np.unique(one.picks)) == len(ARMS)


def test_streams_of_a_group_pay_the_first_visits_of_a_key_once() -> None:
    matrix = outcome_matrix({"house": (0.5, 0.5, 0.5)}, seeds=1, streams=6, tasks=12)
    alone = replay(matrix, learner_of(UCB), group=1)
    shared = replay(matrix, learner_of(UCB), group=6)
    # Two goal types of three arms: six forced choices a table.
    assert (int(alone.forced.sum()), int(shared.forced.sum())) == (6 * 6, 6)


def test_choices_of_a_round_are_made_before_its_feedback() -> None:
    matrix = outcome_matrix({"house": (1.0, 1.0, 1.0)}, seeds=1, streams=3, tasks=6)
    found = replay(matrix, learner_of(UCB), group=3)
    # Goal types alternate by row and task; where all three rows meet the same one the visits of a round differ already.
    same = outcome_matrix({"house": (1.0, 1.0, 1.0)}, seeds=1, streams=3, tasks=6)
    one_type = dataclasses.replace(same, goal_type=np.full_like(same.goal_type, "t"))
    first = replay(one_type, learner_of(UCB), group=3)
    assert sorted(first.picks[:, 0].tolist()) == [0, 1, 2]
    assert first.forced[:, 0].all()
    assert not first.forced[:, 1:].any()
    # Whatever the outcomes of a round are, its choices stay: only later rounds may change.
    altered = dataclasses.replace(one_type, success=1 - one_type.success)
    assert (replay(altered, learner_of(UCB), group=3).picks[:, 0] == first.picks[:, 0]).all()
    assert found.tables == 1


def test_a_learner_finds_opposed_arms_and_a_larger_group_finds_them_sooner() -> None:
    matrix = outcome_matrix(OPPOSED, seeds=4, streams=4, tasks=60)
    found = findings(matrix, arena(learner_of(UCB)), (1, 16, 64), RewardSettings())
    alone, shared = found.learners
    assert (alone.tables, shared.tables) == (16, 1)
    assert alone.to_best is not None
    assert shared.to_best is not None
    assert alone.to_best_last_quarter is not None
    assert alone.to_best_last_quarter.mean > 0.1
    assert shared.to_best.mean > alone.to_best.mean
    assert shared.forced_share < alone.forced_share
    # Nobody beats the oracle; and one table is one repetition, with all tasks of its sixteen streams.
    assert shared.to_oracle is not None
    assert shared.to_oracle.mean < 0
    assert (shared.to_oracle.tables, shared.to_oracle.tasks, shared.tasks) == (1, 60, 960)
    assert found.notes == ("64 streams a table: not replayed, the matrix has 16; raise study.streams or add seeds",)


def test_gains_by_family_add_up_and_leaving_the_one_family_out_takes_the_gain_away() -> None:
    matrix = outcome_matrix({"audit": (0.1, 0.1, 0.9), "house": (0.1, 0.9, 0.1)}, seeds=2, streams=4, tasks=80)
    (result,) = findings(matrix, arena(learner_of(UCB)), (8,), RewardSettings()).learners
    gains = {gain.family: gain for gain in result.families}
    assert set(gains) == {"audit", "house"}
    assert result.to_best is not None
    parts = [gain.gain.mean for gain in result.families if gain.gain]
    # Both families have half of the tasks.
    assert np.mean(parts) == pytest.approx(result.to_best.mean)
    assert max(parts) > 0.5
    for gain in result.families:
        # The rest is one family, whose best single arm nobody beats.
        assert gain.without is not None
        assert gain.without.mean < 0.02
        assert sum(gain.arms_last_quarter.values()) == pytest.approx(1)
    assert max(gains["audit"].arms_last_quarter, key=gains["audit"].arms_last_quarter.__getitem__) == "noop"


def test_token_cost_moves_choices_to_the_arm_of_fewer_tokens() -> None:
    matrix = outcome_matrix({"trivia": (1.0, 1.0, 1.0)}, seeds=1, streams=4, tasks=60)
    free = replay(matrix, learner_of(UCB), group=4)
    # 1 a thousand tokens: shallow costs 0.1, deep 0.3, noop nothing.
    priced = replay(matrix, learner_of(UCB, token_cost=1.0), group=4)
    spent = [float(np.array(TOKENS)[found.picks].mean()) for found in (free, priced)]
    assert spent[1] < 0.7 * spent[0]
    assert Counter(priced.picks[:, 30:].ravel().tolist()).most_common(1)[0][0] == ARMS.index("noop")


def test_pulls_are_counted_by_key_and_arm_and_few_are_not_learned() -> None:
    matrix = outcome_matrix(OPPOSED, seeds=2, streams=2, tasks=40)
    found = replay(matrix, learner_of(UCB), group=2)
    finest = [context for context in found.contexts if context.level == 0]
    assert len(finest) == 4
    # Two streams of 40 tasks over four goal types: 20 a key.
    assert [context.pulls for context in finest] == [20.0] * 4
    assert [context.not_learned for context in finest] == [1.0] * 4
    for context in finest:
        assert sum(context.by_arm.values()) == pytest.approx(context.pulls)
    larger = replay(matrix, learner_of(UCB), group=4)
    assert [context.not_learned for context in larger.contexts] == [0.0] * 4


def test_with_pooling_every_level_counts_the_same_outcomes() -> None:
    matrix = outcome_matrix(OPPOSED, seeds=1, streams=4, tasks=40)
    shipped = registry.configure("policy", "bayes_ucb", {}).learning_settings()
    settings = dataclasses.replace(
        table_settings("bayes_ucb", **shipped.rule_parameters),
        key_schema="benchmark+goal_type/1",
        pooling=("benchmark/1",),
    )
    found = replay(matrix, learner_of(settings), group=4)
    keys = {level: [context for context in found.contexts if context.level == level] for level in (0, 1)}
    assert [len(keys[level]) for level in (0, 1)] == [4, 2]
    assert [sum(context.pulls for context in keys[level]) for level in (0, 1)] == [160.0, 160.0]


def test_an_unevaluable_outcome_is_cancelled_and_teaches_nothing() -> None:
    matrix = outcome_matrix({"house": (1.0, 0.0, 0.0)}, seeds=1, streams=2, tasks=30, unevaluable=0.3)
    found = replay(matrix, learner_of(UCB), group=2)
    known = int((~np.isnan(matrix.success[:, :, 0])).sum())
    assert 0 < known < 60
    assert sum(context.pulls for context in found.contexts) == known
    result = findings(matrix, arena(learner_of(UCB)), (2,), RewardSettings())
    assert result.unevaluable == 3 * (60 - known)
    assert result.learners[0].success is not None


def test_arms_that_the_memory_lacks_are_masked_where_the_policy_says_so() -> None:
    matrix = dataclasses.replace(outcome_matrix(OPPOSED), unsupported=frozenset({"noop"}))
    masking = dataclasses.replace(learner_of(table_settings("uniform")), mask_unsupported=True)
    assert ARMS.index("noop") not in replay(matrix, masking, group=1).picks
    assert ARMS.index("noop") in replay(matrix, learner_of(table_settings("uniform")), group=1).picks


def test_verdict_says_whether_there_is_anything_to_learn() -> None:
    opposed = findings(outcome_matrix(OPPOSED, seeds=3, streams=4), arena(), (1,), RewardSettings())
    flat = findings(outcome_matrix({"a": (0.5,) * 3, "b": (0.5,) * 3}), arena(), (1,), RewardSettings())
    alone = findings(outcome_matrix(OPPOSED, seeds=1, streams=1), arena(), (1,), RewardSettings())
    assert [line.split(":")[0] for line in verdicts(opposed)] == ["headroom", "headroom"]
    assert [line.split(":")[0] for line in verdicts(flat)] == ["no headroom", "no headroom"]
    assert verdicts(alone)[0].startswith("headroom cannot be told: one stream only")
    assert alone.notes == ("one stream only: no oracle, since arms can be picked on no other stream",)


def test_rules_are_held_against_the_reference_on_the_same_tasks() -> None:
    matrix = outcome_matrix(OPPOSED)
    deep = dataclasses.replace(learner_of(table_settings("fixed", action_id="retrieve_deep")), label="deep")
    noop = dataclasses.replace(learner_of(table_settings("fixed", action_id="noop")), label="noop")

    found = findings(matrix, dataclasses.replace(arena(deep, noop), reference="deep"), (1,), RewardSettings())

    by_policy = {result.policy: result.to_reference for result in found.learners}
    gap = np.nanmean(matrix.success[:, :, ARMS.index("noop")] - matrix.success[:, :, ARMS.index("retrieve_deep")])
    assert by_policy["deep"] is None
    assert by_policy["noop"] is not None
    assert by_policy["noop"].mean == pytest.approx(gap)
    lost = findings(matrix, dataclasses.replace(arena(deep), reference="ucb"), (1,), RewardSettings())
    assert any("study.reference 'ucb' is no learner" in note for note in lost.notes)
