"""What is done to the processes of a soak, in which order: drawn from a seed, so that a bad run can be had again."""

from __future__ import annotations

from dataclasses import dataclass

from memcon.seeds import SeedTree

__all__ = ["CLAIM", "CLIENT", "GATEWAY", "KILLS", "LONGEST_GAP_S", "OWNER", "PROXY", "ROLL", "Fault", "draw_schedule"]

# `kill -9` of a shard's owner, of a gateway, of the HAProxy in front of the gateways, of a client.
OWNER, GATEWAY, PROXY, CLIENT = "owner", "gateway", "proxy", "client"
KILLS = (OWNER, GATEWAY, PROXY, CLIENT)
# Another process claims a shard under its living owner; all processes of the server are replaced one after the other.
CLAIM, ROLL = "claim", "roll"

# Owners are what durability rests on: half of the kills. Dealt whole before it is shuffled anew.
_DECK = (OWNER, OWNER, OWNER, OWNER, OWNER, GATEWAY, GATEWAY, PROXY, CLIENT, CLIENT)
# Another owner's claim after this many kills.
_CLAIM_EVERY = 10
# Between two faults: about half of them come while a process is not back yet.
_SHORTEST_GAP_S, LONGEST_GAP_S = 0.2, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    kind: str
    # Which of its kind, to be taken modulo how many there are: a shard, a gateway, a client.
    target: int
    # Since the fault before it.
    after_s: float


def draw_schedule(seed: int, kills: int, *, roll: bool, longest_gap_s: float = LONGEST_GAP_S) -> tuple[Fault, ...]:
    """`kills` kills in the order that `seed` draws, a claim among each ten of them, and the update in the middle."""
    generator = SeedTree(("soak", seed)).generator()
    kinds: list[str] = []
    deck: list[str] = []
    claim_at = generator.randrange(_CLAIM_EVERY)
    for number in range(kills):
        if not deck:
            deck = list(_DECK)
            generator.shuffle(deck)
        if roll and number == kills // 2:
            kinds.append(ROLL)
        if number % _CLAIM_EVERY == claim_at:
            kinds.append(CLAIM)
        kinds.append(deck.pop())
    return tuple(
        Fault(kind=kind, target=generator.randrange(1 << 16), after_s=generator.uniform(_SHORTEST_GAP_S, longest_gap_s))
        for kind in kinds
    )
