"""One table as a value, from wherever it was read: a server, a policy folder, or an exported file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from memcon import codec
from memcon.errors import MemconError, UnavailableError
from memcon.learning import state_key
from memcon.learning.q_table import Numbers
from memcon.policy_types import LearningSettings

__all__ = ["TableRecord", "TableSummary", "record_of_dump", "summary_of", "summary_of_listed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """What a list says of one table: all but its numbers."""

    table: str
    settings: LearningSettings
    # Of all levels.
    keys: int
    # Decisions, each once.
    taken: int
    credited: int
    # Decisions without an outcome.
    open: int
    # Events of the table, over all shards.
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """What one table has learned at one moment; where some keys were asked for, the numbers are of those alone."""

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
_SIZES = ("keys", "taken", "credited", "open", "version")


def summary_of(table: str, settings: LearningSettings, sizes: Mapping[str, int]) -> TableSummary:
    """The table that has `sizes`, as `PolicyShard.counts` and `totals` name them, over all shards."""
    return TableSummary(table=table, settings=settings, **{name: int(sizes[name]) for name in _SIZES})


def summary_of_listed(table: str, listed: Mapping[str, Any], *, where: str) -> TableSummary:
    """The table of which an owner's list says `listed`, its shards put together.

    Raises:
        UnavailableError: it has not the form of one; `where` gave it.
    """
    with _known_form(where):
        return summary_of(table, codec.decode(LearningSettings, listed["settings"]), listed)


def record_of_dump(dump: Mapping[str, Any], summary: TableSummary, *, where: str) -> TableRecord:
    """The table whose `memcon.learning.table.PolicyTable.dump` (or `dump_keys`) this is, its shards put together.

    Raises:
        UnavailableError: it has not the form of one; `where` gave it.
    """
    with _known_form(where):
        return TableRecord(
            table=dump["table"],
            settings=codec.decode(LearningSettings, dump["settings"]),
            source=dump.get("imported", ""),
            numbers=dump["numbers"]["keys"],
            open=len(dump["open"]) if "open" in dump else summary.open,
            # A dump does not tell it: where events go on, the summary's is a little older.
            version=summary.version,
        )


@contextmanager
def _known_form(where: str) -> Iterator[None]:
    try:
        yield
    except (MemconError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnavailableError(
            f"{where} gives a table without the form of this memcon's ({type(error).__name__}: {error}); use the "
            "memcon that serves it"
        ) from error
