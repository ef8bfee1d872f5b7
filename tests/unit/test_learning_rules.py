"""The rules `ucb`, `fixed`, `uniform` and `none`, and rules from elsewhere (MC-13, MC-26 to MC-28, MC-30)."""

from __future__ import annotations

import dataclasses
import math
from importlib.metadata import EntryPoint

import pytest

from memcon import registry
from memcon.errors import ConfigError, UnknownNameError
from memcon.learning import exploration
from memcon.learning.exploration import (
    Choice,
    FixedConfig,
    NoneConfig,
    Rule,
    UcbConfig,
    UniformConfig,
    build_rule,
    draw_index,
)
from memcon.learning.q_table import KeyView
from memcon.policy_types import LearningSettings

UCB = UcbConfig().learning_settings()
ARMS = UCB.action_ids


def _view(*, q: tuple[float, ...] = UCB.priors, taken: tuple[int, ...] = (0,) * 9) -> KeyView:
    return KeyView(action_ids=ARMS, priors=UCB.priors, q=q, taken=taken, credited=taken)


def _ucb() -> Rule:
    return build_rule(UCB)


def test_ucb_scores_as_computed_by_hand() -> None:
    taken = (4, 1, 2, 1, 1, 1, 1, 1, 1)
    q = (0.9, 0.2, 0.5, 0.3, 0.1, 0.0, -0.1, 0.5, -0.2)

    choice = _ucb().choose(_view(q=q, taken=taken), allowed=ARMS, draw=0)

    # ln 13 = 2.564949; bonuses 1.4 sqrt(ln 13 / n): n=1 2.242164, n=2 1.585450, n=4 1.121082.
    assert choice.scores == pytest.approx(
        (2.021082, 2.442164, 2.085450, 2.542164, 2.342164, 2.242164, 2.142164, 2.742164, 2.042164), abs=1e-6
    )
    assert (choice.action_id, choice.propensity, choice.tie_set) == ("insight_only", 1.0, ("insight_only",))
    assert not choice.forced


def test_ucb_gives_unvisited_arms_an_infinite_bonus_in_order_of_priors() -> None:
    taken, order = [0] * 9, []
    for _ in range(9):
        choice = _ucb().choose(_view(taken=tuple(taken)), allowed=ARMS, draw=12345)
        assert choice.forced
        assert choice.bonuses[ARMS.index(choice.action_id)] == math.inf
        order.append(ARMS.index(choice.action_id))
        taken[order[-1]] += 1

    assert order == [0, 1, 2, 7, 3, 4, 5, 6, 8]


def test_ucb_orders_first_visits_by_prior_even_when_values_moved() -> None:
    # A cancelled decision may leave a moved q beside a count of 0 under pooled rules: the prior still orders.
    q = (*UCB.priors[:8], 9.0)

    assert _ucb().choose(_view(q=q), allowed=ARMS, draw=0).action_id == "retrieve_shallow"


def test_ucb_draws_between_exact_ties_with_equal_probability() -> None:
    view = _view(q=(0.5, 0.5, 0.5, *(-5.0,) * 6), taken=(3,) * 9)

    drawn = [_ucb().choose(view, allowed=ARMS, draw=draw).action_id for draw in range(3)]

    assert sorted(drawn) == sorted(ARMS[:3])
    choice = _ucb().choose(view, allowed=ARMS, draw=7)
    assert choice.tie_set == ARMS[:3]
    assert choice.propensity == 1 / 3
    assert choice.probabilities == (1 / 3,) * 3 + (0.0,) * 6


def test_ucb_counts_masked_arms_in_n_but_never_chooses_them() -> None:
    taken = (100, 1, 1, 1, 1, 1, 1, 1, 1)
    view = _view(q=(9.0, 0.0, 0.1, *(0.0,) * 6), taken=taken)

    choice = _ucb().choose(view, allowed=("retrieve_medium", "retrieve_deep"), draw=0)

    assert choice.action_id == "retrieve_deep"
    assert choice.bonuses[1] == 1.4 * math.sqrt(math.log(108) / 1)


def test_ucb_visits_allowed_unvisited_arms_only() -> None:
    view = _view(taken=(0, 1, 1, 0, 1, 1, 1, 1, 0))

    assert _ucb().choose(view, allowed=("plan_inject", "noop"), draw=0).action_id == "plan_inject"
    assert not _ucb().choose(view, allowed=("retrieve_medium",), draw=0).forced


def test_fixed_takes_its_arm_with_certainty() -> None:
    rule = build_rule(FixedConfig(action_id="retrieve_deep").learning_settings())

    choice = rule.choose(_view(), allowed=ARMS, draw=5)

    assert (choice.action_id, choice.propensity, choice.tie_set, choice.forced) == (
        "retrieve_deep",
        1.0,
        ("retrieve_deep",),
        False,
    )


def test_fixed_refuses_when_its_arm_is_masked() -> None:
    rule = build_rule(FixedConfig(action_id="retrieve_deep").learning_settings())

    with pytest.raises(ConfigError, match=r"'retrieve_deep' is masked.*noop"):
        rule.choose(_view(), allowed=("noop",), draw=0)


def test_uniform_gives_every_allowed_arm_its_share() -> None:
    rule = build_rule(UniformConfig().learning_settings())
    allowed = ("retrieve_shallow", "forget", "noop")

    drawn = [rule.choose(_view(), allowed=allowed, draw=draw) for draw in range(9)]

    assert [choice.action_id for choice in drawn] == list(allowed) * 3
    assert {choice.propensity for choice in drawn} == {1 / 3}
    assert drawn[0].tie_set == allowed


def test_draws_beyond_the_last_whole_run_are_hashed_again() -> None:
    top = 2**64 - 1

    assert 2**64 % 9 == 7
    assert draw_index(2**64 - 8, 9) == 8
    redrawn = [draw_index(2**64 - 7 + n, 9) for n in range(7)]
    assert redrawn != list(range(7))
    assert all(0 <= index < 9 for index in redrawn)
    assert draw_index(top, 1) == 0
    assert draw_index(top, 2) == 1


def test_settings_carry_what_the_config_says() -> None:
    settings = UcbConfig(c=1.6, alpha=0.18, gamma=0.88, estimator="mean", warm_start=False).learning_settings()

    assert (settings.rule, dict(settings.rule_parameters)) == ("ucb", {"c": 1.6})
    assert (settings.alpha, settings.gamma, settings.estimator, settings.key_schema) == (0.18, 0.88, "mean", "paper/1")
    assert settings.priors == (0.0,) * 9
    assert settings.fingerprint == UCB.fingerprint


def test_none_has_no_table() -> None:
    assert registry.configure("policy", "none", {}) == NoneConfig()
    NoneConfig().learning_settings()
    with pytest.raises(ConfigError, match="none"):
        build_rule(dataclasses.replace(UCB, rule="none"))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"c": math.nan}, "c = nan"),
        ({"c": -1.0}, "c = -1"),
        ({"alpha": 1.5}, "alpha"),
        ({"gamma": math.inf}, "gamma"),
        ({"estimator": "median"}, "estimator"),
        ({"action_set": "dflt"}, "action_set"),
        ({"state_key": "papper"}, "did you mean 'paper'"),
        ({"epsilon": 0.1}, "unknown key 'epsilon'"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.configure("policy", "ucb", parameters)


def test_fixed_refuses_an_arm_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="did you mean 'retrieve_deep'"):
        registry.configure("policy", "fixed", {"action_id": "retrieve_dep"})
    with pytest.raises(ConfigError, match="action_id"):
        registry.configure("policy", "fixed", {})


@pytest.mark.parametrize(
    ("rule", "parameters"),
    [
        ("ucb", {}),
        ("ucb", {"c": 1.4, "d": 1.0}),
        ("ucb", {"c": "much"}),
        ("uniform", {"c": 1.4}),
        ("fixed", {"action_id": "x"}),
    ],
)
def test_rule_refuses_settings_that_are_not_its_own(rule: str, parameters: dict[str, float | str]) -> None:
    with pytest.raises(ConfigError):
        build_rule(dataclasses.replace(UCB, rule=rule, rule_parameters=parameters))


class _LastArm:
    def choose(self, view: KeyView, *, allowed: tuple[str, ...], draw: int) -> Choice:
        return Choice(action_id=allowed[-1], propensity=1.0, tie_set=(allowed[-1],), forced=False, probabilities=())


def _build_last_arm(settings: LearningSettings) -> Rule:
    return _LastArm()


LAST_ARM = registry.Plugin(config=UcbConfig, build=_build_last_arm)


def test_rule_of_another_package_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(name="last_arm", value=f"{__name__}:LAST_ARM", group="memcon.policy")
    monkeypatch.setattr(registry, "_entry_points", lambda kind: {"last_arm": point})

    rule = build_rule(dataclasses.replace(UCB, rule="last_arm"))

    assert rule.choose(_view(), allowed=ARMS, draw=0).action_id == "noop"
    with pytest.raises(UnknownNameError, match="last_arm"):
        build_rule(UCB)


def test_score_function_is_the_printed_formula() -> None:
    assert exploration.ucb_bonus(1.4, math.log(10), 4) == 1.4 * math.sqrt(math.log(10) / 4)
    assert exploration.ucb_bonus(1.4, 0.0, 1) == 0.0
    assert exploration.ucb_bonus(1.4, math.log(5), 0) == math.inf
