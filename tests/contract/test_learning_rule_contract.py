"""Every learning rule that is shipped passes the contract body, with and without coarser keys."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from memcon import registry
from memcon.learning.exploration import Choice
from memcon.learning.exploration.rule import Mixed
from memcon.learning.q_table import KeyView
from memcon.testing import LearningRuleContract
from memcon.testing.rule_situations import misfit

POOLED = {"state_key": "benchmark+goal_type", "pooling": ["benchmark"]}
# Name of a case -> the rule and its parameters.
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "bayes_ucb": ("bayes_ucb", {}),
    "bayes_ucb, pooled": ("bayes_ucb", {**POOLED, "estimator": "capped_mean", "count_cap": 5}),
    "epsilon_greedy": ("epsilon_greedy", {}),
    "fixed": ("fixed", {"action_id": "retrieve_deep"}),
    "greedy": ("greedy", {}),
    "greedy, pooled": ("greedy", {**POOLED, "estimator": "mean", "prior_strength": 1.0}),
    "pooled": ("pooled", {}),
    "thompson": ("thompson", {}),
    "uniform": ("uniform", {"action_set": "compact"}),
}


class Shipped(LearningRuleContract):
    @pytest.fixture
    def case(self) -> tuple[str, dict[str, Any]]:
        raise NotImplementedError

    @pytest.fixture
    def plugin(self, case: tuple[str, dict[str, Any]]) -> registry.Plugin:
        return registry.plugin("policy", case[0])

    @pytest.fixture
    def config(self, case: tuple[str, dict[str, Any]]) -> Any:
        return registry.configure("policy", *case)


class TestRules(Shipped):
    # A second each; journals of these rules are folded in other processes by the golden tests.
    test_another_process_chooses_alike = None  # type: ignore[assignment]

    @pytest.fixture(params=RULES)
    def case(self, request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
        return RULES[request.param]


class TestUcb(Shipped):
    visits_by_prior = True

    @pytest.fixture(params=[{}, {"warm_start": False, "c": 0.0}], ids=["warm", "cold without bonus"])
    def case(self, request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
        return "ucb", request.param


def test_every_rule_with_a_table_is_under_the_contract() -> None:
    without_table = {"none", "every_arm"}
    assert {rule for rule, _ in RULES.values()} | {"ucb"} == set(registry.names("policy")) - without_table


@pytest.mark.parametrize(("stated", "is_found"), [(0.1, False), (0.15, True), (0.06, True)])
def test_a_chance_that_is_wrong_by_half_is_found(stated: float, is_found: bool) -> None:
    settings = registry.configure("policy", "ucb", {}).learning_settings()
    ucb = registry.plugin("policy", "ucb").build(settings)
    rule, told = (Mixed(rule=ucb, share=share, place="test") for share in (0.1, stated))

    class Misstated:
        def choose(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...], draw: int) -> Choice:
            return rule.choose(views, allowed=allowed, draw=draw)

        def probabilities(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...]) -> tuple[float, ...]:
            return told.probabilities(views, allowed=allowed)

    with pytest.raises(AssertionError, match="states how often choose gives") if is_found else nullcontext():
        LearningRuleContract().test_draws_come_out_as_often_as_stated(Misstated(), settings)


def test_counts_that_fit_their_chances_exactly_fit_better_than_chance_would() -> None:
    even = {"a": 0.25, "b": 0.75}
    assert misfit([({"a": 1000}, {"a": 1.0, "b": 0.0})]) == 0.0
    assert misfit([({"a": 250, "b": 750}, even)] * 8) < -2
    # G = 2 (300 ln 1.2 + 700 ln (700/750)) = 12.8 each, 51.2 with 4 degrees: about 7 e-folds and 6 deviations.
    assert misfit([({"a": 300, "b": 700}, even)] * 4) == pytest.approx(5.7, abs=0.5)
