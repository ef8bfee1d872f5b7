"""The rule of one table over its numbers: what it would choose at a key now, why, and how likely. Changes nothing.

Which decisions were taken, and what becomes of them, is `memcon.learning.table`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from memcon.errors import ConfigError, InvariantError, UnknownNameError
from memcon.learning import credit, state_key
from memcon.learning.events import Credited, Decided
from memcon.learning.exploration.quick import quick_rule
from memcon.learning.exploration.rule import Choice, TieSetRule, build_rule
from memcon.learning.q_table import QTable
from memcon.learning.settings import check_settings
from memcon.policy_types import LearningSettings, OutcomeRequest

__all__ = ["OpenDecision", "Scoring"]

_MAX_DRAW = (1 << 64) - 1
# A column that shows one draw of a rule that samples: it says nothing of a table.
_DRAWN = "sample"
# A frozen table counts no keys, so that nothing else bounds the chains that it met.
_MAX_CHAINS = 1 << 20


# Neither frozen nor keyword-only: together they cost half a microsecond in each decide.
@dataclass(slots=True)
class OpenDecision:
    """A counted decision without an outcome; it keeps its choice, so that the same id gets the same answer."""

    event: Decided
    # Its columns may be left out: `Scoring.explained` computes them from the rows.
    choice: Choice
    # The numbers that it was made from, of each key of the chain, finest first: `QTable.rows`.
    rows: bytes
    # Events of this table so far, this one included.
    version: int
    # The owner's receive number.
    received: int
    # It stands in the numbers: the table was not frozen when it was taken.
    counted: bool
    # Its signed token, once a reply had it.
    token: str = ""


class Scoring:
    """A table's settings, numbers and rule. `PolicyTable` changes them, event by event.

    Raises:
        ConfigError: the settings are refused.
    """

    def __init__(self, table: str, settings: LearningSettings) -> None:
        check_settings(settings)
        self.settings: LearningSettings = settings
        self.name = table
        self._rule = build_rule(settings)
        self._numbers = QTable(settings)
        self.own_keys = self._numbers.own
        self._quick = quick_rule(self._rule, settings, self._numbers)
        # Chance only decides between equals.
        self._is_even = isinstance(self._rule, TieSetRule)
        self._all = settings.action_ids
        self._arms = frozenset(settings.action_ids)
        self._schemas = state_key.chain_schemas(settings)
        self._has_one_key = len(self._schemas) == 1
        # Chains that were found to nest.
        self._chains: set[tuple[str, ...]] = set()

    @property
    def chain_length(self) -> int:
        """Keys that a decision counts at."""
        return len(self._schemas)

    @property
    def num_keys(self) -> int:
        """Keys that have numbers of their own, of all levels."""
        return len(self._numbers)

    def knows_key(self, key: str) -> bool:
        """`key` has numbers of its own."""
        return key in self._numbers.starts

    def choose(
        self,
        keys: tuple[str, ...],
        allowed: tuple[str, ...] | None,
        draw: int,
        *,
        instead_of: OpenDecision | None = None,
    ) -> tuple[Choice, bytes]:
        """What the rule chooses now, or once the open decision `instead_of` is taken back; nothing is counted.

        Gives the choice and the rows that it was made from.

        Raises:
            ConfigError: no arm is allowed, an arm is unknown, the chain or the draw is malformed, or the rule refuses.
            InvariantError: the rule chose an arm that is not allowed.
        """
        # Asked here too: the call was a tenth of a choice.
        if not self._has_one_key or len(keys) != 1 or not keys[0]:
            self._check_chain(keys)
        if not 0 <= draw <= _MAX_DRAW:
            raise ConfigError(f"table '{self.name}': draw = {draw}; expected 64 bits, 0 <= draw < 2^64")
        arms = self._all if allowed is None else self._in_arm_order(allowed)
        if self._quick is not None and instead_of is None:
            return self._quick.choose(keys[0], arms, draw)
        rows = self._numbers.rows(keys) if instead_of is None else self._rows_without(instead_of.event, keys)
        return self._rechosen(rows, arms, draw), rows

    def chosen_again(self, event: Decided, rows: bytes) -> Choice:
        """What the rule chooses for `event` from the rows that `choose` gave for it, with its columns.

        Raises:
            ConfigError, InvariantError: as in `choose`.
        """
        return self._rechosen(rows, self._allowed(event), event.draw)

    def chosen_from(self, event: Decided, rows: bytes) -> Choice:
        """As `chosen_again`, by the quick way where the rule has one, which leaves the columns out."""
        if self._quick is None:
            return self.chosen_again(event, rows)
        return self._quick.choose_from(rows, self._allowed(event), event.draw)

    def _allowed(self, event: Decided) -> tuple[str, ...]:
        return self._all if event.allowed is None else self._in_arm_order(event.allowed)

    def _rechosen(self, rows: bytes, allowed: tuple[str, ...], draw: int) -> Choice:
        choice = self._rule.choose(self._numbers.views_of(rows), allowed=allowed, draw=draw)
        if choice.action_id not in allowed:
            raise InvariantError(
                f"rule '{self.settings.rule}' chose '{choice.action_id}', which is not among {', '.join(allowed)}"
            )
        return choice

    def propensity(self, event: Decided, choice: Choice, rows: bytes) -> float:
        """How likely the arm was that was chosen for `event` from `rows`.

        Raises:
            MemconError: the rule refuses.
        """
        if self._is_even:
            # Its choice says so already; scoring once more was a quarter of a decide.
            return 1.0 / len(choice.tie_set)
        return self._probabilities(event, rows)[self._all.index(choice.action_id)]

    def _probabilities(self, event: Decided, rows: bytes) -> tuple[float, ...]:
        """How likely each arm was, in arm order."""
        return self._rule.probabilities(self._numbers.views_of(rows), allowed=self._allowed(event))

    def explained(self, opened: OpenDecision) -> dict[str, dict[str, float]]:
        """Per arm: numbers of the finest key at the choice, the rule's columns, and probabilities."""
        view = self._numbers.views_of(opened.rows)[0]
        event, rows = opened.event, opened.rows
        probabilities, columns = self._probabilities(event, rows), self.chosen_again(event, rows).columns
        return {
            arm: {
                "q": view.q[i],
                # taken - credited = decisions of other tasks that are still open.
                "taken": float(view.taken[i]),
                "credited": float(view.credited[i]),
                "probability": probabilities[i],
                # JSON has no infinity: an unvisited arm has neither bonus nor score here.
                **{name: values[i] for name, values in columns.items() if math.isfinite(values[i])},
            }
            for i, arm in enumerate(view.action_ids)
        }

    def _rows_without(self, event: Decided, keys: tuple[str, ...]) -> bytes:
        # The two chains may share their coarser keys.
        self._numbers.take_back(event.keys, event.action_id)
        try:
            return self._numbers.rows(keys)
        finally:
            self._numbers.take(event.keys, event.action_id)

    def _check_chain(self, keys: tuple[str, ...]) -> None:
        if self._has_one_key:
            # The text is the caller's: one key needs no other to agree with.
            if len(keys) != 1 or not keys[0]:
                raise ConfigError(
                    f"table '{self.name}': keys = {list(keys)}; expected one key of '{self._schemas[0].label}'"
                )
        elif keys not in self._chains:
            state_key.check_chain(self._schemas, keys)
            if len(self._chains) >= _MAX_CHAINS:
                self._chains.clear()
            self._chains.add(keys)

    def credit_of(self, event: Credited | OutcomeRequest) -> float:
        """The discounted return that an outcome credits (Eq. 7)."""
        return credit.discounted(
            event.reward,
            gamma=self.settings.gamma,
            position=event.position,
            num_decisions=event.num_decisions,
            cost=event.cost,
        )

    def _in_arm_order(self, allowed: tuple[str, ...]) -> tuple[str, ...]:
        asked = set(allowed)
        for arm in allowed:
            if arm not in self._arms:
                raise UnknownNameError(f"allowed arm of table '{self.name}'", arm, self.settings.action_ids)
        if not asked:
            raise ConfigError(
                f"table '{self.name}': no arm is allowed; allow at least one of {', '.join(self.settings.action_ids)}"
            )
        return tuple([arm for arm in self.settings.action_ids if arm in asked])

    def totals(self) -> tuple[int, int]:
        """Decisions taken and decisions credited, each once, though it counts at every key of its chain.

        A sum over all keys: for a listing, not for every request.
        """
        finest = self._schemas[0]
        own = None if self._has_one_key else [k for k in self._numbers.starts if state_key.schema_of(k) == finest]
        return self._numbers.totals(own)

    def numbers_of(self, text: str) -> dict[str, Any]:
        """As the whole's dump, the numbers of the key `text`, or of all that hold it, with the coarser keys of each."""
        found = state_key.matching(self._numbers.starts, text)
        chains = [state_key.chain_from(self._schemas, key) for key in found]
        return self._numbers.dump({key for chain in chains for key in chain if key in self._numbers})

    def inspect(self) -> dict[str, dict[str, dict[str, float | int | None]]]:
        """Per key and arm: q, taken, credited, bonus, score and the rule's other columns (MC-36).

        None = infinite, or the rule has none. A coarser key of a chain shows what the rule would see at it alone.
        """
        return {key: self._inspect_key(key) for key in self._numbers.keys()}  # noqa: SIM118 - sorted keys of a QTable

    def _inspect_key(self, key: str) -> dict[str, dict[str, float | int | None]]:
        views = self._numbers.views(state_key.chain_from(self._schemas, key))
        view = views[0]
        choice = self._rule.choose(views, allowed=view.action_ids, draw=0)
        columns = {name: values for name, values in choice.columns.items() if name != _DRAWN}
        return {
            arm: {
                "q": view.q[i],
                "taken": view.taken[i],
                "credited": view.credited[i],
                "bonus": None,
                "score": None,
                **{name: values[i] if math.isfinite(values[i]) else None for name, values in columns.items()},
            }
            for i, arm in enumerate(view.action_ids)
        }
