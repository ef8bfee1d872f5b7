"""Rules: `ucb`, `fixed`, `uniform`, `none`, `every_arm`, the floor, and others' (MC-13, MC-26 to MC-28, MC-30)."""

from __future__ import annotations

import dataclasses
import math
from importlib.metadata import EntryPoint

import pytest

from memcon import registry
from memcon.errors import ConfigError, UnknownNameError
from memcon.ids import draw64
from memcon.learning.exploration import Choice, FixedConfig, NoneConfig, Rule, UcbConfig, UniformConfig, build_rule
from memcon.learning.exploration.draws import draw_index, normal, unit
from memcon.learning.exploration.learned import PROFILES
from memcon.learning.exploration.paper import ucb_bonus
from memcon.learning.exploration.static import EveryArmConfig
from memcon.learning.q_table import KeyView
from memcon.policy_types import LearningSettings

UCB = UcbConfig().learning_settings()
ARMS = UCB.action_ids


def _views(*, q: tuple[float, ...] = UCB.priors, taken: tuple[int, ...] = (0,) * 9) -> tuple[KeyView, ...]:
    return (KeyView(action_ids=ARMS, priors=UCB.priors, q=q, taken=taken, credited=taken),)


def _ucb() -> Rule:
    return build_rule(UCB)


def test_ucb_scores_as_computed_by_hand() -> None:
    taken = (4, 1, 2, 1, 1, 1, 1, 1, 1)
    q = (0.9, 0.2, 0.5, 0.3, 0.1, 0.0, -0.1, 0.5, -0.2)

    choice = _ucb().choose(_views(q=q, taken=taken), allowed=ARMS, draw=0)

    # ln 13 = 2.564949; bonuses 1.4 sqrt(ln 13 / n): n=1 2.242164, n=2 1.585450, n=4 1.121082.
    assert choice.columns["score"] == pytest.approx(
        (2.021082, 2.442164, 2.085450, 2.542164, 2.342164, 2.242164, 2.142164, 2.742164, 2.042164), abs=1e-6
    )
    assert (choice.action_id, choice.tie_set) == ("insight_only", ("insight_only",))
    assert not choice.forced


def test_ucb_gives_unvisited_arms_an_infinite_bonus_in_order_of_priors() -> None:
    taken, order = [0] * 9, []
    for _ in range(9):
        choice = _ucb().choose(_views(taken=tuple(taken)), allowed=ARMS, draw=12345)
        assert choice.forced
        assert choice.columns["bonus"][ARMS.index(choice.action_id)] == math.inf
        order.append(ARMS.index(choice.action_id))
        taken[order[-1]] += 1

    assert order == [0, 1, 2, 7, 3, 4, 5, 6, 8]


def test_ucb_orders_first_visits_by_prior_even_when_values_moved() -> None:
    # A cancelled decision may leave a moved q beside a count of 0 under pooled rules: the prior still orders.
    q = (*UCB.priors[:8], 9.0)

    assert _ucb().choose(_views(q=q), allowed=ARMS, draw=0).action_id == "retrieve_shallow"


def test_ucb_draws_between_exact_ties_with_equal_probability() -> None:
    views = _views(q=(0.5, 0.5, 0.5, *(-5.0,) * 6), taken=(3,) * 9)

    drawn = [_ucb().choose(views, allowed=ARMS, draw=draw).action_id for draw in range(3)]

    assert sorted(drawn) == sorted(ARMS[:3])
    choice = _ucb().choose(views, allowed=ARMS, draw=7)
    assert choice.tie_set == ARMS[:3]
    assert _ucb().probabilities(views, allowed=ARMS) == (1 / 3,) * 3 + (0.0,) * 6


def test_ucb_counts_masked_arms_in_n_but_never_chooses_them() -> None:
    taken = (100, 1, 1, 1, 1, 1, 1, 1, 1)
    views = _views(q=(9.0, 0.0, 0.1, *(0.0,) * 6), taken=taken)

    choice = _ucb().choose(views, allowed=("retrieve_medium", "retrieve_deep"), draw=0)

    assert choice.action_id == "retrieve_deep"
    assert choice.columns["bonus"][1] == 1.4 * math.sqrt(math.log(108) / 1)


def test_ucb_visits_allowed_unvisited_arms_only() -> None:
    views = _views(taken=(0, 1, 1, 0, 1, 1, 1, 1, 0))

    assert _ucb().choose(views, allowed=("plan_inject", "noop"), draw=0).action_id == "plan_inject"
    assert not _ucb().choose(views, allowed=("retrieve_medium",), draw=0).forced


def test_fixed_takes_its_arm_with_certainty() -> None:
    rule = build_rule(FixedConfig(action_id="retrieve_deep").learning_settings())

    choice = rule.choose(_views(), allowed=ARMS, draw=5)

    assert (choice.action_id, choice.tie_set, choice.forced) == ("retrieve_deep", ("retrieve_deep",), False)
    assert rule.probabilities(_views(), allowed=ARMS) == (0.0, 0.0, 1.0, *(0.0,) * 6)


def test_fixed_refuses_when_its_arm_is_masked() -> None:
    rule = build_rule(FixedConfig(action_id="retrieve_deep").learning_settings())

    with pytest.raises(ConfigError, match=r"'retrieve_deep' is masked.*noop"):
        rule.choose(_views(), allowed=("noop",), draw=0)


def test_uniform_gives_every_allowed_arm_its_share() -> None:
    rule = build_rule(UniformConfig().learning_settings())
    allowed = ("retrieve_shallow", "forget", "noop")

    drawn = [rule.choose(_views(), allowed=allowed, draw=draw) for draw in range(9)]

    assert [choice.action_id for choice in drawn] == list(allowed) * 3
    assert drawn[0].tie_set == allowed
    shares = rule.probabilities(_views(), allowed=allowed)
    assert shares == tuple(1 / 3 if arm in allowed else 0.0 for arm in ARMS)


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


@pytest.mark.parametrize(("name", "config"), [("none", NoneConfig()), ("every_arm", EveryArmConfig())])
def test_a_policy_without_a_table_has_no_rule(name: str, config: object) -> None:
    configured = registry.configure("policy", name, {})

    assert configured == config
    assert configured.learning_settings() is None
    with pytest.raises(ConfigError, match=f"'{name}' has no table"):
        build_rule(dataclasses.replace(UCB, rule=name))


def test_every_arm_says_which_arms_are_played() -> None:
    assert EveryArmConfig(action_set="compact").trial_set == "compact"
    with pytest.raises(UnknownNameError, match="did you mean 'compact'"):
        EveryArmConfig(action_set="compat")


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_profile_gives_what_the_config_leaves_out(profile: str) -> None:
    of_table_6 = {
        "gpt-4.1-mini": (0.15, 0.9, 1.4),
        "claude-sonnet-4": (0.12, 0.92, 1.2),
        "deepseek-v3.2": (0.18, 0.88, 1.6),
    }

    settings = UcbConfig(profile=profile).learning_settings()

    assert (settings.alpha, settings.gamma, settings.rule_parameters["c"]) == of_table_6[profile]


def test_a_given_value_wins_over_the_profile() -> None:
    settings = UcbConfig(profile="claude-sonnet-4", alpha=0.15, c=0.0).learning_settings()

    assert (settings.alpha, settings.gamma, settings.rule_parameters["c"]) == (0.15, 0.92, 0.0)


def test_both_ways_to_write_the_value_of_a_profile_are_one_config() -> None:
    # A cell's id is made of what differs from the defaults: cells that spelled the default out keep their ids.
    assert UcbConfig(alpha=0.15, gamma=0.9, c=1.4) == UcbConfig()
    assert UcbConfig(alpha=0.12, profile="claude-sonnet-4") == UcbConfig(profile="claude-sonnet-4")
    assert UcbConfig(alpha=0.12) != UcbConfig()


def test_uniform_and_fixed_ignore_the_coarser_keys_of_a_chain() -> None:
    views = (*_views(), *_views(taken=(5,) * 9))

    for config in (UniformConfig(state_key="goal_plan", pooling=("goal_type",)), FixedConfig(action_id="noop")):
        rule = build_rule(config.learning_settings())
        assert rule.choose(views, allowed=ARMS, draw=8) == rule.choose(views[:1], allowed=ARMS, draw=8)


def test_the_floor_mixes_every_rule_with_uniform_draws() -> None:
    rule = build_rule(FixedConfig(action_id="noop", exploration_floor=0.3).learning_settings())
    allowed = ("retrieve_shallow", "forget", "noop")

    choices = [rule.choose(_views(), allowed=allowed, draw=draw64("place", n)) for n in range(3000)]

    shares = rule.probabilities(_views(), allowed=allowed)
    assert shares == pytest.approx((0.1, 0, 0, 0, 0, 0, 0.1, 0, 0.8))
    counts = [sum(choice.action_id == arm for choice in choices) for arm in allowed]
    # Four standard errors of a share of 3,000.
    for count, share in zip(counts, (0.1, 0.1, 0.8), strict=True):
        assert abs(count / 3000 - share) < 4 * math.sqrt(share * (1 - share) / 3000)
    assert {choice.tie_set for choice in choices} == {allowed, ("noop",)}


def test_a_decision_of_the_floor_is_not_forced_and_keeps_the_columns_of_the_rule() -> None:
    floored = build_rule(UcbConfig(exploration_floor=1.0).learning_settings())

    choice = floored.choose(_views(), allowed=ARMS, draw=3)

    assert (choice.forced, choice.tie_set) == (False, ARMS)
    assert choice.columns == _ucb().choose(_views(), allowed=ARMS, draw=3).columns


def test_the_floor_does_not_hide_that_an_arm_is_masked() -> None:
    rule = build_rule(FixedConfig(action_id="noop", exploration_floor=1.0).learning_settings())

    with pytest.raises(ConfigError, match="'noop' is masked"):
        rule.choose(_views(), allowed=("forget",), draw=0)


def test_the_ends_of_the_draws_are_numbers_between_0_and_1() -> None:
    assert unit(0) == 2**-53
    assert unit(2**64 - 1) == 1 - 2**-53
    assert normal(2**64 - 1) == -normal(0) == pytest.approx(8.2095, abs=1e-4)
    assert normal(2**63) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"c": -1.0}, "c = -1"),
        ({"alpha": 1.5}, "alpha"),
        ({"gamma": math.inf}, "gamma"),
        ({"estimator": "median"}, "estimator"),
        ({"action_set": "dflt"}, "action_set"),
        ({"state_key": "papper"}, "did you mean 'paper'"),
        ({"epsilon": 0.1}, "unknown key 'epsilon'"),
        ({"profile": "sonnet"}, "allowed: claude-sonnet-4, deepseek-v3.2, gpt-4.1-mini"),
        ({"exploration_floor": 1.5}, "exploration_floor"),
        ({"estimator": "capped_mean"}, "count_cap"),
        ({"pooling": ["step"]}, "step_phase"),
        ({"state_key": "goal_plan", "pooling": ["goal_type"]}, "take 'bayes_ucb'"),
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
        ("ucb", {"c": "much"}),
        ("fixed", {"action_id": "x"}),
        ("epsilon_greedy", {"prior_strength": 0.0, "pool_strength": 8.0, "epsilon": 2.0}),
        ("thompson", {"prior_strength": 0.0, "pool_strength": 8.0, "sigma": 0.5}),
        ("pooled", {"prior_strength": 2.0, "pool_strength": 8.0, "sigma": 0.0}),
        ("bayes_ucb", {"prior_strength": 2.0, "pool_strength": 8.0, "c": -1.0}),
    ],
)
def test_rule_refuses_parameters_that_it_cannot_have(rule: str, parameters: dict[str, float | str]) -> None:
    with pytest.raises(ConfigError):
        build_rule(dataclasses.replace(UCB, rule=rule, estimator="mean", rule_parameters=parameters))


class _LastArm:
    def choose(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...], draw: int) -> Choice:
        return Choice(action_id=allowed[-1], tie_set=(allowed[-1],), forced=False)

    def probabilities(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...]) -> tuple[float, ...]:
        return tuple(float(arm == allowed[-1]) for arm in views[0].action_ids)


def _build_last_arm(settings: LearningSettings) -> Rule:
    return _LastArm()


LAST_ARM = registry.Plugin(config=UcbConfig, build=_build_last_arm)


def test_rule_of_another_package_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(name="last_arm", value=f"{__name__}:LAST_ARM", group="memcon.policy")
    monkeypatch.setattr(registry, "_entry_points", lambda kind: {"last_arm": point})

    rule = build_rule(dataclasses.replace(UCB, rule="last_arm"))

    assert rule.choose(_views(), allowed=ARMS, draw=0).action_id == "noop"
    with pytest.raises(UnknownNameError, match="last_arm"):
        build_rule(UCB)


def test_score_function_is_the_printed_formula() -> None:
    assert ucb_bonus(1.4, math.log(10), 4) == 1.4 * math.sqrt(math.log(10) / 4)
    assert ucb_bonus(1.4, 0.0, 1) == 0.0
    assert ucb_bonus(1.4, math.log(5), 0) == math.inf


# --- a frozen table ---------------------------------------------------------------------------------------------------

_FROZEN = build_rule(dataclasses.replace(UCB, frozen=True))


def test_frozen_ucb_never_goes_to_an_arm_that_was_not_tried() -> None:
    """Counts stand still in a frozen table: an arm that is due once would be due for ever."""
    q = (0.9, 0.2, 0.5, 0.3, 0.1, 0.0, -0.1, 0.8, 5.0)
    taken = (4, 1, 2, 1, 1, 1, 1, 1, 0)

    choice = _FROZEN.choose(_views(q=q, taken=taken), allowed=ARMS, draw=0)

    assert (choice.action_id, choice.forced) == ("retrieve_shallow", False)
    assert _FROZEN.probabilities(_views(q=q, taken=taken), allowed=ARMS)[0] == 1.0


def test_frozen_ucb_takes_the_highest_prior_where_nothing_was_learned() -> None:
    choices = {_FROZEN.choose(_views(), allowed=ARMS, draw=draw64(n)).action_id for n in range(200)}
    # Table 6: the four retrieval arms share 0.5.
    assert choices == {"retrieve_shallow", "retrieve_medium", "retrieve_deep", "insight_only"}
    assert _FROZEN.choose(_views(), allowed=("noop", "forget"), draw=0).action_id == "forget"


def test_fixed_refuses_an_arm_that_only_a_stuck_agent_may_choose() -> None:
    with pytest.raises(ConfigError, match=r"action_id = 're_retrieve'.*only while the agent is stuck"):
        FixedConfig(action_id="re_retrieve", action_set="compact")
    assert FixedConfig(action_id="re_retrieve").action_id == "re_retrieve"
