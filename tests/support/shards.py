"""A shard with one open table, and short ways to use it."""

from __future__ import annotations

from memcon.learning.exploration import UcbConfig
from memcon.learning.shard import PolicyShard
from memcon.policy_types import DecideReply, LearningSettings
from memcon.testing.policy import decide_request

SECRET = b"a secret of the tests"
SETTINGS = UcbConfig().learning_settings()


def new_shard(settings: LearningSettings = SETTINGS) -> PolicyShard:
    shard = PolicyShard(0, 1, SECRET)
    shard.open_table("table", settings)
    return shard


def decided(shard: PolicyShard, number: int = 1, key: str = "key", episode_id: str = "") -> DecideReply:
    return shard.decide(decide_request(number, key=key, episode_id=episode_id)).reply


def numbers(shard: PolicyShard, arm: str = "retrieve_shallow", key: str = "key") -> tuple[int, int]:
    row = shard.inspect("table")[key][arm]
    assert isinstance(row["taken"], int)
    assert isinstance(row["credited"], int)
    return row["taken"], row["credited"]
