"""One table at one shard: settings, numbers, open and closed decisions, and how each event changes them.

Owns the state and the fold. It decides nothing about requests: `memcon.learning.shard` turns a request into events
and applies them here, and a replay applies the journaled ones, so that both run the same code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memcon import codec
from memcon.errors import ConfigError, InvariantError, UnknownNameError
from memcon.learning import credit
from memcon.learning.events import Cancelled, Created, Credited, Decided, EpisodeClosed, Event
from memcon.learning.exploration import Choice, build_rule
from memcon.learning.q_table import KeyView, QTable
from memcon.learning.settings import check_settings, difference
from memcon.policy_types import LearningSettings

__all__ = ["SUPERSEDED", "ClosedDecision", "OpenDecision", "PolicyTable", "Scored"]

_MAX_DRAW = (1 << 64) - 1
# Reason of a cancel that the decide of the same id with another key brings; the id opens again at once.
SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A choice with the numbers that it was made from."""

    view: KeyView
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

    def knows_key(self, key: str) -> bool:
        """A decision was taken at `key`."""
        return key in self._numbers

    def choose(self, keys: tuple[str, ...], allowed: tuple[str, ...] | None, draw: int) -> Scored:
        """What the rule chooses now; nothing is counted.

        Raises:
            ConfigError: no arm is allowed, an arm is unknown, the chain or the draw is malformed, or the rule refuses.
            InvariantError: the rule chose an arm that is not allowed.
        """
        if len(keys) != 1 or not keys[0]:
            raise ConfigError(f"table '{self._table}': keys = {list(keys)}; rule '{self.settings.rule}' takes one key")
        if not 0 <= draw <= _MAX_DRAW:
            raise ConfigError(f"table '{self._table}': draw = {draw}; expected 64 bits, 0 <= draw < 2^64")
        arms = self.settings.action_ids if allowed is None else self._in_arm_order(allowed)
        view = self._numbers.view(keys[0])
        choice = self._rule.choose(view, allowed=arms, draw=draw)
        if choice.action_id not in arms:
            raise InvariantError(
                f"rule '{self.settings.rule}' chose '{choice.action_id}', which is not among {', '.join(arms)}"
            )
        return Scored(view=view, choice=choice)

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
            case Created():
                self._apply_created(event)

    def take(self, event: Decided, scored: Scored, *, received: int) -> OpenDecision:
        """Apply a decide whose choice is already made."""
        if event.decision_id in self._open or event.decision_id in self._closed:
            raise InvariantError(f"{event}: its decision is already recorded")
        self._numbers.take(event.keys[0], event.action_id)
        self._version += 1
        opened = OpenDecision(event=event, scored=scored, version=self._version, received=received)
        self._open[event.decision_id] = opened
        return opened

    def _apply_created(self, event: Created) -> None:
        # Journals of several shards each begin with it.
        if differing := difference(self.settings, event.settings):
            raise InvariantError(f"{event}: the table exists with other settings ({differing})")

    def _apply_credited(self, event: Credited) -> None:
        target = self.credit_of(event)
        opened = self._open.pop(event.decision_id, None)
        if event.recovered is not None:
            if opened is not None or event.decision_id in self._closed:
                raise InvariantError(f"{event}: recovered, but its decision is already recorded")
            if event.recovered.action_id not in self._arms or len(event.recovered.keys) != 1:
                raise InvariantError(f"{event}: unknown arm, or not one key")
            key, arm = event.recovered.keys[0], event.recovered.action_id
            self._numbers.take(key, arm)
        else:
            if opened is None or opened.event.position != event.position:
                raise InvariantError(f"{event}: no such open decision")
            key, arm = opened.event.keys[0], opened.event.action_id
        self._numbers.credit(key, arm, target)
        self._closed[event.decision_id] = ClosedDecision(terms=(event.reward, event.num_decisions, event.cost))
        self._version += 1

    def _apply_cancelled(self, event: Cancelled) -> None:
        opened = self._open.pop(event.decision_id, None)
        if opened is None:
            raise InvariantError(f"{event}: no such open decision")
        self._numbers.take_back(opened.event.keys[0], opened.event.action_id)
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
        return {
            "schema_version": 1,
            "table": self._table,
            "settings": codec.encode(self.settings),
            "numbers": self._numbers.dump(),
            "open": {name: codec.encode(self._open[name].event) for name in sorted(self._open)},
            "closed": {name: _dump_closed(self._closed[name]) for name in sorted(self._closed)},
            "closed_episodes": sorted(self._closed_episodes),
        }

    def inspect(self) -> dict[str, dict[str, dict[str, float | int | None]]]:
        """Per key and arm: q, taken, credited, bonus, score (MC-36); None = infinite, or the rule has none."""
        return {key: self._inspect_key(key) for key in self._numbers.keys()}  # noqa: SIM118 - sorted keys of a QTable

    def _inspect_key(self, key: str) -> dict[str, dict[str, float | int | None]]:
        view = self._numbers.view(key)
        choice = self._rule.choose(view, allowed=view.action_ids, draw=0)
        rows: dict[str, dict[str, float | int | None]] = {}
        for i, arm in enumerate(view.action_ids):
            finite = bool(choice.bonuses) and view.taken[i] > 0
            rows[arm] = {
                "q": view.q[i],
                "taken": view.taken[i],
                "credited": view.credited[i],
                "bonus": choice.bonuses[i] if finite else None,
                "score": choice.scores[i] if finite else None,
            }
        return rows


def _dump_closed(closed: ClosedDecision) -> str | list[str | int]:
    if closed.terms is None:
        return closed.state
    reward, num_decisions, cost = closed.terms
    return [reward.hex(), num_decisions, cost.hex()]
