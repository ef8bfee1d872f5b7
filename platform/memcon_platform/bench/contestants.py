"""The policies that the bench compares, each brought to one and the same job.

The job, once a decision: take one of nine arms for a context that is named by a text, then learn the reward of the arm
taken, online and one at a time. Rewards depend on context and arm and are the same for all.

    shard           `PolicyShard.decide` and `.outcome`: all that a decision costs in process. Beyond choice and
                    update: an idempotent id, a signed token, probabilities, the events for the journal.
    rule            the same rule over its table, choice and update alone, which is what the peers do; compiled where
                    numba is installed (extra `fast`).
    river           a `bandit.UCB` for each context in a dict: river's own UCB knows no contexts.
    vw              Vowpal Wabbit's `cb_explore` with the context as one feature. It has no UCB; epsilon-greedy is its
                    cheapest exploration. An example is parsed once from VW's text and gets its label for the update,
                    the cheapest way to have both: a text for each of the two calls is parsed twice.

All are called from Python, as an agent would. Neither peer keeps what the shard keeps; `rule` is the like for
like comparison, `shard` the one that counts for users.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Protocol

from memcon import ids
from memcon.errors import InvariantError, MissingExtraError
from memcon.learning import actions, state_key
from memcon.learning.exploration import UcbConfig, build_rule
from memcon.learning.exploration.quick import quick_rule
from memcon.learning.q_table import QTable
from memcon.learning.shard import PolicyShard
from memcon.policy_types import DecideRequest, OutcomeRequest
from memcon.types import StateFeatures

__all__ = ["CONTESTANTS", "Contestant", "context_keys", "reward_of"]

_ARMS = actions.action_set("default").action_ids
_C = 1.4
_EPSILON = 0.1
# Multiples of it are spread evenly over 64 bits (Weyl): draws that cost the peer next to nothing.
_STRIDE = 0x9E3779B97F4A7C15
_TABLE = "bench"
_EXTRA = "bench"


class Contestant(Protocol):
    """A policy at work."""

    def play(self, number: int, context: int) -> int:
        """Decision `number` at context number `context`: choose, get the reward, learn it; the index of the arm."""
        ...


def context_keys(count: int) -> list[str]:
    """State keys of the paper's schema, as a sweep has them."""
    return [
        state_key.key_text(
            "paper",
            StateFeatures(
                goal_type=f"type {number}",
                step=0,
                is_stuck=False,
                objects_held=0,
                locations_visited=0,
                memory_size=10 * (number % 6),
                plan_available=bool(number % 2),
                task_number=number + 1,
            ),
        )
        for number in range(count)
    ]


def reward_of(context: int, arm: int) -> float:
    """Reward of an arm in [-0.5, 1.3]; the best arm of a context is (context mod 9)."""
    return 1.3 if arm == context % len(_ARMS) else -0.5 + 0.05 * arm


class _Shard:
    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [(key,) for key in keys]
        self._index = {arm: i for i, arm in enumerate(_ARMS)}
        self._shard = PolicyShard(0, 1, ids.stable_hash("bench", size=32).encode())
        self._shard.open_table(_TABLE, UcbConfig(c=_C).learning_settings())

    def play(self, number: int, context: int) -> int:
        name = f"{number:016x}"
        request = DecideRequest(
            table=_TABLE,
            decision_id=name,
            episode_id=name,
            position=0,
            keys=self._keys[context],
            draw=number,
        )
        reply = self._shard.decide(request).reply
        arm = self._index[reply.action_id]
        outcome = OutcomeRequest(
            decision_id=name, token=reply.token, reward=reward_of(context, arm), position=0, num_decisions=1
        )
        self._shard.outcome(outcome)
        return arm


class _Rule:
    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [(key,) for key in keys]
        self._index = {arm: i for i, arm in enumerate(_ARMS)}
        settings = UcbConfig(c=_C).learning_settings()
        self._table, self._arms = QTable(settings), settings.action_ids
        rule = quick_rule(build_rule(settings), settings, self._table)
        if rule is None:
            raise InvariantError("the bench: 'ucb' has no quick way at one key")
        self._rule = rule

    def play(self, number: int, context: int) -> int:
        keys = self._keys[context]
        chosen = self._rule.choose(keys[0], self._arms, number)[0].action_id
        arm = self._index[chosen]
        self._table.take(keys, chosen)
        self._table.credit(keys, chosen, reward_of(context, arm))
        return arm


class _River:
    def __init__(self, keys: Sequence[str]) -> None:
        bandit = _peer("river.bandit")
        self._keys, self._arms = keys, list(range(len(_ARMS)))
        # sqrt(2 ln n / n_a) times delta.
        self._new: Callable[[], Any] = lambda: bandit.UCB(delta=_C / math.sqrt(2), seed=0)
        self._policies: dict[str, Any] = {}

    def play(self, number: int, context: int) -> int:
        key = self._keys[context]
        policy = self._policies.get(key)
        if policy is None:
            policy = self._policies[key] = self._new()
        arm: int = policy.pull(self._arms)
        policy.update(arm, reward_of(context, arm))
        return arm


class _VowpalWabbit:
    def __init__(self, keys: Sequence[str]) -> None:
        vowpalwabbit = _peer("vowpalwabbit")
        # ":" and "|" are VW's own marks.
        self._texts = [f"| {key.replace('|', '/').replace(':', '_')}" for key in keys]
        self._vw: Any = vowpalwabbit.Workspace(f"--cb_explore {len(_ARMS)} --epsilon {_EPSILON} --quiet")

    def play(self, number: int, context: int) -> int:
        example = self._vw.example(self._texts[context])
        probabilities = self._vw.predict(example)
        arm = _drawn(probabilities, number * _STRIDE % 2**64 / 2**64)
        # VW minimises a cost.
        example.set_label_string(f"{arm + 1}:{-reward_of(context, arm)}:{probabilities[arm]}")
        # Without a label it was taken for a test, from which nothing is learned.
        example.set_test_only(False)
        self._vw.learn(example)
        self._vw.finish_example(example)
        return arm


def _peer(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(name.partition(".")[0], _EXTRA) from error


def _drawn(probabilities: Sequence[float], share: float) -> int:
    for arm, upto in enumerate(accumulate(probabilities)):
        if share < upto:
            return arm
    # The sum of floats may end just below 1.
    return len(probabilities) - 1


# Name -> what makes it for some context keys; a peer that is not installed raises MissingExtraError.
CONTESTANTS: dict[str, Callable[[Sequence[str]], Contestant]] = {
    "shard": _Shard,
    "rule": _Rule,
    "river": _River,
    "vw": _VowpalWabbit,
}
