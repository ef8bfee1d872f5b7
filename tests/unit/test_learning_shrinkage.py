"""Estimates over a chain of keys, and rules that score them: greedy, epsilon_greedy, bayes_ucb (A-11, A-12, A-31)."""

from __future__ import annotations

import math

import pytest

from memcon import registry
from memcon.errors import ConfigError
from memcon.learning.exploration import Rule, UcbConfig, build_rule
from memcon.learning.exploration.bayes_ucb import BayesUcbConfig
from memcon.learning.exploration.evidence import Shrinkage
from memcon.learning.exploration.greedy import EpsilonGreedyConfig, GreedyConfig
from memcon.learning.q_table import KeyView, QTable

ARMS = ("a", "b", "c")
PRIORS = (0.5, 0.3, -0.2)


def _view(
    q: tuple[float, ...] = PRIORS, credited: tuple[int, ...] = (0, 0, 0), taken: tuple[int, ...] | None = None
) -> KeyView:
    return KeyView(action_ids=ARMS, priors=PRIORS, q=q, taken=taken or credited, credited=credited)


def _shrinkage(*, count_cap: int | None = None) -> Shrinkage:
    return Shrinkage(prior_strength=2.0, pool_strength=8.0, count_cap=count_cap)


def _rule(config: GreedyConfig | BayesUcbConfig) -> Rule:
    return build_rule(config.learning_settings())


def test_three_levels_shrink_as_computed_by_hand() -> None:
    finest = _view(q=(0.0, 1.0, -0.2), credited=(1, 2, 0))
    middle = _view(q=(0.25, 0.8, -0.2), credited=(4, 5, 0))
    coarsest = _view(q=(0.5, 0.6, -0.2), credited=(8, 10, 0))

    found = _shrinkage().estimates((finest, middle, coarsest))

    # a: m1 = (1 + 4)/10 = .5, e1 = 10; m2 = (4 + 1)/12, e2 = 4 + 8; m3 = (8 m2 + 0)/9, e3 = 1 + 8.
    # b: m1 = (.6 + 6)/12 = .55, e1 = 12; m2 = (4.4 + 4)/13, e2 = 5 + 8; m3 = (8 m2 + 2)/10, e3 = 2 + 8.
    # c: the prior all the way, worth its 2 returns.
    assert found.means == pytest.approx((8 * (5 / 12) / 9, (8 * (8.4 / 13) + 2) / 10, -0.2))
    assert found.counts == (9.0, 10.0, 2.0)


def test_one_key_gives_the_posterior_of_proposition_d20() -> None:
    sigma, sigma_0 = 0.5, 0.25
    strength = sigma**2 / sigma_0**2
    view = _view(q=(0.9, 0.3, -0.2), credited=(5, 0, 0))

    found = Shrinkage(prior_strength=strength, pool_strength=8.0, count_cap=None).estimates((view,))

    # (32) and (35) as printed, in precisions.
    expected = (sigma_0**-2 * 0.5 + 5 * sigma**-2 * 0.9) / (sigma_0**-2 + 5 * sigma**-2)
    assert found.means[0] == pytest.approx(expected)
    assert found.counts[0] == 5 + strength


def test_counts_beyond_the_cap_weigh_as_the_cap() -> None:
    many, capped = _view(q=(0.9, 0.3, -0.2), credited=(400, 0, 0)), _view(q=(0.9, 0.3, -0.2), credited=(100, 0, 0))

    assert _shrinkage(count_cap=100).estimates((many,)) == _shrinkage().estimates((capped,))


def test_a_coarse_key_without_returns_changes_nothing_but_its_worth() -> None:
    finest = _view(q=(0.9, 0.3, -0.2), credited=(2, 0, 0))

    found = _shrinkage().estimates((finest, _view()))

    assert found.means == pytest.approx(((8 * 0.5 + 1.8) / 10, 0.3, -0.2))
    assert found.counts == (4.0, 2.0, 2.0)


@pytest.mark.parametrize("prior_strength", [0.0, 2.0])
def test_an_arm_without_returns_stands_at_its_prior_whatever_its_value_says(prior_strength: float) -> None:
    # Numbers of another table may come in with their counts capped to nothing.
    shrinkage = Shrinkage(prior_strength=prior_strength, pool_strength=8.0, count_cap=None)

    assert shrinkage.estimates((_view(q=(9.0, 9.0, 9.0)),)).means == PRIORS


def test_the_weights_of_the_capped_mean_are_those_of_scaled_sums() -> None:
    """n += 1, S += G; if n > cap: S *= cap/n, n = cap: q is S/n of it."""
    settings = GreedyConfig(estimator="capped_mean", count_cap=2, prior_strength=2.0).learning_settings()
    table, arm = QTable(settings), settings.action_ids[0]
    n, total = 0.0, 0.0
    for gain in (1.0, -0.5, 1.15, 1.3):
        table.take(("k",), arm)
        table.credit(("k",), arm, gain)
        n, total = n + 1, total + gain
        if n > 2:
            n, total = 2.0, total * 2 / n

    found = Shrinkage(prior_strength=2.0, pool_strength=8.0, count_cap=2).estimates(table.views(("k",)))

    assert found.means[0] == pytest.approx((2 * 0.5 + total) / (2 + n))
    assert found.counts[0] == 4.0


def test_greedy_by_default_is_ucb_without_its_bonus_after_the_first_visits() -> None:
    settings = UcbConfig(c=0.0).learning_settings()
    q = (0.1, 0.7, 0.7, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0)
    view = KeyView(action_ids=settings.action_ids, priors=settings.priors, q=q, taken=(3,) * 9, credited=(3,) * 9)

    for draw in range(4):
        mine = _rule(GreedyConfig()).choose((view,), allowed=view.action_ids, draw=draw)
        papers = build_rule(settings).choose((view,), allowed=view.action_ids, draw=draw)
        assert (mine.action_id, mine.tie_set, mine.forced) == (papers.action_id, papers.tie_set, False)
        assert mine.columns["mean"] == q


def test_greedy_takes_the_best_prior_first_and_stays_while_it_is_best() -> None:
    rule = _rule(GreedyConfig())

    assert rule.choose((_view(),), allowed=ARMS, draw=0).action_id == "a"
    assert rule.choose((_view(q=(0.35, 0.3, -0.2), credited=(1, 0, 0)),), allowed=ARMS, draw=0).action_id == "a"
    assert rule.choose((_view(q=(0.25, 0.3, -0.2), credited=(2, 0, 0)),), allowed=ARMS, draw=0).action_id == "b"


def test_epsilon_greedy_gives_every_allowed_arm_its_share() -> None:
    rule = _rule(EpsilonGreedyConfig(epsilon=0.1))

    assert rule.probabilities((_view(),), allowed=ARMS) == pytest.approx((0.9 + 0.1 / 3, 0.1 / 3, 0.1 / 3))
    assert rule.probabilities((_view(),), allowed=("b", "c")) == pytest.approx((0.0, 0.95, 0.05))


def test_the_floor_of_epsilon_greedy_is_drawn_apart_from_its_epsilon() -> None:
    rule = _rule(EpsilonGreedyConfig(epsilon=0.5, exploration_floor=0.2))

    # .8 (.5 + .5/3) + .2/3
    assert rule.probabilities((_view(),), allowed=ARMS)[0] == pytest.approx(0.8 * (0.5 + 0.5 / 3) + 0.2 / 3)
    drawn = [rule.choose((_view(),), allowed=ARMS, draw=draw).action_id for draw in range(2000)]
    share = rule.probabilities((_view(),), allowed=ARMS)[0]
    assert abs(drawn.count("a") / 2000 - share) < 4 * math.sqrt(share * (1 - share) / 2000)


def test_bayes_ucb_scores_as_computed_by_hand() -> None:
    view = _view(q=(0.9, 0.0, -0.2), credited=(3, 1, 0), taken=(4, 1, 0))

    choice = _rule(BayesUcbConfig(c=1.0)).choose((view,), allowed=ARMS, draw=0)

    # N = 5, ln N = 1.609438; m_eff by taken: 6, 3, 2; means (1 + 2.7)/5, (.6 + 0)/3, -.2.
    assert choice.columns["bonus"] == pytest.approx((0.517919, 0.732447, 0.897061), abs=1e-6)
    assert choice.columns["mean"] == pytest.approx((0.74, 0.2, -0.2))
    assert choice.columns["score"] == pytest.approx((1.257919, 0.932447, 0.697061), abs=1e-6)
    assert choice.columns["effective_count"] == (6.0, 3.0, 2.0)
    assert (choice.action_id, choice.forced) == ("a", False)


@pytest.mark.parametrize("taken", [(0, 0, 0), (1, 0, 0)])
def test_bayes_ucb_has_no_bonus_before_the_second_decision(taken: tuple[int, ...]) -> None:
    view = _view(taken=taken)

    choice = _rule(BayesUcbConfig()).choose((view,), allowed=ARMS, draw=0)

    assert choice.columns["bonus"] == (0.0, 0.0, 0.0)
    assert (choice.action_id, choice.forced) == ("a", False)


def test_open_decisions_of_other_streams_turn_bayes_ucb_to_other_arms() -> None:
    rule = _rule(BayesUcbConfig())
    taken, order = [1, 1, 1], []
    for _ in range(9):
        counts = (taken[0], taken[1], taken[2])
        view = KeyView(action_ids=ARMS, priors=(0.0,) * 3, q=(0.0,) * 3, taken=counts, credited=(1, 1, 1))
        order.append(rule.choose((view,), allowed=ARMS, draw=0).action_id)
        taken[ARMS.index(order[-1])] += 1

    # No outcome came in meanwhile: by credited counts, the same three-way tie would have been drawn nine times.
    assert [sorted(order[i : i + 3]) for i in (0, 3, 6)] == [["a", "b", "c"]] * 3


@pytest.mark.parametrize("name", ["greedy", "epsilon_greedy", "bayes_ucb", "thompson"])
def test_a_chain_needs_means(name: str) -> None:
    chain = {"state_key": "benchmark+goal_type", "pooling": ["benchmark"]}

    config = registry.configure("policy", name, {**chain, "estimator": "mean", "prior_strength": 1.0})

    assert config.learning_settings().pooling == ("benchmark/1",)
    with pytest.raises(ConfigError, match=rf"'ema'.*'{name}' needs 'mean' or 'capped_mean'"):
        registry.configure("policy", name, {**chain, "estimator": "ema"})


def test_the_value_of_ema_is_no_evidence_for_a_prior() -> None:
    with pytest.raises(ConfigError, match="prior_strength 2"):
        GreedyConfig(prior_strength=2.0)
