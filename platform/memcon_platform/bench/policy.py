"""`memcon bench policy`: microseconds a decision of each contestant, in interleaved rounds."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from memcon.clock import SystemClock
from memcon.errors import MissingExtraError
from memcon_platform.bench.contestants import CONTESTANTS, Contestant, context_keys

__all__ = ["PolicyBench", "measure_policies"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBench:
    """Median time of a decision, choice and update, by contestant."""

    # Microseconds.
    decision_us: Mapping[str, float]
    # Contestant -> how to install it.
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def ratios(self) -> dict[str, float]:
        """How many times faster than a peer we are: `inprocess` is the same job, `shard` all that we do beside it."""
        return {
            f"{name}_vs_{peer}": round(self.decision_us[peer] / self.decision_us[ours], 3)
            for name, ours in (("inprocess", "rule"), ("shard", "shard"))
            for peer in ("vw", "river")
            if peer in self.decision_us
        }


def measure_policies(*, contexts: int = 100, decisions: int = 2_000, rounds: int = 15) -> PolicyBench:
    """Let all contestants do the same job by turns and take the median round of each.

    One round before the first is not counted: by then each context has met most of its arms, and no code is cold.
    Rounds are interleaved, so that whatever slows the machine down for a while slows all.
    """
    keys = context_keys(contexts)
    players: dict[str, Contestant] = {}
    absent: dict[str, str] = {}
    for name, make in CONTESTANTS.items():
        try:
            players[name] = make(keys)
        except MissingExtraError as error:
            absent[name] = str(error)
    times: dict[str, list[float]] = {name: [] for name in players}
    for turn in range(rounds + 1):
        for name, player in players.items():
            spent = _round(player, turn * decisions, decisions, contexts)
            if turn:
                times[name].append(1e6 * spent / decisions)
    return PolicyBench(decision_us={name: median(found) for name, found in times.items()}, absent=absent)


def _round(player: Contestant, first: int, decisions: int, contexts: int) -> float:
    clock = SystemClock()
    # Collected outside: otherwise one contestant pays for the garbage of another.
    gc.collect()
    begin = clock.monotonic()
    for number in range(first, first + decisions):
        # A step that shares no factor with the number of contexts would favour none; 7 does for the default.
        player.play(number, number * 7 % contexts)
    return clock.monotonic() - begin
