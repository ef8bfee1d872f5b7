"""Ledger: what the journal says of each decision, held against the trajectories that the workers wrote.

What an estimate from the logs rests on is compared: key, arm, propensity, tie set, reward and credit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memcon.errors import NotFoundError
from memcon.learning import credit
from memcon.learning.events import Credited, Decided, Event
from memcon.learning.shard import PolicyShard
from memcon.policy_types import DecideRequest
from memcon_policy_server.journal.sqlite_journal import Row

__all__ = ["Ledger"]

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "episodes": ("episode_id", "reward"),
    "decisions": (
        "decision_id",
        "episode_id",
        "state_key",
        "action_id",
        "propensity",
        "tie_set",
        "forced",
        "credit",
        "table",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    row: Row
    # Column of `decisions` -> what the journal says; a recovered decision has key and arm only.
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Credit:
    row: Row
    reward: float
    # The discounted return of Eq. 7.
    credit: float


class Ledger:
    """Choices and credits by decision id, gathered while the journals are folded."""

    def __init__(self) -> None:
        self._taken: dict[str, _Taken] = {}
        self._credits: dict[str, _Credit] = {}

    def add(self, row: Row, event: Event, core: PolicyShard) -> None:
        """Note an event that `core` has just folded."""
        match event:
            case Decided():
                self._taken[event.decision_id] = _Taken(row=row, columns=_choice(event, core))
            case Credited():
                self._add_credit(row, event, core)

    def differences(self, run_dir: Path, *, complete: bool) -> Iterator[str]:
        """One line for each decision of the run's Parquet that the journal tells otherwise; none without Parquet.

        `complete`: the journals were read to an end at which their owners had stopped, so that a credit which only
        Parquet knows was lost, and is not on its way.

        Raises:
            MemconError: a Parquet file cannot be trusted.
        """
        from memcon_platform.trajectory import read_run

        try:
            tables = read_run(run_dir, tables=("episodes", "decisions"), columns=_COLUMNS)
        except NotFoundError:
            return
        rewards = {row["episode_id"]: row["reward"] for row in _rows(tables.episodes)}
        for decision in _rows(tables.decisions):
            # A decision of no table was the memory's own default and never reached an owner.
            if decision["table"]:
                yield from self._choice_differences(decision)
                yield from self._credit_differences(decision, rewards, complete=complete)

    def _add_credit(self, row: Row, event: Credited, core: PolicyShard) -> None:
        target = credit.discounted(
            event.reward,
            gamma=core.settings(event.table).gamma,
            position=event.position,
            num_decisions=event.num_decisions,
            cost=event.cost,
        )
        self._credits[event.decision_id] = _Credit(row=row, reward=event.reward, credit=target)
        if event.recovered is not None:
            known = {"state_key": event.recovered.keys[0], "action_id": event.recovered.action_id}
            self._taken[event.decision_id] = _Taken(row=row, columns=known)

    def _choice_differences(self, decision: Mapping[str, Any]) -> Iterator[str]:
        taken = self._taken.get(decision["decision_id"])
        if taken is None:
            return
        for column, told in taken.columns.items():
            if decision[column] != told:
                written = decision[column]
                yield f"{taken.row.name}: the journal gives {column} {told!r}, the run's Parquet {written!r}"

    def _credit_differences(
        self, decision: Mapping[str, Any], rewards: Mapping[str, float | None], *, complete: bool
    ) -> Iterator[str]:
        name, written = decision["decision_id"], decision["credit"]
        credited = self._credits.get(name)
        if decision["episode_id"] not in rewards:
            yield f"decision {name}: the run's Parquet has no episode {decision['episode_id']}"
        elif credited is None:
            if complete and written is not None:
                yield f"decision {name}: the run's Parquet has credit {written!r}, no journal has one"
        elif credited.reward != rewards[decision["episode_id"]]:
            reward = rewards[decision["episode_id"]]
            yield f"{credited.row.name}: the journal has reward {credited.reward!r}, the run's Parquet {reward!r}"
        elif credited.credit != written:
            yield f"{credited.row.name}: the journal gives credit {credited.credit!r}, the run's Parquet {written!r}"


def _choice(event: Decided, core: PolicyShard) -> dict[str, Any]:
    """What the owner answered: a decision that is open gets the same answer when it is asked for again."""
    reply = core.decide(
        DecideRequest(
            table=event.table,
            decision_id=event.decision_id,
            episode_id=event.episode_id,
            position=event.position,
            keys=event.keys,
            draw=event.draw,
            allowed=event.allowed,
        )
    ).reply
    return {
        "state_key": event.keys[0],
        "action_id": reply.action_id,
        "propensity": reply.propensity,
        "tie_set": list(reply.tie_set),
        "forced": reply.forced,
    }


def _rows(table: Any) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches():
        yield from batch.to_pylist()
