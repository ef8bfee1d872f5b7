"""Ledger: what the journal says of each decision, held against the trajectories that the workers wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memcon.errors import NotFoundError
from memcon.learning import credit
from memcon.learning.events import Created, Credited, Decided, Event
from memcon_policy_server.journal import Row

__all__ = ["Ledger"]

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "episodes": ("episode_id", "reward"),
    "decisions": ("decision_id", "episode_id", "action_id", "credit", "table"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Credit:
    row: Row
    reward: float
    # The discounted return of Eq. 7.
    credit: float


class Ledger:
    """Arms and credits by decision id, gathered while the journals are folded."""

    def __init__(self) -> None:
        self._gamma: dict[str, float] = {}
        self._arms: dict[str, tuple[Row, str]] = {}
        self._credits: dict[str, _Credit] = {}

    def add(self, row: Row, event: Event) -> None:
        """Note one folded event."""
        match event:
            case Created():
                self._gamma[event.table] = event.settings.gamma
            case Decided():
                self._arms[event.decision_id] = (row, event.action_id)
            case Credited():
                self._add_credit(row, event)

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
                yield from self._compare(decision, rewards[decision["episode_id"]], complete=complete)

    def _add_credit(self, row: Row, event: Credited) -> None:
        target = credit.discounted(
            event.reward,
            gamma=self._gamma[event.table],
            position=event.position,
            num_decisions=event.num_decisions,
            cost=event.cost,
        )
        self._credits[event.decision_id] = _Credit(row=row, reward=event.reward, credit=target)
        if event.recovered is not None:
            self._arms[event.decision_id] = (row, event.recovered.action_id)

    def _compare(self, decision: Mapping[str, Any], reward: float | None, *, complete: bool) -> Iterator[str]:
        name = decision["decision_id"]
        taken, credited = self._arms.get(name), self._credits.get(name)
        if taken is not None and taken[1] != decision["action_id"]:
            yield f"{taken[0].name}: the journal has arm {taken[1]}, the run's Parquet {decision['action_id']}"
        if credited is None:
            if complete and decision["credit"] is not None:
                yield f"decision {name}: the run's Parquet has credit {decision['credit']!r}, no journal has one"
        elif credited.reward != reward:
            yield f"{credited.row.name}: the journal has reward {credited.reward!r}, the run's Parquet {reward!r}"
        elif credited.credit != decision["credit"]:
            written = decision["credit"]
            yield f"{credited.row.name}: the journal gives credit {credited.credit!r}, the run's Parquet {written!r}"


def _rows(table: Any) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches():
        yield from batch.to_pylist()
