"""A decision costs well under a millisecond (MC-22)."""

from __future__ import annotations

import statistics

from memcon.clock import SystemClock
from memcon.testing.policy import decide_request
from support.shards import new_shard

NUM_KEYS = 2000


def test_median_decide_is_under_a_millisecond_with_2000_keys() -> None:
    shard, clock = new_shard(), SystemClock()
    for n in range(NUM_KEYS):
        shard.decide(decide_request(n, key=f"key {n}"))

    seconds = []
    for n in range(NUM_KEYS, 2 * NUM_KEYS):
        request = decide_request(n, key=f"key {n % NUM_KEYS}")
        start = clock.monotonic()
        shard.decide(request)
        seconds.append(clock.monotonic() - start)

    assert statistics.median(seconds) < 1e-3
