"""Rules of a decision's life, and of a table's first one: what a request may still do. Pure checks; nothing changes.

open -> credited | cancelled; credited + same terms -> no effect; everything else is a conflict. Terms are (reward,
num_decisions, cost).
"""

from __future__ import annotations

from memcon.errors import ConfigError, ConflictError
from memcon.learning.decision_token import Claims
from memcon.learning.events import Credited, RecoveredDecision
from memcon.learning.table import ClosedDecision, OpenDecision, PolicyTable
from memcon.policy_types import DecideRequest, OutcomeRequest, TableImport

__all__ = ["check_claims", "check_decide", "check_duplicate", "check_import", "recovered", "terms_text"]


def check_decide(table: PolicyTable, request: DecideRequest, earlier: OpenDecision | None) -> None:
    """Refuse a decide for a closed id, a cancelled episode, or an id that is open at another place.

    Raises:
        ConfigError: an empty id or a negative position.
        ConflictError: as above.
    """
    where = f"decision '{request.decision_id}' of table '{request.table}'"
    if not request.decision_id or not request.episode_id or request.position < 0:
        raise ConfigError(
            f"{where}: episode_id = '{request.episode_id}', position = {request.position}; "
            "expected non-empty ids and a position >= 0"
        )
    if table.is_closed_episode(request.episode_id):
        raise ConflictError(
            f"{where}: its episode '{request.episode_id}' was cancelled; begin the task again as a new episode"
        )
    closed = table.closed_decision(request.decision_id)
    if closed is not None:
        raise ConflictError(f"{where}: it is already {closed.state}; an id names one decision")
    if earlier is None:
        return
    event = earlier.event
    if (event.episode_id, event.position) != (request.episode_id, request.position):
        raise ConflictError(
            f"{where}: it is open as position {event.position} of episode '{event.episode_id}', "
            f"asked as position {request.position} of episode '{request.episode_id}'"
        )


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


def check_duplicate(event: Credited, closed: ClosedDecision) -> None:
    """Refuse an outcome for a closed decision, unless it says what is recorded.

    Raises:
        ConflictError: the decision was cancelled, or credited with other terms.
    """
    if closed.terms == (event.reward, event.num_decisions, event.cost):
        return
    recorded = "cancelled" if closed.terms is None else f"credited with {terms_text(*closed.terms)}"
    raise ConflictError(
        f"outcome of decision '{event.decision_id}': got {terms_text(event.reward, event.num_decisions, event.cost)}, "
        f"but it is already {recorded}; do not send it again"
    )


def recovered(table: PolicyTable, claims: Claims) -> RecoveredDecision | None:
    """The decision to recover from its verified token; None when the table knows it.

    Raises:
        ConflictError: the id is open with other keys or another arm, its episode was cancelled, or the table has no
            such arm or no such chain of keys.
    """
    where = f"outcome of decision '{claims.decision_id}'"
    opened = table.open_decision(claims.decision_id)
    if opened is not None:
        if (opened.event.keys, opened.event.action_id) != (claims.keys, claims.action_id):
            raise ConflictError(
                f"{where}: it was decided again with another key or arm; send the token of the last decide"
            )
        return None
    if table.closed_decision(claims.decision_id) is not None:
        return None
    if table.is_closed_episode(claims.episode_id):
        raise ConflictError(f"{where}: its episode '{claims.episode_id}' was cancelled; do not send it again")
    if claims.action_id not in table.settings.action_ids:
        raise ConflictError(f"{where}: its arm '{claims.action_id}' is none of table '{claims.table}'")
    if len(claims.keys) != table.chain_length:
        raise ConflictError(
            f"{where}: its token has {len(claims.keys)} keys, table '{claims.table}' counts at {table.chain_length}"
        )
    return RecoveredDecision(episode_id=claims.episode_id, keys=claims.keys, action_id=claims.action_id)


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


def terms_text(reward: float, num_decisions: int, cost: float) -> str:
    """The terms of an outcome, for messages."""
    return f"reward {reward!r}, num_decisions {num_decisions}, cost {cost!r}"
