"""Thompson sampling: its chances by quadrature, its draws, and the preset `pooled` (A-31)."""

from __future__ import annotations

import math

import pytest

from memcon import ids, registry
from memcon.learning.exploration import build_rule
from memcon.learning.exploration.largest import chance_of_largest
from memcon.learning.exploration.learned import LearnedConfig
from memcon.learning.exploration.thompson import PooledConfig, ThompsonConfig
from memcon.learning.q_table import KeyView
from memcon.seeds import SeedTree
from support.rule_references import largest

ARMS = ("retrieve_shallow", "plan_inject", "noop")
PRIORS = (0.5, 0.3, -0.2)
NUM_DRAWS = 100_000


def _view(q: tuple[float, ...] = PRIORS, credited: tuple[int, ...] = (0, 0, 0)) -> KeyView:
    return KeyView(action_ids=ARMS, priors=PRIORS, q=q, taken=credited, credited=credited)


# Finest first, so that both the mean of the coarse key and its count matter.
CHAIN = (_view((0.6, 0.4, 0.3), (3, 2, 4)), _view((0.3, 0.45, 0.4), (12, 30, 2)))


@pytest.mark.parametrize("number", range(60))
def test_the_quadrature_agrees_with_a_fine_integral(number: int) -> None:
    chance = SeedTree(("quadrature", number)).generator()
    num_arms, spread = chance.randint(1, 9), chance.choice((0.0, 0.02, 0.1, 0.3, 1.0, 3.0))
    means = [0.3 + spread * (2 * chance.random() - 1) for _ in range(num_arms)]
    # 2 to 108 effective returns of deviation .5; some arms alike, as those without data are.
    counts = [chance.choice((2.0, 10.0, 108.0, 2 * 54 ** chance.random())) for _ in range(num_arms)]
    deviations = [0.5 / math.sqrt(count) for count in counts]

    found = chance_of_largest(tuple(means), tuple(deviations))

    assert math.fsum(found) == pytest.approx(1.0, abs=1e-12)
    assert min(found) >= 0.0
    assert found == pytest.approx(largest(means, deviations, points=8001), abs=1e-4)


def test_two_arms_agree_with_the_closed_form() -> None:
    means, deviations = (0.6, 0.3), (0.1, 0.4)

    found = chance_of_largest(means, deviations)

    expected = 0.5 * math.erfc(-(0.6 - 0.3) / math.hypot(0.1, 0.4) / math.sqrt(2))
    assert found == pytest.approx((expected, 1 - expected), abs=2e-5)


def test_an_arm_out_of_reach_has_no_chance_and_a_lone_arm_has_all() -> None:
    assert chance_of_largest((1000.0, 0.0), (0.1, 0.1)) == pytest.approx((1.0, 0.0))
    # Here the extrapolation comes out at minus 1e-11.
    assert chance_of_largest((1.3, -0.1), (0.2, 0.1)) == (1.0, 0.0)
    assert chance_of_largest((0.3,), (0.5,)) == (1.0,)


def test_deviations_below_the_spacing_of_floats_leave_the_means_to_decide() -> None:
    # sigma = 0.001, a reward of 1e6, and counts as they may be imported.
    deviation = 1e-3 / math.sqrt(2**53)
    assert chance_of_largest((1e6, 1e6 - 1, -1e6), (deviation,) * 3) == (1.0, 0.0, 0.0)
    assert chance_of_largest((1e6, 0.5, 1e6), (deviation, 0.5, deviation)) == (0.5, 0.0, 0.5)


def test_arms_that_are_alike_have_the_same_chance() -> None:
    assert chance_of_largest((0.3,) * 6, (0.2,) * 6) == pytest.approx((1 / 6,) * 6, abs=1e-15)


@pytest.mark.parametrize(
    ("config", "views"), [(ThompsonConfig(), CHAIN[:1]), (PooledConfig(), CHAIN)], ids=["thompson", "pooled"]
)
def test_the_chances_are_those_of_the_draws(config: LearnedConfig, views: tuple[KeyView, ...]) -> None:
    rule = build_rule(config.learning_settings())

    drawn = [rule.choose(views, allowed=ARMS, draw=ids.draw64("place", n)).action_id for n in range(NUM_DRAWS)]

    for arm, share in zip(ARMS, rule.probabilities(views, allowed=ARMS), strict=True):
        assert 0.02 < share < 0.95
        assert abs(drawn.count(arm) / NUM_DRAWS - share) < 4 * math.sqrt(share * (1 - share) / NUM_DRAWS)


def test_chances_are_of_the_allowed_arms_only() -> None:
    rule = build_rule(ThompsonConfig().learning_settings())

    shares = rule.probabilities((_view(),), allowed=("retrieve_shallow", "noop"))

    # Both have the prior's 2 returns: z differs by Normal(.7, .5).
    assert shares == pytest.approx(
        (0.5 * math.erfc(-0.7 / 0.5 / math.sqrt(2)), 0.0, 1 - 0.5 * math.erfc(-0.7 / 0.5 / math.sqrt(2))), abs=2e-5
    )


def test_what_is_allowed_beside_an_arm_does_not_move_its_draw() -> None:
    rule = build_rule(ThompsonConfig().learning_settings())

    wide = rule.choose((_view(),), allowed=ARMS, draw=77)
    narrow = rule.choose((_view(),), allowed=("noop",), draw=77)

    assert wide.columns["sample"] == narrow.columns["sample"]
    assert narrow.action_id == "noop"


def test_the_sample_is_one_draw_of_the_posterior() -> None:
    rule = build_rule(ThompsonConfig(sigma=0.8).learning_settings())
    view = _view(q=(0.9, 0.3, -0.2), credited=(6, 0, 0))

    choices = [rule.choose((view,), allowed=ARMS, draw=ids.draw64("sample", n)) for n in range(4000)]

    samples = [choice.columns["sample"][0] for choice in choices]
    mean, deviation = (2 * 0.5 + 6 * 0.9) / 8, 0.8 / math.sqrt(8)
    found = math.fsum(samples) / 4000
    spread = math.sqrt(math.fsum([(sample - found) ** 2 for sample in samples]) / 3999)
    assert found == pytest.approx(mean, abs=4 * deviation / math.sqrt(4000))
    assert spread == pytest.approx(deviation, rel=4 / math.sqrt(2 * 4000))
    assert choices[0].columns["effective_count"] == (8.0, 2.0, 2.0)


def test_pooled_is_the_measured_preset() -> None:
    settings = PooledConfig().learning_settings()

    assert (settings.rule, settings.key_schema, settings.pooling) == (
        "pooled",
        "benchmark+goal_type/1",
        ("benchmark/1",),
    )
    assert dict(settings.rule_parameters) == {"prior_strength": 2.0, "pool_strength": 8.0, "sigma": 0.5}
    assert (settings.estimator, settings.count_cap, settings.action_set) == ("capped_mean", 100, "compact")
    assert settings.priors == (0.3,) * 7
    assert PooledConfig().preset_sections() == {
        "control": {"decision_points": "start"},
        "reward": {"token_cost": 0.1},
    }


def test_pooled_with_warm_start_takes_the_priors_of_table_6() -> None:
    settings = registry.configure("policy", "pooled", {"warm_start": True}).learning_settings()

    assert settings.priors == (0.5, 0.5, 0.5, 0.3, 0.5, -0.2, 0.1)
