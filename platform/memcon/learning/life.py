"""Rules of a decision's life, and of a table's first one: what a request may still do. Pure checks; nothing changes.

| a decision that is | takes an outcome | again the same | another one | and a cancel |
|---|---|---|---|---|
| open | credited | | | cancelled |
| credited | | no effect | conflict | conflict |
| cancelled | conflict | | | no effect |
| expired | credited, `late` | | | no effect |
| expired, having learned the default | recorded, `not_applied` | no effect | conflict | no effect |
| unknown, with a valid token | credited, `recovered` | | | no effect |

Outcomes are the same when (reward, num_decisions, cost) are. An expired or unknown decision of an episode that was
cancelled takes none.
"""

from __future__ import annotations

from memcon.errors import ConfigError, ConflictError
from memcon.learning import decision_token
from memcon.learning.closed import CREDITED, DEFAULTED, EXPIRED, ClosedDecision, Terms, choice_mark
from memcon.learning.decision_token import Claims
from memcon.learning.events import Credited, Decided, Recorded, RecoveredDecision
from memcon.learning.scoring import OpenDecision
from memcon.learning.table import PolicyTable
from memcon.policy_types import CancelRequest, DecideRequest, OutcomeRequest, TableImport

__all__ = [
    "check_cancel",
    "check_choice",
    "check_claims",
    "check_decide",
    "check_import",
    "credited",
    "is_of",
    "outcome_of_closed",
    "outcome_of_unknown",
]


def check_decide(table: PolicyTable, request: DecideRequest, earlier: OpenDecision | None) -> None:
    """Refuse a decide for a closed id, a cancelled episode, or an id that is open at another place.

    Raises:
        ConfigError: an empty id or a negative position.
        ConflictError: as above.
    """
    if not request.decision_id or not request.episode_id or request.position < 0:
        raise ConfigError(
            f"{_asked(request)}: episode_id = '{request.episode_id}', position = {request.position}; "
            "expected non-empty ids and a position >= 0"
        )
    if table.has_ended(request.decision_id, request.episode_id):
        raise _ended(table, request)
    if earlier is None:
        return
    event = earlier.event
    if (event.episode_id, event.position) != (request.episode_id, request.position):
        raise ConflictError(
            f"{_asked(request)}: it is open as position {event.position} of episode '{event.episode_id}', "
            f"asked as position {request.position} of episode '{request.episode_id}'"
        )


def _asked(request: DecideRequest) -> str:
    return f"decision '{request.decision_id}' of table '{request.table}'"


def _ended(table: PolicyTable, request: DecideRequest) -> ConflictError:
    closed = table.closed_decision(request.decision_id)
    if closed is None or table.is_closed_episode(request.episode_id):
        return ConflictError(
            f"{_asked(request)}: its episode '{request.episode_id}' was cancelled; begin the task again as a new "
            "episode"
        )
    return ConflictError(f"{_asked(request)}: it is already {closed.state}; an id names one decision")


def check_claims(request: OutcomeRequest, claims: Claims) -> None:
    """Refuse an outcome with the token of another decision.

    Raises:
        ConflictError: id or position differ.
    """
    if (request.decision_id, request.position) != (claims.decision_id, claims.position):
        raise ConflictError(
            f"outcome of decision '{request.decision_id}' at position {request.position}: its token is of decision "
            f"'{claims.decision_id}' at position {claims.position}; send each outcome with its own token"
        )


def is_of(request: OutcomeRequest, opened: OpenDecision) -> bool:
    """`request` bears the very token that was signed for the open decision: there is nothing left to verify."""
    return (
        request.position == opened.event.position
        and opened.token != ""
        and decision_token.same(request.token, opened.token)
    )


def check_choice(claims: Claims, decided: Decided) -> None:
    """Refuse the token of an earlier choice under the id of an open decision.

    Raises:
        ConflictError: it was decided again with other keys or gave another arm.
    """
    if decided.keys != claims.keys or decided.action_id != claims.action_id:
        raise _moved(claims.decision_id)


def check_cancel(request: CancelRequest, claims: Claims, closed: ClosedDecision | None) -> None:
    """Refuse to cancel with the token of another decision, or what has learned an outcome.

    Raises:
        ConflictError: the id differs, or the decision is credited.
    """
    if request.decision_id != claims.decision_id:
        raise ConflictError(
            f"cancelling decision '{request.decision_id}': its token is of decision '{claims.decision_id}'; "
            "cancel each one with its own token"
        )
    if closed is not None and closed.state == CREDITED and closed.terms is not None:
        raise ConflictError(
            f"cancelling decision '{claims.decision_id}': it is already credited with {_terms_text(*closed.terms)}"
        )


def credited(
    request: OutcomeRequest, table: str, *, recovered: RecoveredDecision | None = None, late: bool = False
) -> Credited:
    """The event that `request` becomes when it is learned."""
    return Credited(
        table,
        request.decision_id,
        float(request.reward),
        request.position,
        request.num_decisions,
        float(request.cost),
        recovered,
        late,
    )


def outcome_of_closed(
    table: PolicyTable, request: OutcomeRequest, claims: Claims, closed: ClosedDecision
) -> tuple[str, Credited | Recorded | None]:
    """Status and event (None = nothing changes) of an outcome for a decision that has ended.

    Raises:
        ConflictError: another outcome is recorded, the decision or its episode was cancelled, or the token is of an
            earlier choice under its id.
    """
    terms: Terms = (float(request.reward), request.num_decisions, float(request.cost))
    if closed.terms is not None:
        if closed.terms != terms:
            raise _refused(request, terms, f"{closed.state} with {_terms_text(*closed.terms)}")
        return "duplicate", None
    if closed.state not in {EXPIRED, DEFAULTED}:
        raise _refused(request, terms, closed.state)
    if closed.mark != choice_mark(claims.keys, claims.action_id):
        raise _moved(claims.decision_id)
    if closed.state == EXPIRED:
        _check_episode(table, claims)
        return "late", credited(request, claims.table, recovered=_decision(claims), late=True)
    return "not_applied", Recorded(
        table=claims.table,
        decision_id=request.decision_id,
        reward=terms[0],
        position=request.position,
        num_decisions=terms[1],
        cost=terms[2],
    )


def outcome_of_unknown(table: PolicyTable, request: OutcomeRequest, claims: Claims) -> tuple[str, Credited]:
    """Status and event of an outcome whose decision is known from its verified token only.

    Raises:
        ConflictError: its episode was cancelled, or the table has no such arm or no such chain of keys.
    """
    _check_episode(table, claims)
    where = f"outcome of decision '{claims.decision_id}'"
    if claims.action_id not in table.settings.action_ids:
        raise ConflictError(f"{where}: its arm '{claims.action_id}' is none of table '{claims.table}'")
    if len(claims.keys) != table.chain_length:
        raise ConflictError(
            f"{where}: its token has {len(claims.keys)} keys, table '{claims.table}' counts at {table.chain_length}"
        )
    return "recovered", credited(request, claims.table, recovered=_decision(claims))


def _decision(claims: Claims) -> RecoveredDecision:
    return RecoveredDecision(episode_id=claims.episode_id, keys=claims.keys, action_id=claims.action_id)


def _check_episode(table: PolicyTable, claims: Claims) -> None:
    if table.is_closed_episode(claims.episode_id):
        raise ConflictError(
            f"outcome of decision '{claims.decision_id}': its episode '{claims.episode_id}' was cancelled; "
            "do not send it again"
        )


def _moved(decision_id: str) -> ConflictError:
    return ConflictError(
        f"outcome of decision '{decision_id}': it was decided again with another key or arm; "
        "send the token of the last decide"
    )


def _refused(request: OutcomeRequest, terms: Terms, recorded: str) -> ConflictError:
    return ConflictError(
        f"outcome of decision '{request.decision_id}': got {_terms_text(*terms)}, but it is already {recorded}; "
        "do not send it again"
    )


def check_import(table: PolicyTable, request: TableImport) -> bool:
    """True when the numbers are still to be taken over, False when they already were.

    Raises:
        ConfigError: the source has no name.
        ConflictError: the table started from another source, or has decisions already.
    """
    where = f"importing into policy table '{request.table}'"
    if not request.source:
        raise ConfigError(f"{where}: source is empty; say where the numbers come from")
    if table.source == request.source:
        return False
    if table.source:
        raise ConflictError(f"{where}: it started from '{table.source}', asked '{request.source}'; take another table")
    if table.has_decisions:
        raise ConflictError(
            f"{where}: it has decisions already, and learned numbers cannot be mixed; take another table"
        )
    return True


def _terms_text(reward: float, num_decisions: int, cost: float) -> str:
    """The terms of an outcome, for messages."""
    return f"reward {reward!r}, num_decisions {num_decisions}, cost {cost!r}"
