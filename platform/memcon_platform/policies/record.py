"""One table as a value, from wherever it was read: a server, a policy folder, or an exported file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memcon import codec
from memcon.errors import MemconError, UnavailableError
from memcon.learning import state_key
from memcon.learning.q_table import Numbers
from memcon.policy_types import LearningSettings

__all__ = ["TableRecord", "record_of_dump"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """What one table has learned at one moment."""

    table: str
    settings: LearningSettings
    # Where its first numbers came from; "" = it started with the priors.
    source: str
    # Key -> arm -> cell, as `memcon.learning.q_table.QTable.dump` gives them.
    numbers: Numbers
    # Decisions without an outcome.
    open: int
    # Events of the table, over all shards.
    version: int

    def totals(self) -> tuple[int, int]:
        """Decisions taken and decisions credited: each once, though it counts at every key of its chain."""
        schemas = state_key.chain_schemas(self.settings)
        rows = [
            arms
            for key, arms in self.numbers.items()
            # The text of a key is the caller's where it has no coarser ones.
            if len(schemas) == 1 or state_key.schema_of(key) == schemas[0]
        ]
        taken, credited = (sum(int(cell[count]) for arms in rows for cell in arms.values()) for count in _COUNTS)
        return taken, credited


_COUNTS = ("taken", "credited")


def record_of_dump(dump: Mapping[str, Any], *, version: int, where: str) -> TableRecord:
    """The table whose `memcon.learning.table.PolicyTable.dump` this is, its shards put together.

    Raises:
        UnavailableError: it has not the form of one; `where` gave it.
    """
    try:
        return TableRecord(
            table=dump["table"],
            settings=codec.decode(LearningSettings, dump["settings"]),
            source=dump.get("imported", ""),
            numbers=dump["numbers"]["keys"],
            open=len(dump["open"]),
            version=version,
        )
    except (MemconError, KeyError, TypeError, AttributeError) as error:
        raise UnavailableError(
            f"{where} gives a table without the form of this memcon's ({type(error).__name__}: {error}); use the "
            "memcon that serves it"
        ) from error
