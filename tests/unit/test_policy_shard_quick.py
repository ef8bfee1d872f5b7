"""What a shard leaves out on its quick paths changes no answer: kept tokens, rows for views, requests as given."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memcon.errors import ConfigError, ConflictError, MemconError, NotFoundError
from memcon.learning.exploration import UcbConfig, thompson
from memcon.learning.exploration.greedy import EpsilonGreedyConfig
from memcon.learning.exploration.learned import LearnedConfig
from memcon.learning.exploration.thompson import ThompsonConfig
from memcon.learning.shard import PolicyShard
from memcon.policy_types import DecideReply, OutcomeRequest
from memcon.testing.policy import decide_request, outcome_request
from support.shards import SECRET, new_shard

RULES = [UcbConfig(), UcbConfig(exploration_floor=0.5), EpsilonGreedyConfig(epsilon=0.5), ThompsonConfig()]


def _reloaded(shard: PolicyShard) -> PolicyShard:
    """The same shard after a restart: its open decisions have no token at hand."""
    fresh = PolicyShard(0, 1, SECRET)
    fresh.load(shard.state())
    return fresh


def _explained(shard: PolicyShard, number: int) -> DecideReply:
    return shard.decide(dataclasses.replace(decide_request(number, draw=number * 2**56), explain=True)).reply


@pytest.mark.parametrize("config", RULES, ids=lambda config: f"{config.rule}-{config.exploration_floor}")
def test_a_repeated_decide_explains_what_it_was_chosen_from(config: LearnedConfig) -> None:
    shard = new_shard(config.learning_settings())
    first = [_explained(shard, number) for number in range(30)]
    for reply in first[:15]:
        shard.outcome(outcome_request(reply, 1.0))

    # Others' outcomes have changed the table since; the answer is that of the first time, after a restart too.
    for again in (shard, _reloaded(shard)):
        assert [_explained(again, number) for number in range(15, 30)] == first[15:]


@pytest.mark.parametrize("config", RULES, ids=lambda config: f"{config.rule}-{config.exploration_floor}")
def test_what_is_explained_is_what_was_chosen(config: LearnedConfig) -> None:
    shard = new_shard(config.learning_settings())
    for number in range(40):
        reply = _explained(shard, number)
        assert reply.per_arm is not None
        assert reply.per_arm[reply.action_id]["probability"] == reply.propensity
        assert sum(arm["probability"] for arm in reply.per_arm.values()) == pytest.approx(1.0)
        assert sum(arm["taken"] for arm in reply.per_arm.values()) == number
        shard.outcome(outcome_request(reply, number / 40))


def test_a_rule_that_cannot_say_how_likely_its_choice_was_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def _refuses(*_: object) -> None:
        raise ConfigError("too close to call")

    shard = new_shard(ThompsonConfig().learning_settings())
    shard.decide(decide_request(1))
    before = shard.state()
    monkeypatch.setattr(thompson, "chance_of_largest", _refuses)

    # A new one, and one that would take back the first.
    requests = [decide_request(2), decide_request(1, key="other")]
    for request in requests:
        with pytest.raises(ConfigError, match="too close to call"):
            shard.decide(request)
    handled = shard.decide_each(requests)

    assert [str(reply) for reply in handled.reply] == ["too close to call"] * 2
    assert handled.events == ()
    assert shard.state() == before


def _answer(shard: PolicyShard, request: OutcomeRequest) -> object:
    try:
        return shard.outcome(request)
    except MemconError as error:
        return type(error), str(error)


def test_an_outcome_is_answered_alike_with_and_without_the_token_at_hand() -> None:
    shard = new_shard()
    replies = [shard.decide(decide_request(number, key=f"key {number % 2}")).reply for number in range(6)]
    shard.outcome(outcome_request(replies[0], 1.0))
    right = outcome_request(replies[1], 0.5)
    asked = [
        right,
        outcome_request(replies[0], 1.0),
        outcome_request(replies[0], 0.9),
        # Another decision's token, a forged one, one cut short, none, one that is no text of a token at all.
        dataclasses.replace(right, token=replies[2].token),
        dataclasses.replace(right, token=replies[1].token[:2] + "0" * 32 + replies[1].token[34:]),
        dataclasses.replace(right, token=replies[1].token[:-1]),
        dataclasses.replace(right, token=""),
        dataclasses.replace(right, token="é" + replies[1].token),
        # The right one for another place, or another id.
        dataclasses.replace(right, position=1, num_decisions=2),
        dataclasses.replace(right, decision_id=replies[2].decision_id),
        dataclasses.replace(right, decision_id="unknown"),
    ]
    for request in asked:
        one, other = _reloaded(shard), _reloaded(shard)
        # Only this one has signed since.
        for number in range(1, 6):
            one.decide(decide_request(number, key=f"key {number % 2}"))

        assert _answer(one, request) == _answer(other, request)
        assert one.dump("table") == other.dump("table")


def test_only_the_token_that_was_signed_is_taken_without_a_look_at_its_signature() -> None:
    shard = new_shard()
    reply = shard.decide(decide_request(1)).reply
    for token in (reply.token[:-1], reply.token + "x", reply.token.replace("3.", "3,"), reply.token[34:]):
        with pytest.raises(NotFoundError, match="token"):
            shard.outcome(dataclasses.replace(outcome_request(reply, 1.0), token=token))
    assert shard.outcome(outcome_request(reply, 1.0)).reply.status == "credited"


def test_the_token_of_a_superseded_decide_is_refused() -> None:
    shard = new_shard()
    first = shard.decide(decide_request(1, key="one")).reply
    second = shard.decide(decide_request(1, key="other")).reply

    with pytest.raises(ConflictError, match="decided again"):
        shard.outcome(outcome_request(first, 1.0))
    assert shard.outcome(outcome_request(second, 1.0)).reply.status == "credited"


def test_requests_of_another_type_are_taken_by_their_fields() -> None:
    # The listener passes what it decoded.
    shard, plain = new_shard(), new_shard()
    asked = decide_request(1)
    given = SimpleNamespace(**{field.name: getattr(asked, field.name) for field in dataclasses.fields(asked)})
    reply = shard.decide(cast("Any", given)).reply
    assert reply == plain.decide(asked).reply

    outcome = outcome_request(reply, 1.0)
    fields = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome)}
    for late in (shard, _reloaded(shard)):
        # The position is compared whatever the type.
        with pytest.raises(ConflictError, match="its token is of decision"):
            late.outcome(cast("Any", SimpleNamespace(**(fields | {"position": 1, "num_decisions": 2}))))
    assert shard.outcome(cast("Any", SimpleNamespace(**fields))) == plain.outcome(outcome)
