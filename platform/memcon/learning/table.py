"""One table at one shard: settings, numbers, open and closed decisions, and how each event changes them.

Owns the state and the fold. It decides nothing about requests: `memcon.learning.shard` turns a request into events
and applies them here, and a replay applies the journaled ones, so that both run the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from memcon import codec
from memcon.errors import InvariantError
from memcon.learning import credit, transfer
from memcon.learning.closed import EXPIRED, ClosedDecision, ClosedDecisions, choice_mark
from memcon.learning.events import (
    Cancelled,
    Created,
    Credited,
    Decided,
    EpisodeClosed,
    Event,
    Expired,
    Imported,
    Recorded,
    RecoveredDecision,
    SettingsChanged,
)
from memcon.learning.exploration.rule import Choice
from memcon.learning.scoring import OpenDecision, Scoring
from memcon.learning.settings import difference, encode_settings
from memcon.policy_types import LearningSettings

__all__ = ["SUPERSEDED", "PolicyTable"]

# Reason of a cancel that the decide of the same id with another key brings; the id opens again at once.
SUPERSEDED = "superseded"


class PolicyTable(Scoring):
    """State of one table. Single-threaded; every change is one event."""

    def __init__(self, created: Created) -> None:
        super().__init__(created.table, created.settings)
        # As it began; `settings` is as it goes on: `frozen` may differ.
        self.created: LearningSettings = created.settings
        self._source = ""
        self._open: dict[str, OpenDecision] = {}
        self._closed = ClosedDecisions(created.settings.closed_kept)
        self._version = 1
        # The open decision under an id, and whether a decision or its episode has ended: no methods, since each decide
        # asks both, and a call that only calls is a hundredth of it.
        self.open_decision: Callable[[str], OpenDecision | None] = self._open.get
        self.has_ended: Callable[[str, str], bool] = self._closed.has_ended

    # --- questions -----------------------------------------------------------------------------------------------

    def closed_decision(self, decision_id: str) -> ClosedDecision | None:
        """How the decision under this id ended, if it did."""
        return self._closed.get(decision_id)

    def open_of_episode(self, episode_id: str) -> list[str]:
        """Ids of the episode's open decisions, oldest first. Asked at claims only, hence a scan."""
        return [name for name, opened in self._open.items() if opened.event.episode_id == episode_id]

    def is_closed_episode(self, episode_id: str) -> bool:
        """The episode was cancelled."""
        return self._closed.has_episode(episode_id)

    @property
    def source(self) -> str:
        """Where the table's first numbers came from; "" = it started with the priors."""
        return self._source

    @property
    def has_decisions(self) -> bool:
        """A decision is or was known here."""
        return bool(self._open or self._closed)

    def counts(self) -> dict[str, int]:
        """How many keys, open decisions and remembered ended ones there are, and the version."""
        return {
            "keys": len(self._numbers),
            "open": len(self._open),
            "closed": len(self._closed),
            "version": self._version,
        }

    def open_ids(self) -> list[str]:
        """Ids of the open decisions, oldest first."""
        return list(self._open)

    # --- events --------------------------------------------------------------------------------------------------

    def apply(self, event: Event, *, received: int) -> None:
        """Fold one journaled event; `received` is the owner's number of a decide.

        Raises:
            InvariantError: the event cannot follow from the state, or its arm is not the one that the state gives.
            ConfigError: its numbers or arms are refused, as in `choose` and `memcon.learning.credit.check_outcome`.
        """
        if isinstance(event, Decided):
            if event.decision_id in self._open or event.decision_id in self._closed:
                raise InvariantError(f"{event}: its decision is already recorded")
            choice, rows = self.choose(event.keys, event.allowed, event.draw)
            if choice.action_id != event.action_id:
                raise InvariantError(
                    f"replaying {event}: the journal has arm '{event.action_id}', the state before it gives "
                    f"'{choice.action_id}'; this event or an earlier one of the same key was altered or lost"
                )
            self.take(event, choice, rows, received=received)
        else:
            self._CHANGES[type(event)](self, event)

    def take(self, event: Decided, choice: Choice, rows: bytes, *, received: int) -> OpenDecision:
        """Apply a decide whose choice is already made, under an id that the table does not have."""
        self._numbers.take(event.keys, event.action_id)
        self._version += 1
        opened = OpenDecision(event, choice, rows, self._version, received, not self.settings.frozen)
        self._open[event.decision_id] = opened
        return opened

    def _apply_created(self, event: Created) -> None:
        # Journals of several shards each begin with it.
        if differing := difference(self.created, event.settings):
            raise InvariantError(f"{event}: the table exists with other settings ({differing})")

    def _apply_imported(self, event: Imported) -> None:
        # Journals of several shards each have their own keys of one import, and may be folded together.
        if self._source not in {"", event.source}:
            raise InvariantError(f"table '{self.name}': imported from '{event.source}' after '{self._source}'")
        transfer.check_numbers(self.settings, event.numbers)
        self.take_over(event, self.rows_of(event))

    def rows_of(self, event: Imported) -> bytes:
        """What `take_over` needs of an import whose numbers were checked. Changes nothing; from any thread."""
        return self._numbers.rows_of(event.numbers)

    def take_over(self, event: Imported, rows: bytes) -> None:
        """Apply an import that may follow, with its `rows_of`: quick, whatever it holds."""
        self._numbers.load_rows(list(event.numbers), rows)
        self._source = event.source
        self._version += 1

    def _apply_settings_changed(self, event: SettingsChanged) -> None:
        thawed = replace(event.settings, frozen=self.settings.frozen)
        if differing := difference(self.settings, thawed):
            raise InvariantError(f"{event}: only frozen may change ({differing})")
        self.settings = event.settings
        self._numbers.freeze(event.settings.frozen)
        self._version += 1

    def _apply_credited(self, event: Credited) -> None:
        if event.recovered is None:
            opened = self._open.get(event.decision_id)
            if opened is None or opened.event.position != event.position:
                raise InvariantError(f"{event}: no such open decision")
            self.credit_open(event, opened)
            return
        target = self.credit_of(event)
        counted = self._check_recovered(event, event.recovered)
        self._learn(event.recovered.keys, event.recovered.action_id, target, counted=counted)
        self._closed.credit(event.decision_id, (event.reward, event.num_decisions, event.cost))
        self._version += 1

    def credit_open(self, event: Credited, opened: OpenDecision) -> float:
        """Apply the outcome of a decision that is open; the return that it was credited."""
        target = self.credit_of(event)
        decided = opened.event
        if not opened.counted:
            self._numbers.take(decided.keys, decided.action_id)
        self._numbers.credit(decided.keys, decided.action_id, target)
        del self._open[event.decision_id]
        self._closed.credit(event.decision_id, (event.reward, event.num_decisions, event.cost))
        self._version += 1
        return target

    def _learn(self, keys: tuple[str, ...], arm: str, target: float, *, counted: bool) -> None:
        if not counted:
            self._numbers.take(keys, arm)
        self._numbers.credit(keys, arm, target)

    def _check_recovered(self, event: Credited, decision: RecoveredDecision) -> bool:
        """The decision of `event` was expired when it is late, else unknown; returns whether its count stands."""
        closed = self._closed.get(event.decision_id)
        if event.late:
            mark = choice_mark(decision.keys, decision.action_id)
            if closed is None or (closed.state, closed.mark) != (EXPIRED, mark):
                raise InvariantError(f"{event}: late, but no such decision has expired")
            return closed.counted
        if event.decision_id in self._open or closed is not None:
            raise InvariantError(f"{event}: recovered, but its decision is already recorded")
        if decision.action_id not in self._arms:
            raise InvariantError(f"{event}: unknown arm")
        self._check_chain(decision.keys)
        return False

    def _apply_cancelled(self, event: Cancelled) -> None:
        opened = self._end(event)
        if opened.counted:
            self._numbers.take_back(opened.event.keys, opened.event.action_id)
        if event.reason != SUPERSEDED:
            self._closed.cancel(event.decision_id)
        self._version += 1

    def _apply_expired(self, event: Expired) -> None:
        if event.default_reward is not None:
            credit.check_outcome(event.default_reward, position=0, num_decisions=1, cost=0.0)
        opened = self._end(event)
        keys, arm, counted = opened.event.keys, opened.event.action_id, opened.counted
        mark = choice_mark(keys, arm)
        if event.default_reward is not None:
            self._learn(keys, arm, event.default_reward, counted=counted)
            self._closed.default(event.decision_id, mark, default_reward=event.default_reward)
        else:
            if counted:
                self._numbers.take_back(keys, arm)
            # While the table is frozen the count stands, and a late outcome must not count once more.
            self._closed.expire(event.decision_id, mark, counted=counted and self.settings.frozen)
        self._version += 1

    def _apply_recorded(self, event: Recorded) -> None:
        closed = self._closed.get(event.decision_id)
        if closed is None or closed.default_reward is None or closed.terms is not None:
            raise InvariantError(f"{event}: no such decision learned its default outcome")
        terms = (event.reward, event.num_decisions, event.cost)
        self._closed.default(event.decision_id, closed.mark, default_reward=closed.default_reward, terms=terms)
        self._version += 1

    def _end(self, event: Cancelled | Expired) -> OpenDecision:
        opened = self._open.pop(event.decision_id, None)
        if opened is None:
            raise InvariantError(f"{event}: no such open decision")
        return opened

    def _apply_episode_closed(self, event: EpisodeClosed) -> None:
        # Its open decisions have their own events. Idempotent: every shard journals it, and their journals may be
        # folded together.
        self._closed.close_episode(event.episode_id)
        self._version += 1

    # What an event other than a decide does; a decide brings its choice with it.
    _CHANGES: ClassVar[Mapping[type[Event], Callable[[Any, Any], None]]] = MappingProxyType(
        {
            Credited: _apply_credited,
            Cancelled: _apply_cancelled,
            Expired: _apply_expired,
            Recorded: _apply_recorded,
            EpisodeClosed: _apply_episode_closed,
            SettingsChanged: _apply_settings_changed,
            Imported: _apply_imported,
            Created: _apply_created,
        }
    )

    # --- views of the whole --------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """The whole state, canonical: two equal states give equal JSON text, whatever shards they were folded by."""
        # Only where the table was frozen or thawed meanwhile.
        unlike = sorted(name for name, opened in self._open.items() if opened.counted == self.settings.frozen)
        otherwise = {"open_from_before_freeze_or_thaw": unlike} if unlike else {}
        return {
            "schema_version": 1,
            **self._heading(),
            "numbers": self._numbers.dump(),
            "open": {name: codec.encode(self._open[name].event) for name in sorted(self._open)},
            **self._closed.dump(),
            **otherwise,
        }

    def dump_keys(self, text: str) -> dict[str, Any]:
        """Of `dump` what `numbers_of` the key `text` needs to be understood: no decisions."""
        return {"schema_version": 1, **self._heading(), "numbers": self.numbers_of(text)}

    def _heading(self) -> dict[str, Any]:
        imported = {"imported": self._source} if self._source else {}
        return {"table": self.name, "settings": encode_settings(self.settings), **imported}

    def captured(self) -> dict[str, Any]:
        """All that `load` needs, as it is now, in order, as values that msgpack takes; "open" a slice at a time.

        This is quick, since an event loop waits for it; what it gives may be read later and in any thread.
        """
        # One that is open never changes, but for its token.
        return {**self._but_open(), "open": _OpenStates(list(self._open.values()))}

    def _but_open(self) -> dict[str, Any]:
        return {
            "created": encode_settings(self.created),
            "settings": encode_settings(self.settings),
            "source": self._source,
            "version": self._version,
            "numbers": self._numbers.state(),
            "closed": self._closed.state(),
        }

    @classmethod
    def load(cls, table: str, state: dict[str, Any]) -> PolicyTable:
        """The table whose `state` this is.

        Raises:
            InvariantError: its rule does not choose again what it chose.
            KeyError, TypeError, ValueError: it is no such state.
        """
        loaded = cls(Created(table=table, settings=codec.decode(LearningSettings, state["created"])))
        loaded.settings = codec.decode(LearningSettings, state["settings"])
        loaded._source, loaded._version = state["source"], state["version"]
        loaded._numbers.load_state(state["numbers"])
        loaded._numbers.freeze(loaded.settings.frozen)
        loaded._open.update([loaded._load_open(kept) for kept in state["open"]])
        loaded._closed.load(state["closed"])
        return loaded

    def _load_open(self, kept: list[Any]) -> tuple[str, OpenDecision]:
        decision_id, episode_id, position, keys, draw, allowed, action_id, version, received, counted, rows = kept
        event = Decided(
            table=self.name,
            decision_id=decision_id,
            episode_id=episode_id,
            position=position,
            keys=tuple(keys),
            draw=draw,
            allowed=None if allowed is None else tuple(allowed),
            action_id=action_id,
        )
        choice = self.chosen_from(event, rows)
        if choice.action_id != action_id:
            raise InvariantError(f"loading {event}: the numbers beside it give '{choice.action_id}'")
        return decision_id, OpenDecision(
            event=event, choice=choice, rows=rows, version=version, received=received, counted=counted
        )


class _OpenStates(Sequence[Any]):
    """What is kept of open decisions, made when it is read: all of it at once is as large as the decisions."""

    def __init__(self, opened: list[OpenDecision]) -> None:
        self._opened = opened

    def __len__(self) -> int:
        return len(self._opened)

    def __getitem__(self, place: Any) -> Any:
        found = self._opened[place]
        return [_open_state(opened) for opened in found] if isinstance(found, list) else _open_state(found)


def _open_state(opened: OpenDecision) -> tuple[Any, ...]:
    event = opened.event
    return (
        event.decision_id,
        event.episode_id,
        event.position,
        event.keys,
        event.draw,
        event.allowed,
        event.action_id,
        opened.version,
        opened.received,
        opened.counted,
        # What the choice was made from; its rule makes it again.
        opened.rows,
    )
