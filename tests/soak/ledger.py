"""What clients know against what the journal holds: every acknowledged outcome once, and nothing that was not told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from memcon.learning.events import Cancelled, Credited, Event
from memcon.learning.events import Decided as DecidedEvent
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import journal_path
from soak.agent import reward_of
from soak.log import Decided, Ended, Failed, Record, Told

__all__ = ["Ledger", "read_ledger"]

_DUPLICATE = "duplicate"
_SHOWN = 10


@dataclass(slots=True, kw_only=True)
class _Line:
    """What the journal holds of one decision."""

    decided: list[str] = field(default_factory=list)
    credits: list[Credited] = field(default_factory=list)
    cancelled: bool = False

    @property
    def action_id(self) -> str | None:
        if self.decided:
            return self.decided[0]
        recovered = self.credits[0].recovered if self.credits else None
        return None if recovered is None else recovered.action_id


class Ledger:
    """The decisions of one table in the journals of all shards."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._lines: dict[str, _Line] = {}
        for event in events:
            match event:
                case DecidedEvent():
                    self._line(event.decision_id).decided.append(event.action_id)
                case Credited():
                    self._line(event.decision_id).credits.append(event)
                case Cancelled():
                    self._line(event.decision_id).cancelled = True
                case _:
                    continue

    @property
    def credited(self) -> int:
        """Outcomes that were learned."""
        return sum(len(line.credits) for line in self._lines.values())

    @property
    def recovered(self) -> int:
        """Those of them whose decide had died with a process."""
        return sum(credit.recovered is not None for line in self._lines.values() for credit in line.credits)

    def problems(self) -> list[str]:
        """What no history of clients can explain."""
        found = []
        for decision_id, line in self._lines.items():
            recovered = [credit for credit in line.credits if credit.recovered is not None]
            if len(line.credits) > 1:
                found.append(f"decision {decision_id} is credited {len(line.credits)} times")
            if len(line.decided) + len(recovered) > 1:
                found.append(f"decision {decision_id} is counted {len(line.decided) + len(recovered)} times")
            if line.cancelled:
                found.append(f"decision {decision_id} is cancelled, though no client lost patience")
            if any(credit.reward != reward_of(decision_id) for credit in line.credits):
                found.append(f"decision {decision_id} has a reward that nobody told")
        return _shortened(found)

    def problems_of(self, client: str, records: Sequence[Record]) -> list[str]:
        """What a client's log says and this ledger does not; and what it should not have met."""
        chosen = {record.decision_id: record.action_id for record in records if isinstance(record, Decided)}
        found = [problem for record in records for problem in self._problems_of(record, chosen)]
        found += _repeated_badly(records)
        if not isinstance(records[-1] if records else None, Ended):
            found.append("it did not end in order")
        return _shortened([f"{client}: {problem}" for problem in found])

    def _problems_of(self, record: Record, chosen: Mapping[str, str]) -> list[str]:
        match record:
            case Failed():
                return [f"{record.what} of {record.decision_id} failed: {record.error}"]
            case Decided(is_fallback=True):
                return [f"decision {record.decision_id} was given up for the fallback"]
            case Ended():
                waiting = [f"{record.waiting} messages were never delivered"] if record.waiting else []
                return [*waiting, *(f"refused: {reason}" for reason in record.refused)]
            case Told():
                return self._problems_of_told(record, chosen)
            case _:
                return []

    def _problems_of_told(self, told: Told, chosen: Mapping[str, str]) -> list[str]:
        line = self._lines.get(told.decision_id, _Line())
        if not line.credits:
            return [f"the outcome of {told.decision_id} was acknowledged ({told.status}) and is not in the journal"]
        credit = line.credits[0]
        mine = (told.reward, told.position, told.num_decisions, chosen.get(told.decision_id))
        theirs = (credit.reward, credit.position, credit.num_decisions, line.action_id)
        return [] if mine == theirs else [f"outcome of {told.decision_id}: told {mine}, the journal holds {theirs}"]

    def _line(self, decision_id: str) -> _Line:
        return self._lines.setdefault(decision_id, _Line())


def read_ledger(directory: Path, num_shards: int, table: str) -> Ledger:
    """The ledger of `table`; a server may run beside it."""

    def events() -> Iterable[Event]:
        for shard in range(num_shards):
            path = journal_path(directory, shard)
            with closing(SqliteJournal(path, shard=shard, num_shards=num_shards, read_only=True)) as journal:
                yield from (event for _, event in journal.read() if event.table == table)

    return Ledger(events())


def _repeated_badly(records: Sequence[Record]) -> list[str]:
    """After one acknowledgement by the owner the next ones are `duplicate`."""
    seen: Counter[str] = Counter()
    found = []
    for record in records:
        if isinstance(record, Told):
            if seen[record.decision_id] and record.status != _DUPLICATE:
                found.append(f"a repeated outcome of {record.decision_id} was answered '{record.status}'")
            seen[record.decision_id] += 1
    return found


def _shortened(problems: list[str]) -> list[str]:
    more = len(problems) - _SHOWN
    return problems if more <= 0 else [*problems[:_SHOWN], f"... and {more} more like these"]
