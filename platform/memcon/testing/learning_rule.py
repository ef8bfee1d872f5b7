"""The learning rule port under test: the contract body that every policy plug-in with a table passes."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest

from memcon import codec, registry
from memcon.errors import ConfigError, MemconError
from memcon.learning.exploration.rule import Choice, Rule, build_rule
from memcon.learning.settings import check_settings, encode_settings
from memcon.policy_types import LearningSettings
from memcon.testing.contract import Contract, Run, accepts, expect, expect_equal, refuses, to_give
from memcon.testing.rule_situations import (
    Life,
    Situation,
    choices,
    choices_elsewhere,
    fold,
    live,
    misfit,
    situations,
    surprise,
)

__all__ = ["LearningRuleContract"]

_CHOOSE, _CHANCES = "Rule.choose", "Rule.probabilities"
_BUILD, _SETTINGS = "Plugin.build", "config.learning_settings"
# Draws in one situation. A stated chance that is wrong by a factor of two at 1/9 is found.
_DRAWS = 1000
# e-folds of improbability: a sound rule passes all counts of a situation but in one case of 10^8.
_MOST_SURPRISE = 20.0
# Standard deviations over all situations together: a sound rule passes but in one case of 10^9.
_MOST_MISFIT = 6.0
# What a quadrature may leave.
_SUM_TOLERANCE = 1e-6


class LearningRuleContract(Contract):
    """What every learning rule keeps. Override `plugin`, and `config` where its defaults do not do.

    Its package must be installed: a table builds its rule by the name that the settings have.
    """

    # True for a rule that visits the arms of a new key by prior, then by arm order, before all else.
    visits_by_prior = False

    @pytest.fixture
    def plugin(self) -> registry.Plugin:
        """The plug-in under test."""
        to_give(self, "plugin", "memcon.registry.Plugin", "the plug-in that the entry point in memcon.policy names")

    @pytest.fixture
    def config(self, plugin: registry.Plugin) -> Any:
        """Its config."""
        return plugin.config()

    @pytest.fixture
    def settings(self, config: Any) -> LearningSettings:
        """What a table under this config is created with."""
        found = config.learning_settings()
        wants = "gives the memcon.policy_types.LearningSettings of a table"
        expect(isinstance(found, LearningSettings), _SETTINGS, wants, met=found)
        assert isinstance(found, LearningSettings)
        return found

    @pytest.fixture
    def rule(self, plugin: registry.Plugin, settings: LearningSettings) -> Rule:
        """The rule under test, without exploration floor."""
        built: Rule = plugin.build(settings)
        return built

    @pytest.fixture
    def installed(self, plugin: registry.Plugin, settings: LearningSettings) -> LearningSettings:
        """The settings, once it is sure that a table finds the rule that they name."""
        wants = f"is found by the name in its settings: an entry point of memcon.policy named '{settings.rule}'"
        try:
            found: object = registry.plugin("policy", settings.rule)
        except MemconError as error:
            found = error
        expect(found == plugin, _SETTINGS, wants, met=found)
        return settings

    # --- config and settings ------------------------------------------------------------------------------------------

    def test_its_settings_are_those_of_a_table(self, config: Any, installed: LearningSettings) -> None:
        with accepts(_SETTINGS, wants="gives settings that a table can have"):
            check_settings(installed)
        expect_equal(config.learning_settings(), installed, _SETTINGS, wants="gives the equal settings every time")
        stored = codec.decode(LearningSettings, json.loads(json.dumps(encode_settings(installed))))
        wants = "gives settings that JSON keeps as they are: the journal of a table begins with them"
        expect_equal(encode_settings(stored), encode_settings(installed), _SETTINGS, wants=wants)
        expect_equal(
            codec.decode(type(config), json.loads(json.dumps(codec.encode(config)))),
            config,
            "Plugin.config",
            wants="is a dataclass that JSON keeps as it is: the plan of a run holds it",
        )

    def test_its_config_refuses_nan(self, config: Any) -> None:
        kinds = get_type_hints(type(config))
        given = {field.name: getattr(config, field.name) for field in fields(config) if field.init}
        for name in [name for name in given if "float" in str(kinds[name])]:
            with refuses(ConfigError, "Plugin.config", wants=f"refuses {name} = nan, and names it", naming=name):
                type(config)(**{**given, name: math.nan})

    def test_it_is_not_built_from_settings_that_are_not_its_own(
        self, plugin: registry.Plugin, settings: LearningSettings
    ) -> None:
        own = dict(settings.rule_parameters)
        wrong: dict[str, dict[str, float | str]] = {"a parameter that it does not know": {**own, "surprise": 1.0}}
        for name, value in own.items():
            wrong[f"no {name}"] = {other: own[other] for other in own if other != name}
            if not isinstance(value, str):
                wrong[f"{name} = nan"] = {**own, name: math.nan}
        for what, parameters in wrong.items():
            wants = f"refuses settings with {what}: a table is rebuilt from its journal"
            with refuses(ConfigError, _BUILD, wants=wants):
                plugin.build(replace(settings, rule_parameters=parameters))

    # --- choices and their chances ------------------------------------------------------------------------------------

    def asked(self, plugin: registry.Plugin, settings: LearningSettings) -> Iterator[tuple[Rule, Situation]]:
        """The rule, learning and frozen, with every situation whose arms it does not refuse."""
        for frozen in (False, True):
            rule: Rule = plugin.build(replace(settings, frozen=frozen))
            for situation in situations(settings):
                if not _refused(rule, situation):
                    yield rule, situation

    def test_probabilities_sum_to_one_over_the_allowed_arms(
        self, plugin: registry.Plugin, settings: LearningSettings
    ) -> None:
        arms = settings.action_ids
        for rule, here in self.asked(plugin, settings):
            chances = rule.probabilities(here.views, allowed=here.allowed)
            expect_equal(len(chances), len(arms), _CHANCES, wants="gives one number an arm, in arm order")
            wants = f"gives numbers in 0..1 ({here.name})"
            expect(all(0.0 <= chance <= 1.0 + _SUM_TOLERANCE for chance in chances), _CHANCES, wants, met=chances)
            masked = {arm: p for arm, p in zip(arms, chances, strict=True) if arm not in here.allowed and p != 0.0}
            wants = f"gives 0 to an arm that is not allowed ({here.name})"
            expect(not masked, _CHANCES, wants, met=masked)
            wants = f"sums to 1 over the allowed arms ({here.name})"
            expect(abs(math.fsum(chances) - 1.0) <= _SUM_TOLERANCE, _CHANCES, wants, met=(math.fsum(chances), chances))

    def test_a_choice_is_allowed_possible_and_explained(
        self, plugin: registry.Plugin, settings: LearningSettings
    ) -> None:
        for rule, here in self.asked(plugin, settings):
            chances = _chances(rule, here)
            for number in range(64):
                choice = rule.choose(here.views, allowed=here.allowed, draw=here.draw(number))
                _check_choice(choice, here, chances)

    def test_an_arm_that_is_allowed_alone_is_chosen_or_refused(self, rule: Rule, settings: LearningSettings) -> None:
        for here in (one for one in situations(settings) if len(one.allowed) == len(settings.action_ids)):
            expect(
                not _refused(rule, here),
                _CHOOSE,
                "chooses when all arms are allowed; only a masked arm may be refused, by a ConfigError",
                met=f"a ConfigError {here.name}",
            )
            for arm in settings.action_ids:
                alone = replace(here, allowed=(arm,))
                if not _refused(rule, alone):
                    chosen = rule.choose(alone.views, allowed=(arm,), draw=here.draw(0)).action_id
                    expect_equal(chosen, arm, _CHOOSE, wants="never chooses a masked arm: one arm is allowed")
                    expect_equal(
                        _chances(rule, alone)[arm],
                        pytest.approx(1.0, abs=_SUM_TOLERANCE),
                        _CHANCES,
                        wants="is 1 for an arm that is allowed alone",
                    )

    def test_equal_evidence_and_draw_give_the_equal_choice(
        self, plugin: registry.Plugin, settings: LearningSettings
    ) -> None:
        rule: Rule = plugin.build(settings)
        asked = [(here, here.draw(n)) for here in situations(settings) if not _refused(rule, here) for n in range(16)]
        first = [rule.choose(here.views, allowed=here.allowed, draw=draw) for here, draw in asked]
        again = [rule.choose(here.views, allowed=here.allowed, draw=draw) for here, draw in reversed(asked)]
        other: Rule = plugin.build(settings)
        fresh = [other.choose(here.views, allowed=here.allowed, draw=draw) for here, draw in asked]
        wants = (
            "gives the equal choice for equal views, allowed arms and draw, whatever was asked before: all chance "
            "comes from `draw`, and a rule remembers nothing (views hold what was learned)"
        )
        for found in (again[::-1], fresh):
            for (here, _), choice, wanted in zip(asked, found, first, strict=True):
                expect_equal(choice, wanted, _CHOOSE, wants=f"{wants} ({here.name})")

    def test_another_process_chooses_alike(self, installed: LearningSettings) -> None:
        wants = "chooses alike in another process (no order of a set, no hash() of a text: they differ there)"
        with accepts(_CHOOSE, wants=wants):
            there = choices_elsewhere(installed)
        expect_equal(there.splitlines(), choices(installed).splitlines(), _CHOOSE, wants=wants)

    def test_draws_come_out_as_often_as_stated(self, rule: Rule, settings: LearningSettings) -> None:
        arms = settings.action_ids
        found = []
        for here in (one for one in situations(settings) if len(one.allowed) > 1 and not _refused(rule, one)):
            chances = _chances(rule, here)
            counts = Counter(
                rule.choose(here.views, allowed=here.allowed, draw=here.draw(number)).action_id
                for number in range(_DRAWS)
            )
            for arm in arms:
                # Above 1 by rounding is 1.
                stated = min(1.0, chances[arm])
                expect(
                    surprise(counts[arm], _DRAWS, stated) < _MOST_SURPRISE,
                    _CHANCES,
                    f"states how often choose gives an arm over all draws: '{arm}' at {stated:.6g}, {here.name} "
                    "(a wrong propensity makes replay wrong)",
                    met=f"{counts[arm]} of {_DRAWS} draws",
                )
            found.append((dict(counts), chances))
        off = misfit(found)
        wants = f"states how often choose gives each arm: over all situations, counts fit to {_MOST_MISFIT} deviations"
        expect(off < _MOST_MISFIT, _CHANCES, wants, met=f"{off:.1f} deviations")

    def test_unvisited_arms_come_first_by_prior(self, rule: Rule, settings: LearningSettings) -> None:
        if not self.visits_by_prior:
            pytest.skip("claims no order of first visits")
        arms, priors = settings.action_ids, settings.priors
        wanted = sorted(arms, key=lambda arm: (-priors[arms.index(arm)], arms.index(arm)))
        new, taken = situations(settings)[0], [0] * len(arms)
        found = []
        for number in range(len(arms)):
            here = replace(new, views=tuple([replace(view, taken=tuple(taken)) for view in new.views]))
            choice = rule.choose(here.views, allowed=here.allowed, draw=here.draw(number))
            stated = _chances(rule, here)[choice.action_id]
            wants = "is forced, with the chance 1, while an arm is unvisited"
            expect(choice.forced and stated == 1.0, _CHOOSE, wants, met=(choice, stated))
            found.append(choice.action_id)
            taken[arms.index(choice.action_id)] += 1
        wants = "visits the arms of a new key by prior, then by arm order: visits_by_prior says so"
        expect_equal(found, wanted, _CHOOSE, wants=wants)

    def test_the_exploration_floor_is_left_to_the_platform(
        self, plugin: registry.Plugin, settings: LearningSettings
    ) -> None:
        rule: Rule = plugin.build(replace(settings, exploration_floor=0.0))
        floored: Rule = plugin.build(replace(settings, exploration_floor=0.5))
        wants = "does not apply exploration_floor itself: the platform mixes it in, and twice would be wrong"
        # Both are asked the same questions, so that a rule that counts them is not told about floors.
        for here in (one for one in situations(settings) if not (_refused(rule, one) or _refused(floored, one))):
            expect_equal(_chances(floored, here), _chances(rule, here), _BUILD, wants=wants)

    # --- a table ------------------------------------------------------------------------------------------------------

    @pytest.fixture
    def life(self, run: Run, installed: LearningSettings) -> Life:
        """What a small table under the rule came to."""
        return run(live(installed))

    def test_a_table_chooses_as_the_rule_does(self, life: Life, installed: LearningSettings) -> None:
        rule = build_rule(installed)
        for number, (reply, views) in enumerate(zip(life.replies, life.views, strict=True)):
            here = Situation(name=f"decision {number} of a table", views=views, allowed=installed.action_ids)
            draw = life.draw(number)
            chosen = rule.choose(views, allowed=here.allowed, draw=draw)
            expect_equal(
                (reply.action_id, reply.tie_set, reply.forced),
                (chosen.action_id, chosen.tie_set, chosen.forced),
                _CHOOSE,
                wants=f"chooses what the table chose ({here.name}; what `at_one_key` names must agree with `ties`)",
            )
            stated = _chances(rule, here)[reply.action_id]
            wants = f"states the propensity that the table recorded ({here.name})"
            expect_equal(reply.propensity, pytest.approx(stated, abs=_SUM_TOLERANCE), _CHANCES, wants=wants)

    def test_the_same_events_give_the_same_table(self, life: Life) -> None:
        wants = "chooses again what it chose when a table is folded from its journal"
        with accepts(_CHOOSE, wants=wants):
            folded = fold(life.events[0])
        expect(folded == life.dumps[0], _CHOOSE, wants, met="another table")

    def test_a_batch_over_many_shards_equals_one_by_one(
        self, run: Run, life: Life, installed: LearningSettings
    ) -> None:
        other = run(live(installed, num_shards=3, batch=4))
        wants = (
            "chooses by the views alone: a table at three owners, told outcomes in batches, comes to the same as one"
        )
        expect_equal(other.chosen, life.chosen, _CHOOSE, wants=wants)
        expect(other.numbers == life.numbers, _CHOOSE, wants, met="other numbers")


def _refused(rule: Rule, here: Situation) -> bool:
    """The rule cannot choose among these arms; both methods say so, or neither."""
    __tracebackhide__ = True
    refusals = []
    for ask in (
        lambda: rule.choose(here.views, allowed=here.allowed, draw=here.draw(0)),
        lambda: rule.probabilities(here.views, allowed=here.allowed),
    ):
        try:
            ask()
        except ConfigError as error:
            refusals.append(str(error))
    expect(
        len(refusals) != 1,
        _CHANCES,
        f"refuses the arms that choose refuses, and no others ({', '.join(here.allowed)} allowed)",
        met=refusals,
    )
    return bool(refusals)


def _chances(rule: Rule, here: Situation) -> dict[str, float]:
    """Arm -> its stated probability."""
    stated = rule.probabilities(here.views, allowed=here.allowed)
    return dict(zip(here.views[0].action_ids, stated, strict=True))


def _check_choice(choice: Choice, here: Situation, chances: dict[str, float]) -> None:
    __tracebackhide__ = True
    arm, arms = choice.action_id, here.views[0].action_ids
    expect(arm in here.allowed, _CHOOSE, f"never chooses a masked arm ({here.name})", met=choice)
    wants = f"gives a chance above 0 to the arm that choose chose ({here.name})"
    expect(chances[arm] > 0.0, _CHANCES, wants, met=(arm, chances[arm]))
    ties = choice.tie_set
    wants = f"names the chosen arm in its tie_set, which holds allowed arms only ({here.name})"
    expect(arm in ties and set(ties) <= set(here.allowed), _CHOOSE, wants, met=choice)
    taken = here.views[0].taken[arms.index(arm)]
    wants = f"says forced only of an arm that was never taken at the finest key ({here.name})"
    expect(not choice.forced or taken == 0, _CHOOSE, wants, met=choice)
    for name, column in choice.columns.items():
        wants = f"gives one number an arm in column '{name}', which is not NaN ({here.name})"
        whole = len(column) == len(arms) and not any(math.isnan(value) for value in column)
        expect(whole, _CHOOSE, wants, met=column)
