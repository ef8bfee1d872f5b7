"""The tables of one shard as the fold of its events, and as a state that a snapshot keeps. No requests, no replies.

A live shard (`memcon.learning.shard`) applies its own events through the same fold, so that what was journaled gives
the same bits again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcon import ids
from memcon.errors import ConfigError, InvariantError, MemconError, NotFoundError
from memcon.learning import transfer
from memcon.learning.events import Created, Credited, Decided, Event, Imported
from memcon.learning.table import PolicyTable
from memcon.policy_types import LearningSettings

__all__ = ["ShardTables"]

# Of the form that `ShardTables.state` gives.
_STATE_VERSION = 1


class ShardTables:
    """Of every table the part whose keys hash to `shard` out of `num_shards`.

    Raises:
        ConfigError: `shard` is outside [0, num_shards).
    """

    def __init__(self, shard: int, num_shards: int) -> None:
        if not 0 <= shard < num_shards:
            raise ConfigError(
                f"policy shard: shard = {shard}, num_shards = {num_shards}; expected 0 <= shard < num_shards"
            )
        self._shard, self._num_shards = shard, num_shards
        self._tables: dict[str, PolicyTable] = {}
        # Decisions taken here so far, over all tables.
        self._received = 0

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

    def dump_keys(self, table: str, text: str) -> dict[str, Any]:
        """Of `dump` the numbers of the key `text`, or of all keys that hold it, with their coarser keys.

        Raises:
            NotFoundError: no such table.
        """
        return self._table(table).dump_keys(text)

    def inspect(self, table: str) -> dict[str, dict[str, dict[str, float | int | None]]]:
        """Per key and arm: q, taken, credited, bonus and score (MC-36); None where infinite or absent.

        Raises:
            NotFoundError: no such table.
        """
        return self._table(table).inspect()

    def settings(self, table: str) -> LearningSettings:
        """The settings that the table has now.

        Raises:
            NotFoundError: no such table.
        """
        return self._table(table).settings

    def num_keys(self, table: str) -> int:
        """How many keys of the table, of all levels, have numbers here.

        Raises:
            NotFoundError: no such table.
        """
        return self._table(table).num_keys

    def open_ids(self, table: str) -> list[str]:
        """Ids of the table's open decisions, oldest first.

        Raises:
            NotFoundError: no such table.
        """
        return self._table(table).open_ids()

    def counts(self, table: str) -> dict[str, int]:
        """What the table holds here: "keys", "open" and "closed" decisions, and its "version".

        Raises:
            NotFoundError: no such table.
        """
        return self._table(table).counts()

    def totals(self, table: str) -> dict[str, int]:
        """Decisions "taken" and "credited" here; a sum over all keys, unlike `counts`.

        Raises:
            NotFoundError: no such table.
        """
        taken, credited = self._table(table).totals()
        return {"taken": taken, "credited": credited}

    # --- the state as a whole ---------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that `load` needs to go on from here, as values that msgpack takes."""
        state = self.captured()
        return {**state, "tables": {name: {**t, "open": list(t["open"])} for name, t in state["tables"].items()}}

    def captured(self, only: str | None = None) -> dict[str, Any]:
        """The `state` of this moment, to be read later and in any thread: containers are copied here, and no more.

        The open decisions of a table are a sequence whose items are made when they are read. With `only` of this table
        alone.

        Raises:
            NotFoundError: no such table.
        """
        tables = self._tables if only is None else {only: self._table(only)}
        return {
            "version": _STATE_VERSION,
            "shard": self._shard,
            "num_shards": self._num_shards,
            "received": self._received,
            "tables": {name: table.captured() for name, table in tables.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state` of the same shard, as if this fresh one had folded all events before it.

        Raises:
            InvariantError: this shard is not fresh, or `state` is of another shard, another version, or no state at
                all. The shard stays as it was.
        """
        try:
            found = (state["version"], state["shard"], state["num_shards"], len(self._tables))
            tables = {} if found != self._fresh else {n: PolicyTable.load(n, t) for n, t in state["tables"].items()}
            received = int(state["received"])
        except (MemconError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InvariantError(
                f"loading a state into shard {self._shard} of {self._num_shards}: {type(error).__name__}: {error}; "
                "fold the journal instead"
            ) from error
        if found != self._fresh:
            raise InvariantError(
                "loading a state (version, shard, num_shards, tables already here): "
                f"got {found}, expected {self._fresh}; fold the journal instead"
            )
        self._tables, self._received = tables, received

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _fresh(self) -> tuple[int, int, int, int]:
        return _STATE_VERSION, self._shard, self._num_shards, 0

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
