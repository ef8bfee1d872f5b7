"""The pure policy shard: requests in, events and replies out. No clock, no I/O, no generator, single-threaded.

A command applies its events in memory and returns them; the shell makes them durable *before* it sends the reply, and
ends the process if it cannot. Whatever a command refuses, it refuses before it changes anything. Life rules of a
decision: docs/architecture.md, "Rules".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from memcon import ids
from memcon.errors import ConfigError, ConflictError, InvariantError, MemconError, NotFoundError
from memcon.learning import decision_token, life, transfer
from memcon.learning.credit import check_outcome
from memcon.learning.events import Cancelled, Created, Credited, Decided, EpisodeClosed, Event, Imported
from memcon.learning.settings import difference
from memcon.learning.table import SUPERSEDED, OpenDecision, PolicyTable
from memcon.policy_types import (
    DecideReply,
    DecideRequest,
    LearningSettings,
    OutcomeReply,
    OutcomeRequest,
    TableImport,
)

__all__ = ["Handled", "PolicyShard"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled(Generic[T]):
    """What a command gave: the reply to send once `events` are durable. No events = nothing changed."""

    reply: T
    events: tuple[Event, ...] = ()


class PolicyShard:
    """Owner of the keys of every table that hash to `shard` out of `num_shards`.

    Raises:
        ConfigError: `shard` is outside [0, num_shards), or the secret is too short.
    """

    def __init__(self, shard: int, num_shards: int, secret: bytes) -> None:
        if not 0 <= shard < num_shards:
            raise ConfigError(
                f"policy shard: shard = {shard}, num_shards = {num_shards}; expected 0 <= shard < num_shards"
            )
        decision_token.check_secret(secret)
        self._shard, self._num_shards, self._secret = shard, num_shards, secret
        self._tables: dict[str, PolicyTable] = {}
        # Decisions taken here so far, over all tables.
        self._received = 0

    # --- commands ------------------------------------------------------------------------------------------------

    def open_table(self, table: str, settings: LearningSettings) -> Handled[None]:
        """Create `table`, or check that it has equal settings.

        Raises:
            ConfigError: the settings or the name are refused.
            ConflictError: it exists with other settings; names the differing fields with both values (MC-13).
        """
        if not table:
            raise ConfigError("opening a policy table: its name is empty")
        known = self._tables.get(table)
        if known is None:
            created = Created(table=table, settings=settings)
            self._fold(created)
            return Handled(reply=None, events=(created,))
        if differing := difference(known.settings, settings):
            raise ConflictError(
                f"opening policy table '{table}': it was created with other settings ({differing}); "
                "use those, or another table name"
            )
        return Handled(reply=None)

    def import_table(self, request: TableImport) -> Handled[None]:
        """Let a table without decisions start from the numbers of another one, as far as their keys are owned here.

        Each shard is sent the whole; the same source again has no effect. Counts are capped before
        (`memcon.learning.transfer.capped`).

        Raises:
            NotFoundError: no such table.
            ConflictError: the table has decisions here already, or started from another source.
            ConfigError: a key or an arm is none of the table's, a number is impossible, or the source has no name.
        """
        table = self._table(request.table)
        if not life.check_import(table, request):
            return Handled(reply=None)
        transfer.check_numbers(table.settings, request.numbers)
        owning = transfer.owning_keys(table.settings, request.numbers)
        numbers = {
            key: {arm: dict(cell) for arm, cell in arms.items()}
            for key, arms in request.numbers.items()
            if self._owner(request.table, owning[key]) == self._shard
        }
        # Journaled without keys too: this shard refuses another source from now on.
        event = Imported(table=request.table, source=request.source, numbers=numbers)
        self._fold(event)
        return Handled(reply=None, events=(event,))

    def decide(self, request: DecideRequest) -> Handled[DecideReply]:
        """Score, choose and count in one step; the same id again gives the same answer.

        An open id with other keys cancels the earlier decision.

        Raises:
            NotFoundError: no such table, or another shard owns the key.
            ConflictError: the episode was cancelled, the id is closed, or the id belongs to another place.
            ConfigError: the request is malformed, or the rule cannot choose among the allowed arms.
        """
        table = self._table(request.table)
        earlier = table.open_decision(request.decision_id)
        life.check_decide(table, request, earlier)
        if earlier is not None and earlier.event.keys == request.keys:
            return Handled(reply=self._reply(table, earlier, explain=request.explain))
        scored = table.choose(request.keys, request.allowed, request.draw, instead_of=earlier)
        self._check_owned(table, request.table, request.keys[-1])
        decided = Decided(
            table=request.table,
            decision_id=request.decision_id,
            episode_id=request.episode_id,
            position=request.position,
            keys=request.keys,
            draw=request.draw,
            allowed=request.allowed,
            action_id=scored.choice.action_id,
        )
        events: tuple[Event, ...] = (decided,)
        if earlier is not None:
            cancelled = Cancelled(table=request.table, decision_id=request.decision_id, reason=SUPERSEDED)
            self._fold(cancelled)
            events = (cancelled, decided)
        self._received += 1
        opened = table.take(decided, scored, received=self._received)
        return Handled(reply=self._reply(table, opened, explain=request.explain), events=events)

    def outcome(self, request: OutcomeRequest) -> Handled[OutcomeReply]:
        """Credit a decision once; repeating the same outcome has no effect.

        Raises:
            InvalidOutcomeError: numbers that no episode has (a ConfigError and a ValueError).
            NotFoundError: the token is not valid, or its table or key is not here.
            ConflictError: another outcome is recorded, the decision or its episode was cancelled, or the token is of
                another decision.
        """
        check_outcome(request.reward, position=request.position, num_decisions=request.num_decisions, cost=request.cost)
        claims = decision_token.verify(self._secret, request.token)
        table = self._table(claims.table)
        self._check_owned(table, claims.table, claims.keys[-1])
        life.check_claims(request, claims)
        event = Credited(
            table=claims.table,
            decision_id=request.decision_id,
            reward=float(request.reward),
            position=request.position,
            num_decisions=request.num_decisions,
            cost=float(request.cost),
            recovered=life.recovered(table, claims),
        )
        closed = table.closed_decision(request.decision_id)
        status = "duplicate"
        events: tuple[Event, ...] = ()
        if closed is None:
            self._fold(event)
            status, events = ("recovered" if event.recovered else "credited"), (event,)
        else:
            life.check_duplicate(event, closed)
        reply = OutcomeReply(decision_id=request.decision_id, status=status, credit=table.credit_of(event))
        return Handled(reply=reply, events=events)

    def cancel(self, table: str, decision_id: str) -> Handled[bool]:
        """Take an open decision back; True if it was open. Without effect on a cancelled or unknown id.

        Raises:
            NotFoundError: no such table.
            ConflictError: the decision is already credited.
        """
        state = self._table(table)
        closed = state.closed_decision(decision_id)
        if closed is not None and closed.terms is not None:
            raise ConflictError(
                f"cancelling decision '{decision_id}': it is already credited with {life.terms_text(*closed.terms)}"
            )
        if state.open_decision(decision_id) is None:
            return Handled(reply=False)
        event = Cancelled(table=table, decision_id=decision_id, reason="cancelled")
        self._fold(event)
        return Handled(reply=True, events=(event,))

    def cancel_episode(self, table: str, episode_id: str) -> Handled[int]:
        """Cancel the episode's open decisions, leave its credited ones, refuse its later decides and recoveries.

        The reply is how many were open. Safe to repeat.

        Raises:
            NotFoundError: no such table.
        """
        state = self._table(table)
        cancelled = [
            Cancelled(table=table, decision_id=decision_id, reason="episode_cancelled")
            for decision_id in state.open_of_episode(episode_id)
        ]
        events: list[Event] = [*cancelled]
        if not state.is_closed_episode(episode_id):
            events.append(EpisodeClosed(table=table, episode_id=episode_id))
        for event in events:
            self._fold(event)
        return Handled(reply=len(cancelled), events=tuple(events))

    # --- the fold ------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one journaled event; a decide is chosen again and compared.

        Raises:
            InvariantError: names the event; the journal was altered, or it is of another shard.
        """
        try:
            self._fold(event)
        except InvariantError:
            raise
        except MemconError as error:
            raise InvariantError(f"replaying {event}: {error}") from error

    def _fold(self, event: Event) -> None:
        state = self._tables.get(event.table)
        if state is None:
            if not isinstance(event, Created):
                raise InvariantError(f"{event}: its table was never created")
            self._tables[event.table] = PolicyTable(event)
            return
        state.apply(event, received=self._received + 1)
        if isinstance(event, Decided):
            self._received += 1
            self._check_place(event, event.keys[-1])
        elif isinstance(event, Credited) and event.recovered is not None:
            self._check_place(event, event.recovered.keys[-1])
        elif isinstance(event, Imported):
            for shard_key in transfer.owning_keys(state.settings, event.numbers).values():
                self._check_place(event, shard_key)

    def _check_place(self, event: Decided | Credited | Imported, shard_key: str) -> None:
        if self._owner(event.table, shard_key) != self._shard:
            what = event.source if isinstance(event, Imported) else event.decision_id
            raise InvariantError(
                f"table '{event.table}', '{what}': shard {self._shard} of {self._num_shards} does not own '{shard_key}'"
            )

    # --- views ---------------------------------------------------------------------------------------------------

    def tables(self) -> list[str]:
        """Names of the tables here, sorted."""
        return sorted(self._tables)

    def dump(self, table: str) -> dict[str, Any]:
        """The table's whole state as JSON-able values; equal states give equal text, bit for bit.

        Raises:
            NotFoundError: no such table.
        """
        return self._table(table).dump()

    def inspect(self, table: str) -> dict[str, dict[str, dict[str, float | int | None]]]:
        """Per key and arm: q, taken, credited, bonus and score (MC-36); None where infinite or absent.

        Raises:
            NotFoundError: no such table.
        """
        return self._table(table).inspect()

    # --- inside --------------------------------------------------------------------------------------------------

    def _table(self, table: str) -> PolicyTable:
        state = self._tables.get(table)
        if state is None:
            raise NotFoundError(
                f"policy table '{table}' does not exist at shard {self._shard}; open it first "
                f"(tables here: {', '.join(sorted(self._tables)) or 'none'})"
            )
        return state

    def _owner(self, table: str, key: str) -> int:
        return 0 if self._num_shards == 1 else ids.shard_of(table, key, self._num_shards)

    def _check_owned(self, state: PolicyTable, table: str, key: str) -> None:
        # A key that was decided at is owned: the hash is paid once a key.
        if state.knows_shard_key(key):
            return
        owner = self._owner(table, key)
        if owner != self._shard:
            raise NotFoundError(
                f"key '{key}' of table '{table}' is not at shard {self._shard} of {self._num_shards}; ask shard {owner}"
            )

    def _reply(self, table: PolicyTable, opened: OpenDecision, *, explain: bool) -> DecideReply:
        event, choice = opened.event, opened.scored.choice
        token = decision_token.sign(
            self._secret,
            decision_token.Claims(
                table=event.table,
                keys=event.keys,
                action_id=event.action_id,
                position=event.position,
                decision_id=event.decision_id,
                episode_id=event.episode_id,
            ),
        )
        return DecideReply(
            decision_id=event.decision_id,
            token=token,
            action_id=event.action_id,
            # Here and not in the choice: a fold, which replies to nobody, does not pay for it.
            propensity=table.propensity(opened.scored),
            tie_set=choice.tie_set,
            forced=choice.forced,
            table_version=opened.version,
            shard=self._shard,
            received=opened.received,
            per_arm=_per_arm(opened, table.probabilities(opened.scored)) if explain else None,
        )


def _per_arm(opened: OpenDecision, probabilities: tuple[float, ...]) -> Mapping[str, Mapping[str, float]]:
    """Numbers of the finest key, the rule's columns, and probabilities."""
    view, columns = opened.scored.views[0], opened.scored.choice.columns
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
