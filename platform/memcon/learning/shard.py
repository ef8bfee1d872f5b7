"""The pure policy shard: requests in, events and replies out. No clock, no I/O, no generator, single-threaded.

A command applies its events in memory and returns them; the shell makes them durable *before* it sends the reply, and
ends the process if it cannot. Whatever a command refuses, it refuses before it changes anything. What may still become
of a decision: `memcon.learning.life`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

from memcon.errors import ConfigError, ConflictError, InvariantError, MemconError, NotFoundError
from memcon.learning import decision_token, life, transfer
from memcon.learning.credit import check_outcome
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
    SettingsChanged,
)
from memcon.learning.scoring import OpenDecision
from memcon.learning.settings import difference
from memcon.learning.shard_tables import ShardTables
from memcon.learning.table import SUPERSEDED, PolicyTable
from memcon.policy_types import (
    CancelRequest,
    DecideReply,
    DecideRequest,
    LearningSettings,
    OutcomeReply,
    OutcomeRequest,
    TableImport,
)

__all__ = ["Handled", "PolicyShard", "PreparedImport"]

A = TypeVar("A")
T = TypeVar("T")

# What looks at a decide at keys that have no numbers yet, before anything else does, and may refuse it.
Admit: TypeAlias = Callable[[DecideRequest], None]


# Neither frozen nor keyword-only, as what else each decide makes: such a dataclass takes five times as long to make.
@dataclass(slots=True)
class Handled(Generic[T]):
    """What a command gave: the reply to send once `events` are durable. No events = nothing changed."""

    reply: T
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedImport:
    """An import whose numbers were checked, and its rows."""

    event: Imported
    rows: bytes


class PolicyShard(ShardTables):
    """Owner of the keys of every table that hash to `shard` out of `num_shards`.

    Raises:
        ConfigError: `shard` is outside [0, num_shards), or the secret is too short.
    """

    def __init__(self, shard: int, num_shards: int, secret: bytes) -> None:
        super().__init__(shard, num_shards)
        decision_token.check_secret(secret)
        self._secret = secret
        # Of the shell, which may allow less than a shard can take.
        self.admit: Admit | None = None

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
        if (differing := difference(known.created, settings)) and difference(known.settings, settings):
            raise ConflictError(
                f"opening policy table '{table}': it was created with other settings ({differing}); "
                "use those, or another table name"
            )
        return Handled(reply=None)

    def freeze_table(self, table: str, frozen: bool) -> Handled[bool]:
        """Stop the table's learning, or let it go on; True if that is a change.

        A frozen table decides and records, and its numbers stay. What a decision counts and teaches goes by how the
        table is at its decide and at its end: one that was taken while the table was frozen counts with its outcome.

        Raises:
            NotFoundError: no such table.
        """
        state = self._table(table)
        if state.settings.frozen == frozen:
            return Handled(reply=False)
        event = SettingsChanged(table=table, settings=replace(state.settings, frozen=frozen))
        self._fold(event)
        return Handled(reply=True, events=(event,))

    def import_table(self, request: TableImport) -> Handled[None]:
        """Let a table without decisions start from the numbers of another one, as far as their keys are owned here.

        Each shard is sent the whole; the same source again has no effect. Counts are capped before
        (`memcon.learning.transfer.capped`).

        Raises:
            NotFoundError: no such table.
            ConflictError: the table has decisions here already, or started from another source.
            ConfigError: a key or an arm is none of the table's, a number is impossible, or the source has no name.
        """
        return self.take_import(request, self.prepare_import(request))

    def prepare_import(self, request: TableImport) -> PreparedImport | None:
        """The slow part of `import_table` (20 us a key), which changes nothing: any thread may do it beside the owner.

        None: there is nothing to take over any more.

        Raises:
            MemconError: as `import_table`.
        """
        table = self._table(request.table)
        if not life.check_import(table, request):
            return None
        transfer.check_numbers(table.settings, request.numbers)
        owning = transfer.owning_keys(table.settings, request.numbers)
        numbers = {
            key: {arm: dict(cell) for arm, cell in arms.items()}
            for key, arms in request.numbers.items()
            if self._owner(request.table, owning[key]) == self._shard
        }
        # Journaled without keys too: this shard refuses another source from now on.
        event = Imported(table=request.table, source=request.source, numbers=numbers)
        return PreparedImport(event=event, rows=table.rows_of(event))

    def take_import(self, request: TableImport, prepared: PreparedImport | None) -> Handled[None]:
        """The quick part of `import_table`, with what `prepare_import` gave for the same request.

        Raises:
            NotFoundError, ConflictError: as `import_table`.
        """
        table = self._table(request.table)
        if prepared is None or not life.check_import(table, request):
            return Handled(reply=None)
        table.take_over(prepared.event, prepared.rows)
        return Handled(reply=None, events=(prepared.event,))

    def decide(self, request: DecideRequest) -> Handled[DecideReply]:
        """Score, choose and count in one step; the same id again gives the same answer.

        An open id with other keys cancels the earlier decision.

        Raises:
            NotFoundError: no such table, or another shard owns the key.
            ConflictError: the episode was cancelled, the id is closed, or the id belongs to another place.
            ConfigError: the request is malformed, or the rule cannot choose among the allowed arms.
            MemconError: what `admit` refused.
        """
        events: list[Event] = []
        return Handled(self._decide(request, events), tuple(events))

    def decide_each(self, requests: Sequence[DecideRequest]) -> Handled[list[DecideReply | MemconError]]:
        """`decide` one after the other, each seeing those before it; a refusal stands in the place of its reply.

        Raises:
            InvariantError: memory is damaged; nothing of this shard may be used any more.
        """
        return _each(self._decide, requests)

    def _decide(self, request: DecideRequest, events: list[Event]) -> DecideReply:
        """`decide`, whose events are put behind `events`."""
        table, decision_id = self._tables.get(request.table) or self._table(request.table), request.decision_id
        # The table's own texts, where it has them: with a copy of its own an open decision was a quarter larger.
        own = table.own_keys(request.keys)
        keys = own or request.keys
        if own is None and self.admit is not None:
            self.admit(request)
        earlier = table.open_decision(decision_id)
        life.check_decide(table, request, earlier)
        if earlier is not None and earlier.event.keys == keys:
            propensity = table.propensity(earlier.event, earlier.choice, earlier.rows)
            return self._reply(table, earlier, propensity, explain=request.explain)
        # One that is not in the numbers is not to be taken out of them.
        counted = earlier if earlier is not None and earlier.counted else None
        choice, rows = table.choose(keys, request.allowed, request.draw, instead_of=counted)
        if own is None and not table.knows_key(keys[-1]):
            self._check_owned(table.name, keys[-1])
        decided = Decided(
            table.name,
            decision_id,
            request.episode_id,
            request.position,
            keys,
            request.draw,
            request.allowed,
            choice.action_id,
        )
        # Before anything changes, since a rule may refuse. Not in the choice: a fold, which replies to nobody, does not
        # pay for it.
        propensity = table.propensity(decided, choice, rows)
        if earlier is not None:
            cancelled = Cancelled(table=table.name, decision_id=decision_id, reason=SUPERSEDED)
            self._fold(cancelled)
            events.append(cancelled)
        events.append(decided)
        self._received += 1
        opened = table.take(decided, choice, rows, received=self._received)
        return self._reply(table, opened, propensity, explain=request.explain)

    def outcome(self, request: OutcomeRequest) -> Handled[OutcomeReply]:
        """Credit a decision once; repeating the same outcome has no effect.

        Raises:
            InvalidOutcomeError: numbers that no episode has (a ConfigError and a ValueError).
            NotFoundError: the token is not valid, or its table or key is not here.
            ConflictError: another outcome is recorded, the decision or its episode was cancelled, or the token is of
                another decision.
        """
        events: list[Event] = []
        return Handled(self._outcome(request, events), tuple(events))

    def outcome_each(self, requests: Sequence[OutcomeRequest]) -> Handled[list[OutcomeReply | MemconError]]:
        """`outcome` one after the other; a refusal stands in the place of its reply.

        Raises:
            InvariantError: memory is damaged; nothing of this shard may be used any more.
        """
        return _each(self._outcome, requests)

    def _outcome(self, request: OutcomeRequest, events: list[Event]) -> OutcomeReply:
        """`outcome`, whose events are put behind `events`."""
        check_outcome(request.reward, position=request.position, num_decisions=request.num_decisions, cost=request.cost)
        table = self._tables.get(decision_token.table_of(request.token))
        opened = None if table is None else table.open_decision(request.decision_id)
        if table is None or opened is None or not life.is_of(request, opened):
            return self._outcome_by_claims(request, events)
        return _credit(table, opened, request, events)

    def _outcome_by_claims(self, request: OutcomeRequest, events: list[Event]) -> OutcomeReply:
        """An outcome whose token is not the one that an open decision keeps."""
        claims = decision_token.verify(self._secret, request.token)
        table = self._table(claims.table)
        if not table.knows_key(claims.keys[-1]):
            self._check_owned(claims.table, claims.keys[-1])
        life.check_claims(request, claims)
        opened = table.open_decision(request.decision_id)
        if opened is not None:
            life.check_choice(claims, opened.event)
            return _credit(table, opened, request, events)
        closed = table.closed_decision(request.decision_id)
        event: Credited | Recorded | None
        if closed is not None:
            status, event = life.outcome_of_closed(table, request, claims, closed)
        else:
            status, event = life.outcome_of_unknown(table, request, claims)
        if event is not None:
            self._fold(event)
            events.append(event)
        # What a defaulted decision taught is the default, whatever is recorded beside it.
        default = None if closed is None else closed.default_reward
        credit = table.credit_of(request) if default is None else default
        return OutcomeReply(decision_id=request.decision_id, status=status, credit=credit)

    def cancel(self, request: CancelRequest) -> Handled[bool]:
        """Take an open decision back; True if it was open. Without effect on an ended or unknown one.

        The token of an earlier choice under the id, which a decide with other keys took back already, is without
        effect too.

        Raises:
            NotFoundError: the token is not valid, or its table or key is not here.
            ConflictError: the decision is credited, or the token is of another one.
        """
        claims = decision_token.verify(self._secret, request.token)
        table = self._table(claims.table)
        if not table.knows_key(claims.keys[-1]):
            self._check_owned(claims.table, claims.keys[-1])
        life.check_cancel(request, claims, table.closed_decision(request.decision_id))
        opened = table.open_decision(request.decision_id)
        if opened is None or (opened.event.keys, opened.event.action_id) != (claims.keys, claims.action_id):
            return Handled(reply=False)
        event = Cancelled(table=claims.table, decision_id=request.decision_id, reason="cancelled")
        self._fold(event)
        return Handled(reply=True, events=(event,))

    def expire(self, table: str, decision_id: str, default_reward: float | None) -> Handled[bool]:
        """End an open decision that has waited too long; True if it was open.

        With `default_reward` it learns that return, undiscounted; without, its count is taken back and an outcome may
        still come.

        Raises:
            NotFoundError: no such table.
            InvalidOutcomeError: the default is no reward.
        """
        state = self._table(table)
        if state.open_decision(decision_id) is None:
            return Handled(reply=False)
        event = Expired(
            table=table,
            decision_id=decision_id,
            default_reward=None if default_reward is None else float(default_reward),
        )
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

    # --- inside --------------------------------------------------------------------------------------------------

    def _check_owned(self, table: str, key: str) -> None:
        """Callers know a key that was decided at, and is owned: the hash is paid once a key."""
        owner = self._owner(table, key)
        if owner != self._shard:
            raise NotFoundError(
                f"key '{key}' of table '{table}' is not at shard {self._shard} of {self._num_shards}; ask shard {owner}"
            )

    def _reply(self, table: PolicyTable, opened: OpenDecision, propensity: float, *, explain: bool) -> DecideReply:
        event, choice = opened.event, opened.choice
        if not opened.token:
            # The event has all that a token claims.
            opened.token = decision_token.sign(self._secret, event)
        return DecideReply(
            event.decision_id,
            opened.token,
            event.action_id,
            propensity,
            choice.tie_set,
            choice.forced,
            opened.version,
            self._shard,
            opened.received,
            table.explained(opened) if explain else None,
        )


def _credit(table: PolicyTable, opened: OpenDecision, request: OutcomeRequest, events: list[Event]) -> OutcomeReply:
    event = life.credited(request, opened.event.table)
    target = table.credit_open(event, opened)
    events.append(event)
    return OutcomeReply(request.decision_id, "credited", target)


def _each(command: Callable[[A, list[Event]], T], requests: Sequence[A]) -> Handled[list[T | MemconError]]:
    events: list[Event] = []
    replies: list[T | MemconError] = []
    for request in requests:
        try:
            replies.append(command(request, events))
        except InvariantError:
            raise
        except MemconError as error:
            replies.append(error)
    return Handled(replies, tuple(events))
