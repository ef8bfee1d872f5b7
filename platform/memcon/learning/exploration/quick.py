"""The quick way of a rule at a table of one key: a kernel's bit mask instead of views and columns.

Gives the choice that `Rule.choose` gives from the same numbers, without its columns. Rules over a chain of keys, and
those that sample, have the general way only.
"""

from __future__ import annotations

from memcon.learning import kernel
from memcon.learning.exploration.draws import draw_index
from memcon.learning.exploration.rule import Choice, Mixed, Rule, TieSetRule
from memcon.learning.q_table import QTable
from memcon.policy_types import LearningSettings

__all__ = ["QuickRule", "quick_rule"]

# Sets of allowed arms whose mask is remembered; a caller that shuffles its arms must not fill the memory.
_MASKS_KEPT = 1024


class QuickRule:
    """A rule of best arms over one table, and the mixtures around it."""

    __slots__ = (
        "_arms",
        "_choices",
        "_first",
        "_full",
        "_masks",
        "_mixtures",
        "_num_arms",
        "_numbers",
        "_second",
        "_seen",
        "_select",
        "_starts",
        "_ties",
    )

    def __init__(
        self, selection: kernel.Selection, numbers: QTable, *, arms: tuple[str, ...], mixtures: tuple[Mixed, ...]
    ) -> None:
        self._numbers, self._starts, self._seen = numbers, numbers.starts, numbers.seen
        self._select, self._first, self._second = numbers.select(selection), selection.first, selection.second
        self._arms, self._num_arms = arms, len(arms)
        # Innermost first.
        self._mixtures = mixtures
        self._full = (1 << len(arms)) - 1
        self._masks: dict[tuple[str, ...], int] = {}
        # Mask of several best arms -> the choice of each.
        self._ties: dict[int, tuple[Choice, ...]] = {}
        # What a selection answers when one arm is best -> the choice, made once.
        self._choices: dict[int, Choice] = {}
        for i, arm in enumerate(arms):
            for forced in (False, True):
                mask = -(1 << i) if forced else 1 << i
                self._choices[mask] = Choice(action_id=arm, tie_set=(arm,), forced=forced)

    def choose(self, key: str, allowed: tuple[str, ...], draw: int) -> tuple[Choice, bytes]:
        """As `Rule.choose` at `key`, without columns, and the row that it chose from; `allowed` in arm order."""
        # The identity first: a tuple is hashed anew each time.
        mask = self._full if allowed is self._arms else self._masks.get(allowed) or self._mask(allowed)
        numbers, at = self._numbers, self._starts.get(key, 0)
        found = self._select(numbers.shared, at, self._num_arms, mask, self._first, self._second)
        choice = self._choices.get(found) or self._tied(found, draw)
        for mixture in self._mixtures:
            choice = mixture.mixed(choice, allowed=allowed, draw=draw)
        return choice, numbers.cells[at : at + self._seen].tobytes()

    def choose_from(self, row: bytes, allowed: tuple[str, ...], draw: int) -> Choice:
        """As `choose` once did from what `QTable.rows` gave then."""
        mask = self._masks.get(allowed) or self._mask(allowed)
        cells = self._numbers.with_row(row)
        found = self._select(cells, self._num_arms, self._num_arms, mask, self._first, self._second)
        choice = self._choices.get(found) or self._tied(found, draw)
        for mixture in self._mixtures:
            choice = mixture.mixed(choice, allowed=allowed, draw=draw)
        return choice

    def _mask(self, allowed: tuple[str, ...]) -> int:
        mask = sum([1 << self._arms.index(arm) for arm in allowed])
        if len(self._masks) < _MASKS_KEPT:
            self._masks[allowed] = mask
        return mask

    def _tied(self, mask: int, draw: int) -> Choice:
        tied = self._ties.get(mask)
        if tied is None:
            arms = tuple([arm for i, arm in enumerate(self._arms) if mask >> i & 1])
            # All at once: to make one takes as long as to find the best arms.
            tied = tuple([Choice(action_id=arm, tie_set=arms, forced=False) for arm in arms])
            if len(self._ties) < _MASKS_KEPT:
                self._ties[mask] = tied
        return tied[draw_index(draw, len(tied))]


def quick_rule(rule: Rule, settings: LearningSettings, numbers: QTable) -> QuickRule | None:
    """The quick way of `rule` over `numbers`; None = it has none there."""
    mixtures: list[Mixed] = []
    while isinstance(rule, Mixed):
        mixtures.insert(0, rule)
        rule = rule.rule
    selection = rule.at_one_key() if isinstance(rule, TieSetRule) else None
    if selection is None or settings.pooling or len(settings.action_ids) > kernel.MOST_ARMS:
        return None
    return QuickRule(selection, numbers, arms=settings.action_ids, mixtures=tuple(mixtures))
