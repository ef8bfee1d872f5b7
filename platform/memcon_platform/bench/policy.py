"""`memcon bench policy`, in process: microseconds a decision of each contestant, and what many keys cost."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from memcon.clock import SystemClock
from memcon.errors import MissingExtraError
from memcon_platform.bench.contestants import CONTESTANTS, Contestant, context_keys
from memcon_platform.bench.states import Populated

__all__ = ["PolicyBench", "measure_policies"]

_FEW_KEYS, _MANY_KEYS = 300, 1_000_000
_FEW, _MANY = "decide_300_states", "decide_1m_states"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBench:
    """Time of a decision by contestant, round by round; of a decide alone where the name begins with "decide"."""

    # Microseconds.
    rounds_us: Mapping[str, Sequence[float]]
    # Contestant -> how to install it.
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def decision_us(self) -> dict[str, float]:
        """The median round of each."""
        return {name: median(rounds) for name, rounds in self.rounds_us.items()}

    @property
    def ratios(self) -> dict[str, float]:
        """The median over rounds of the ratio inside a round.

        X_vs_PEER: how many times faster we are; `inprocess` is the same job, `shard` all that we do beside it.
        cost_1m_states_vs_300: how many times as much a decide costs among a million keys.
        """
        pairs = {
            f"{name}_vs_{peer}": (peer, ours)
            for name, ours in (("inprocess", "rule"), ("shard", "shard"))
            for peer in ("vw", "river")
        }
        pairs["cost_1m_states_vs_300"] = (_MANY, _FEW)
        return {name: self._ratio(*pair) for name, pair in pairs.items() if self.rounds_us.keys() >= {*pair}}

    def _ratio(self, above: str, below: str) -> float:
        rounds = zip(self.rounds_us[above], self.rounds_us[below], strict=True)
        return round(median([one / other for one, other in rounds]), 3)


def measure_policies(
    *, contexts: int = 100, decisions: int = 2_000, rounds: int = 15, many_keys: int = _MANY_KEYS
) -> PolicyBench:
    """Let all contestants do the same job by turns; then decide by turns among few keys and among `many_keys`.

    One round before the first is not counted: by then each context has met most of its arms, and no code is cold.
    Rounds are interleaved, so that whatever slows the machine down for a while slows all.
    """
    keys = context_keys(contexts)
    players: dict[str, Callable[[int], float]] = {}
    absent: dict[str, str] = {}
    for name, make in CONTESTANTS.items():
        try:
            players[name] = _player(make(keys), decisions, contexts)
        except MissingExtraError as error:
            absent[name] = str(error)
    rounds_us = _by_turns(players, decisions, rounds)
    sides = {_FEW: _decider(_FEW_KEYS, decisions), _MANY: _decider(many_keys, decisions)}
    return PolicyBench(rounds_us=rounds_us | _by_turns(sides, decisions, rounds), absent=absent)


def _by_turns(players: Mapping[str, Callable[[int], float]], decisions: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds a decision, round by round; a player is given the number of its first decision."""
    times: dict[str, list[float]] = {name: [] for name in players}
    for turn in range(rounds + 1):
        for name, play in players.items():
            spent = play(turn * decisions)
            if turn:
                times[name].append(1e6 * spent / decisions)
    return times


def _player(player: Contestant, decisions: int, contexts: int) -> Callable[[int], float]:
    clock = SystemClock()

    def play(first: int) -> float:
        # Collected outside: otherwise one contestant pays for the garbage of another.
        gc.collect()
        begin = clock.monotonic()
        for number in range(first, first + decisions):
            # A step that shares no factor with the number of contexts would favour none; 7 does for the default.
            player.play(number, number * 7 % contexts)
        return clock.monotonic() - begin

    return play


def _decider(num_keys: int, decisions: int) -> Callable[[int], float]:
    populated, clock = Populated(num_keys), SystemClock()
    return lambda first: populated.decide(first, decisions, clock)
