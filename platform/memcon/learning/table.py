"""One table at one shard: settings, numbers, open and closed decisions, and how each event changes them.

Owns the state and the fold. It decides nothing about requests: `memcon.learning.shard` turns a request into events
and applies them here, and a replay applies the journaled ones, so that both run the same code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from memcon import codec
from memcon.errors import ConfigError, InvariantError, UnknownNameError
from memcon.learning import credit, state_key, transfer
from memcon.learning.events import Cancelled, Created, Credited, Decided, EpisodeClosed, Event, Imported
from memcon.learning.exploration.rule import Choice, TieSetRule, build_rule
from memcon.learning.q_table import KeyView, QTable
from memcon.learning.settings import check_settings, difference, encode_settings
from memcon.policy_types import LearningSettings

__all__ = ["SUPERSEDED", "ClosedDecision", "OpenDecision", "PolicyTable", "Scored"]

_MAX_DRAW = (1 << 64) - 1
# Reason of a cancel that the decide of the same id with another key brings; the id opens again at once.
SUPERSEDED = "superseded"
# A column that shows one draw of a rule that samples: it says nothing of a table.
_DRAWN = "sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A choice with the numbers that it was made from."""

    # Of each key of the chain, finest first.
    views: tuple[KeyView, ...]
    # Arms that could be chosen, in arm order.
    allowed: tuple[str, ...]
    choice: Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDecision:
    """A counted decision without an outcome; it keeps its choice, so that the same id gets the same answer."""

    event: Decided
    scored: Scored
    # Events of this table so far, this one included.
    version: int
    # The owner's receive number.
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedDecision:
    """How a decision ended: with these terms, or cancelled."""

    # (reward, num_decisions, cost); None = cancelled.
    terms: tuple[float, int, float] | None

    @property
    def state(self) -> str:
        """One word for messages."""
        return "cancelled" if self.terms is None else "credited"


_CANCELLED = ClosedDecision(terms=None)


class PolicyTable:
    """State of one table. Single-threaded; every change is one event."""

    def __init__(self, created: Created) -> None:
        check_settings(created.settings)
        self.settings: LearningSettings = created.settings
        self._table = created.table
        self._rule = build_rule(created.settings)
        self._numbers = QTable(created.settings)
        self._arms = frozenset(created.settings.action_ids)
        self._schemas = state_key.chain_schemas(created.settings)
        # Chains that were found to nest, and the shard keys (the coarsest) that were decided at.
        self._chains: set[tuple[str, ...]] = set()
        self._shard_keys: set[str] = set()
        self._source = ""
        self._open: dict[str, OpenDecision] = {}
        self._closed: dict[str, ClosedDecision] = {}
        # A dict for its order of insertion.
        self._closed_episodes: dict[str, None] = {}
        self._version = 1

    # --- questions -----------------------------------------------------------------------------------------------

    def open_decision(self, decision_id: str) -> OpenDecision | None:
        """The open decision under this id."""
        return self._open.get(decision_id)

    def closed_decision(self, decision_id: str) -> ClosedDecision | None:
        """How the decision under this id ended, if it did."""
        return self._closed.get(decision_id)

    def open_of_episode(self, episode_id: str) -> list[str]:
        """Ids of the episode's open decisions, oldest first. Asked at claims only, hence a scan."""
        return [name for name, opened in self._open.items() if opened.event.episode_id == episode_id]

    def is_closed_episode(self, episode_id: str) -> bool:
        """The episode was cancelled."""
        return episode_id in self._closed_episodes

    @property
    def chain_length(self) -> int:
        """Keys that a decision counts at."""
        return len(self._schemas)

    @property
    def source(self) -> str:
        """Where the table's first numbers came from; "" = it started with the priors."""
        return self._source

    @property
    def has_decisions(self) -> bool:
        """A decision is or was known here."""
        return bool(self._open or self._closed)

    def knows_shard_key(self, key: str) -> bool:
        """A decision was taken at a chain whose coarsest key is `key`."""
        return key in self._shard_keys

    def choose(
        self,
        keys: tuple[str, ...],
        allowed: tuple[str, ...] | None,
        draw: int,
        *,
        instead_of: OpenDecision | None = None,
    ) -> Scored:
        """What the rule chooses now, or once the open decision `instead_of` is taken back; nothing is counted.

        Raises:
            ConfigError: no arm is allowed, an arm is unknown, the chain or the draw is malformed, or the rule refuses.
            InvariantError: the rule chose an arm that is not allowed.
        """
        self._check_chain(keys)
        if not 0 <= draw <= _MAX_DRAW:
            raise ConfigError(f"table '{self._table}': draw = {draw}; expected 64 bits, 0 <= draw < 2^64")
        arms = self.settings.action_ids if allowed is None else self._in_arm_order(allowed)
        views = self._numbers.views(keys) if instead_of is None else self._views_without(instead_of.event, keys)
        choice = self._rule.choose(views, allowed=arms, draw=draw)
        if choice.action_id not in arms:
            raise InvariantError(
                f"rule '{self.settings.rule}' chose '{choice.action_id}', which is not among {', '.join(arms)}"
            )
        return Scored(views=views, allowed=arms, choice=choice)

    def propensity(self, scored: Scored) -> float:
        """How likely the chosen arm was."""
        if isinstance(self._rule, TieSetRule):
            # Its choice says so already; scoring once more was a quarter of a decide.
            return 1.0 / len(scored.choice.tie_set)
        return self.probabilities(scored)[self.settings.action_ids.index(scored.choice.action_id)]

    def probabilities(self, scored: Scored) -> tuple[float, ...]:
        """How likely each arm was at a choice, in arm order."""
        return self._rule.probabilities(scored.views, allowed=scored.allowed)

    def _views_without(self, event: Decided, keys: tuple[str, ...]) -> tuple[KeyView, ...]:
        # The two chains may share their coarser keys.
        self._numbers.take_back(event.keys, event.action_id)
        try:
            return self._numbers.views(keys)
        finally:
            self._numbers.take(event.keys, event.action_id)

    def _check_chain(self, keys: tuple[str, ...]) -> None:
        if len(self._schemas) == 1:
            # The text is the caller's: one key needs no other to agree with.
            if len(keys) != 1 or not keys[0]:
                raise ConfigError(
                    f"table '{self._table}': keys = {list(keys)}; expected one key of '{self._schemas[0].label}'"
                )
        elif keys not in self._chains:
            state_key.check_chain(self._schemas, keys)
            self._chains.add(keys)

    def credit_of(self, event: Credited) -> float:
        """The discounted return that `event` credits (Eq. 7)."""
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
                raise UnknownNameError(f"allowed arm of table '{self._table}'", arm, self.settings.action_ids)
        if not asked:
            raise ConfigError(
                f"table '{self._table}': no arm is allowed; allow at least one of {', '.join(self.settings.action_ids)}"
            )
        return tuple([arm for arm in self.settings.action_ids if arm in asked])

    # --- events --------------------------------------------------------------------------------------------------

    def apply(self, event: Event, *, received: int) -> None:
        """Fold one journaled event; `received` is the owner's number of a decide.

        Raises:
            InvariantError: the event cannot follow from the state, or its arm is not the one that the state gives.
            ConfigError: its numbers or arms are refused, as in `choose` and `memcon.learning.credit.check_outcome`.
        """
        match event:
            case Decided():
                scored = self.choose(event.keys, event.allowed, event.draw)
                if scored.choice.action_id != event.action_id:
                    raise InvariantError(
                        f"replaying {event}: the journal has arm '{event.action_id}', the state before it gives "
                        f"'{scored.choice.action_id}'; this event or an earlier one of the same key was altered or lost"
                    )
                self.take(event, scored, received=received)
            case Credited():
                self._apply_credited(event)
            case Cancelled():
                self._apply_cancelled(event)
            case EpisodeClosed():
                self._apply_episode_closed(event)
            case Imported():
                self._apply_imported(event)
            case Created():
                self._apply_created(event)

    def take(self, event: Decided, scored: Scored, *, received: int) -> OpenDecision:
        """Apply a decide whose choice is already made."""
        if event.decision_id in self._open or event.decision_id in self._closed:
            raise InvariantError(f"{event}: its decision is already recorded")
        self._numbers.take(event.keys, event.action_id)
        self._shard_keys.add(event.keys[-1])
        self._version += 1
        opened = OpenDecision(event=event, scored=scored, version=self._version, received=received)
        self._open[event.decision_id] = opened
        return opened

    def _apply_created(self, event: Created) -> None:
        # Journals of several shards each begin with it.
        if differing := difference(self.settings, event.settings):
            raise InvariantError(f"{event}: the table exists with other settings ({differing})")

    def _apply_imported(self, event: Imported) -> None:
        # Journals of several shards each have their own keys of one import, and may be folded together.
        if self._source not in {"", event.source}:
            raise InvariantError(f"table '{self._table}': imported from '{event.source}' after '{self._source}'")
        transfer.check_numbers(self.settings, event.numbers)
        self._numbers.load(event.numbers)
        self._source = event.source
        self._version += 1

    def _apply_credited(self, event: Credited) -> None:
        target = self.credit_of(event)
        opened = self._open.pop(event.decision_id, None)
        if event.recovered is not None:
            if opened is not None or event.decision_id in self._closed:
                raise InvariantError(f"{event}: recovered, but its decision is already recorded")
            keys, arm = event.recovered.keys, event.recovered.action_id
            if arm not in self._arms:
                raise InvariantError(f"{event}: unknown arm")
            self._check_chain(keys)
            self._numbers.take(keys, arm)
            self._shard_keys.add(keys[-1])
        else:
            if opened is None or opened.event.position != event.position:
                raise InvariantError(f"{event}: no such open decision")
            keys, arm = opened.event.keys, opened.event.action_id
        self._numbers.credit(keys, arm, target)
        self._closed[event.decision_id] = ClosedDecision(terms=(event.reward, event.num_decisions, event.cost))
        self._version += 1

    def _apply_cancelled(self, event: Cancelled) -> None:
        opened = self._open.pop(event.decision_id, None)
        if opened is None:
            raise InvariantError(f"{event}: no such open decision")
        self._numbers.take_back(opened.event.keys, opened.event.action_id)
        if event.reason != SUPERSEDED:
            self._closed[event.decision_id] = _CANCELLED
        self._version += 1

    def _apply_episode_closed(self, event: EpisodeClosed) -> None:
        # Its open decisions have their own events. Idempotent: every shard journals it, and their journals may be
        # folded together.
        self._closed_episodes[event.episode_id] = None
        self._version += 1

    # --- views of the whole --------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """The whole state, canonical: two equal states give equal JSON text, whatever shards they were folded by."""
        imported = {"imported": self._source} if self._source else {}
        return {
            "schema_version": 1,
            "table": self._table,
            "settings": encode_settings(self.settings),
            **imported,
            "numbers": self._numbers.dump(),
            "open": {name: codec.encode(self._open[name].event) for name in sorted(self._open)},
            "closed": {name: _dump_closed(self._closed[name]) for name in sorted(self._closed)},
            "closed_episodes": sorted(self._closed_episodes),
        }

    def inspect(self) -> dict[str, dict[str, dict[str, float | int | None]]]:
        """Per key and arm: q, taken, credited, bonus, score and the rule's other columns (MC-36).

        None = infinite, or the rule has none. A coarser key of a chain shows what the rule would see at it alone.
        """
        return {key: self._inspect_key(key) for key in self._numbers.keys()}  # noqa: SIM118 - sorted keys of a QTable

    def _inspect_key(self, key: str) -> dict[str, dict[str, float | int | None]]:
        views = self._numbers.views(self._chain_from(key))
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

    def _chain_from(self, key: str) -> tuple[str, ...]:
        """`key` and its coarser keys."""
        if len(self._schemas) == 1:
            return (key,)
        place = self._schemas.index(state_key.schema_of(key))
        return (key, *[state_key.project(key, schema) for schema in self._schemas[place + 1 :]])


def _dump_closed(closed: ClosedDecision) -> str | list[str | int]:
    if closed.terms is None:
        return closed.state
    reward, num_decisions, cost = closed.terms
    return [reward.hex(), num_decisions, cost.hex()]
