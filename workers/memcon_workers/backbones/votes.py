"""What memory says about the next step: attention over pieces, place inside a piece, votes for candidates.

Follows facts on the offline signal, sections 5.4 and 5.5. Attention is normalised over all pieces of the prompt, so a
piece that does not help takes weight from one that does: this is the only source of dilution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from memcon_workers.backbones.experience import Experience, Kind
from memcon_workers.backbones.goals import Goal, Signature, cosine, jaccard
from memcon_workers.backbones.matching import match, match_row

__all__ = ["Ballot", "attention", "position_weights"]

# Weight of every step of a piece, of the step at the pointer, and least sum that position weights are divided by.
BASE_WEIGHT = 0.02
POINTER_WEIGHT = 0.25
LEAST_SUM = 0.3
# The pointer looks this many steps ahead for a step this alike.
POINTER_WINDOW = 3
POINTER_MATCH = 0.5
# An insight speaks when the last own action is more alike to its first half than this.
INSIGHT_MATCH = 0.2


@lru_cache(maxsize=8192)
def attention(
    goal: Goal, memory: tuple[Experience, ...], beta: float, insight_factor: float, failure_factor: float
) -> tuple[float, ...]:
    """Weight of each piece: exp(beta cosine), insights discounted, normalised over all, failures discounted after."""
    raw = [
        math.exp(beta * cosine(goal.bag, piece.bag)) * (insight_factor if piece.kind is Kind.INSIGHT else 1.0)
        for piece in memory
    ]
    total = math.fsum(raw)
    return tuple(
        weight / total * (failure_factor if piece.failed else 1.0) for weight, piece in zip(raw, memory, strict=True)
    )


def position_weights(piece: Experience, own: Sequence[Signature]) -> list[float]:
    """Weight of each step of `piece` as the next one, after the own steps `own`; sums to at most 1."""
    weights = [BASE_WEIGHT] * len(piece.signatures)
    if not weights:
        return weights
    if own:
        _add_suffix_matches(weights, piece, own)
    else:
        weights[0] += 1.0
    pointer = _pointer(piece, own)
    if pointer < len(weights):
        weights[pointer] += POINTER_WEIGHT
    total = max(math.fsum(weights), LEAST_SUM)
    return [weight / total for weight in weights]


def _add_suffix_matches(weights: list[float], piece: Experience, own: Sequence[Signature]) -> None:
    """Add x1 (1 + x2 (1 + x3)), x_i = likeness of the i-th own step from the end with the i-th step before."""
    last = match_row(piece, own[-1])
    if last is None:
        return
    second = match_row(piece, own[-2]) if len(own) > 1 else None
    third = match_row(piece, own[-3]) if len(own) > 2 else None
    for place in range(1, len(weights)):
        if likeness := last[place - 1]:
            deeper = third[place - 3] if third and place > 2 else 0.0
            before = second[place - 2] if second and place > 1 else 0.0
            weights[place] += likeness * (1.0 + before * (1.0 + deeper))


def _pointer(piece: Experience, own: Sequence[Signature]) -> int:
    """Place after the last step of `piece` that the own steps, taken greedily in order, have reached."""
    pointer, size = 0, len(piece.signatures)
    for step in own:
        row = match_row(piece, step)
        if row is None:
            continue
        for place in range(pointer, min(pointer + POINTER_WINDOW, size)):
            if row[place] >= POINTER_MATCH:
                pointer = place + 1
                break
    return pointer


class Ballot:
    """The votes of all pieces, asked for one candidate at a time."""

    def __init__(self, goal: Goal, own: Sequence[Signature]) -> None:
        self._goal = goal
        self._own = own
        # Skeleton -> steps with their weights; only these can be alike to a candidate.
        self._steps: dict[str, list[tuple[Signature, float]]] = {}
        self._literal: dict[str, float] = {}
        self._counted: dict[Signature, float] = {}

    def add(self, piece: Experience, weight: float) -> None:
        """Let `piece` vote with the weight that attention gives it."""
        if piece.kind is Kind.INSIGHT:
            self._add_insight(piece, weight)
            return
        likeness = jaccard(self._goal, piece.goal) if piece.goal and piece.kind is Kind.TRAJECTORY else 0.0
        places = position_weights(piece, self._own)
        for step, text, place in zip(piece.signatures, piece.texts, places, strict=True):
            self._vote(step, weight * place)
            if likeness:
                self._literal[text] = self._literal.get(text, 0.0) + weight * place * likeness

    def votes(self, candidate: Signature, text: str) -> float:
        """Votes for a candidate action, those for its very text included."""
        votes = self._counted.get(candidate)
        if votes is None:
            steps = self._steps.get(candidate.skeleton, ())
            votes = self._counted[candidate] = sum(weight * match(step, candidate) for step, weight in steps)
        return votes + self._literal.get(text, 0.0)

    def _add_insight(self, piece: Experience, weight: float) -> None:
        if not (self._own and piece.signatures):
            return
        after, then = piece.signatures
        likeness = match(self._own[-1], after)
        if likeness > INSIGHT_MATCH:
            self._vote(then, weight * likeness)

    def _vote(self, step: Signature, weight: float) -> None:
        self._steps.setdefault(step.skeleton, []).append((step, weight))
