"""The shard's choices against an independent reading of Eq. 6 and 7, on 10,000 random histories."""

from __future__ import annotations

import pytest

from memcon.learning.exploration import UcbConfig
from memcon.learning.shard import PolicyShard
from memcon.policy_types import DecideRequest
from memcon.seeds import Generator, SeedTree
from memcon.testing.policy import outcome_request
from support.policy_reference import ARM_PRIORS, PaperPolicy

ARMS = list(ARM_PRIORS)
# 10 blocks of 1,000 histories; a history has about 18 decisions, half of them beyond the first visits of their arms.
NUM_BLOCKS = 10
HISTORIES_PER_BLOCK = 1_000
# Few distinct returns, so that exact ties do occur.
REWARDS = (-0.5, 1.0, 1.15)


def _play(history: int) -> int:
    chance = SeedTree(("paper", history)).generator()
    c = chance.choice((0.0, 1.2, 1.4))
    paper = PaperPolicy(c=c)
    shard = PolicyShard(0, 1, b"a secret of the tests")
    shard.open_table("t", UcbConfig(c=c).learning_settings())
    keys = [f"k{i}" for i in range(chance.randint(1, 2))]
    ties = 0
    for episode in range(chance.randint(4, 10)):
        ties += _play_episode(shard, paper, keys, episode, chance)
    for key, arms in shard.inspect("t").items():
        assert {arm: (row["q"], row["taken"]) for arm, row in arms.items()} == {
            arm: (paper.value(key, arm), paper.taken[key].count(arm)) for arm in ARMS
        }
    return ties


def _play_episode(shard: PolicyShard, paper: PaperPolicy, keys: list[str], episode: int, chance: Generator) -> int:
    length, ties, chosen = chance.randint(1, 4), 0, []
    for position in range(length):
        key = chance.choice(keys)
        # Often a narrow mask, so that a short history gets beyond the first visits.
        allowed = [arm for arm in ARMS if chance.random() < 0.3] or ["noop"]
        best = paper.best(key, allowed)
        reply = shard.decide(
            DecideRequest(
                table="t",
                decision_id=f"{episode}/{position}",
                episode_id=str(episode),
                position=position,
                keys=(key,),
                draw=chance.getrandbits(64),
                allowed=tuple(allowed),
            )
        ).reply
        assert reply.tie_set == tuple(best)
        assert reply.action_id in best
        assert reply.propensity == 1 / len(best)
        assert reply.forced == (reply.action_id not in paper.taken[key])
        ties += len(best) > 1
        paper.taken[key].append(reply.action_id)
        chosen.append((key, reply))
    reward = chance.choice(REWARDS)
    for position, (key, reply) in enumerate(chosen):
        shard.outcome(outcome_request(reply, reward, position=position, num_decisions=length))
        paper.returns[key].append((reply.action_id, paper.gamma ** (length - position - 1) * reward))
    return ties


@pytest.mark.parametrize("block", range(NUM_BLOCKS))
def test_every_choice_and_every_value_is_the_papers(block: int) -> None:
    first = block * HISTORIES_PER_BLOCK

    ties = sum(_play(history) for history in range(first, first + HISTORIES_PER_BLOCK))

    # The histories do reach exact ties, else the draw was never looked at.
    assert ties > 10
