"""What a decide costs at a table of many keys beside a table of few: the same shard code, by turns.

Keys are uniformly random and their texts new at each decide, as those that come over a wire: neither a hash nor a row
is in a cache for that reason. All arms of all keys were visited, so that each decide scores them.
"""

from __future__ import annotations

import gc

import numpy as np

from memcon import ids
from memcon.learning.exploration import UcbConfig
from memcon.learning.shard import PolicyShard
from memcon.policy_types import DecideRequest, OutcomeRequest
from memcon.protocols import Clock
from memcon_platform.bench.contestants import context_keys

__all__ = ["Populated"]

_TABLE = "bench"
_C = 1.4
# Multiples of it are spread evenly over 64 bits (Weyl).
_STRIDE = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class Populated:
    """A shard with one table of `num_keys` keys."""

    def __init__(self, num_keys: int) -> None:
        self._num_keys = num_keys
        # A key of the paper's schema, cut where its goal type has a number.
        self._before, self._after = context_keys(1)[0].split("0", 1)
        settings = UcbConfig(c=_C).learning_settings()
        secret = ids.stable_hash("bench", size=32).encode()
        empty = PolicyShard(0, 1, secret)
        empty.open_table(_TABLE, settings)
        state = empty.state()
        state["tables"][_TABLE]["numbers"] = {
            "keys": [self._key(number) for number in range(num_keys)],
            "rows": _rows(num_keys, len(settings.action_ids)),
        }
        self.shard = PolicyShard(0, 1, secret)
        self.shard.load(state)

    def _key(self, number: int) -> str:
        return f"{self._before}{number}{self._after}"

    def decide(self, first: int, count: int, clock: Clock) -> float:
        """Seconds that the decisions numbered from `first` took; their outcomes are told after that."""
        requests = [self._request(number) for number in range(first, first + count)]
        # Collected outside: else one side pays for the garbage of the other.
        gc.collect()
        begin = clock.monotonic()
        replies = [self.shard.decide(request).reply for request in requests]
        spent = clock.monotonic() - begin
        for reply in replies:
            self.shard.outcome(
                OutcomeRequest(
                    decision_id=reply.decision_id, token=reply.token, reward=1.0, position=0, num_decisions=1
                )
            )
        return spent

    def _request(self, number: int) -> DecideRequest:
        draw = number * _STRIDE & _MASK
        name = f"{draw:016x}"
        return DecideRequest(
            table=_TABLE,
            decision_id=name,
            episode_id=name,
            position=0,
            keys=(self._key(draw * self._num_keys >> 64),),
            draw=draw,
        )


def _rows(num_keys: int, num_arms: int) -> bytes:
    """Numbers of keys that were at work for a while: float64, shape (num_keys, 4, num_arms)."""
    rows = np.empty((num_keys, 4, num_arms), dtype=np.float64)
    places = np.arange(num_keys * num_arms, dtype=np.uint64) * np.uint64(_STRIDE)
    shares = (places >> np.uint64(11)).reshape(num_keys, num_arms) * 2.0**-53
    rows[:, 0] = shares
    rows[:, 1] = rows[:, 2] = np.floor(1.0 + 50.0 * shares[:, ::-1])
    rows[:, 3] = rows[:, 2] * shares * shares
    return rows.tobytes()
