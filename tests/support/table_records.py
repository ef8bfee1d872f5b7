"""Tables as values, from shards that have learned something."""

from __future__ import annotations

from memcon.learning.shard import PolicyShard
from memcon.policy_types import DecideRequest, LearningSettings
from memcon.testing.policy import outcome_request, state_keys
from memcon_platform.policies.record import TableRecord, TableSummary, record_of_dump, summary_of
from support.key_chains import POOLED, chain
from support.shards import SETTINGS, new_shard

KEYS = state_keys(2)
CHAINS: list[tuple[str, ...]] = [(key,) for key in KEYS]
POOLED_CHAINS = [chain(benchmark, goal_type) for benchmark in ("b1", "b2") for goal_type in ("put", "heat")]


def learned_shard(
    settings: LearningSettings = SETTINGS, chains: list[tuple[str, ...]] = CHAINS, *, decisions: int = 30
) -> PolicyShard:
    """A shard whose table has taken `decisions`, the last one still open; of two chains the second gets two thirds."""
    shard = new_shard(settings)
    for number in range(decisions):
        keys = chains[number * number % 3 % len(chains)]
        name = f"{number}"
        reply = shard.decide(
            DecideRequest(table="table", decision_id=name, episode_id=name, position=0, keys=keys, draw=number)
        ).reply
        if number < decisions - 1:
            shard.outcome(outcome_request(reply, 1.15 if number % 3 else -0.5))
    return shard


def summary_of_shard(shard: PolicyShard) -> TableSummary:
    return summary_of("table", shard.settings("table"), shard.counts("table") | shard.totals("table"))


def record_of(shard: PolicyShard) -> TableRecord:
    return record_of_dump(shard.dump("table"), summary_of_shard(shard), where="a test")


def learned(settings: LearningSettings = SETTINGS, chains: list[tuple[str, ...]] = CHAINS) -> TableRecord:
    return record_of(learned_shard(settings, chains))


def learned_pooled() -> TableRecord:
    return learned(POOLED, POOLED_CHAINS)
