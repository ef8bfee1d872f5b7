"""What the tables of learned rows held when they were last served: q, taken and bonus by state key and arm.

Reads policy/served/shard-*.json, which a launch writes when it ends, and folds the numbers through the very table and
rule that served them, so that a bonus is what the rule computes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memcon import codec
from memcon.errors import MemconError
from memcon.learning.events import Created, Imported
from memcon.learning.state_key import chain_schemas
from memcon.learning.table import PolicyTable
from memcon.policy_types import LearningSettings
from memcon_platform.report.measures import HeatCell, HeatMap, HeatRow

__all__ = ["MAX_ROWS", "ServedTables", "read_served"]

# More rows than these are not read by anyone.
MAX_ROWS = 40
# Some of the rows are kept for each coarser level of a chain, whose keys are few and say most.
_COARSE_ROWS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """A table as its shards wrote it."""

    settings: LearningSettings
    # Key -> arm -> numbers, as `memcon.learning.q_table.QTable.dump` gives them.
    numbers: dict[str, Any]
    # Where its first numbers came from, "" when nowhere.
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTables:
    """All served tables of a run."""

    # By name.
    tables: Mapping[str, _Served]
    # Why some or all are missing; "" when none should be.
    problem: str

    def heat_map(self, seeds: Mapping[str, int]) -> HeatMap:
        """The table with the most decisions among those named in `seeds` (table -> the lowest seed that used it)."""
        known = [name for name in seeds if name in self.tables]
        if not known:
            return HeatMap(missing=self.problem or "none of its tables was served yet")
        name = max(known, key=lambda name: (_decisions(self.tables[name].numbers.values()), -seeds[name]))
        try:
            return _heat_map(name, self.tables[name], seed=seeds[name], other_tables=len(seeds) - 1)
        except MemconError as error:
            return HeatMap(missing=f"table {name}: {error}")


def read_served(run_dir: Path) -> ServedTables:
    """The served tables of a run; what is missing or broken is told by `ServedTables.problem`, never raised."""
    files = sorted((run_dir / "policy" / "served").glob("shard-*.json"))
    if not files:
        return ServedTables(tables={}, problem="no launch of this run has ended yet, so that no table was written")
    tables: dict[str, _Served] = {}
    for path in files:
        try:
            for name, part in _tables(path):
                known = tables.setdefault(name, part)
                known.numbers.update(part.numbers)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, MemconError) as error:
            # One line: it becomes a note of the report.
            reason = " ".join(str(error).split())
            return ServedTables(tables={}, problem=f"{path} cannot be read ({type(error).__name__}: {reason})")
    return ServedTables(tables=tables, problem="")


def _tables(path: Path) -> Iterator[tuple[str, _Served]]:
    for name, table in json.loads(path.read_text(encoding="utf-8"))["tables"].items():
        settings = codec.decode(LearningSettings, table["settings"])
        source = table.get("imported", "")
        yield name, _Served(settings=settings, numbers=dict(table["numbers"]["keys"]), source=source)


def _heat_map(name: str, served: _Served, *, seed: int, other_tables: int) -> HeatMap:
    table = PolicyTable(Created(table=name, settings=served.settings))
    table.apply(Imported(table=name, source="served", numbers=served.numbers), received=0)
    sigma = served.settings.rule_parameters.get("sigma")
    rows = [_row(key, arms, sigma) for key, arms in table.inspect().items()]
    schemas = [schema.label for schema in reversed(chain_schemas(served.settings))]
    shown = _biggest(rows, schemas)
    left = [row for row in rows if row not in shown]
    return HeatMap(
        table=name,
        seed=seed,
        rule=served.settings.rule,
        fingerprint=served.settings.fingerprint,
        source=served.source,
        arms=served.settings.action_ids,
        rows=shown,
        other_keys=len(left),
        other_decisions=sum(row.taken for row in left if row.schema == schemas[-1]),
        other_tables=other_tables,
    )


def _row(key: str, arms: Mapping[str, Mapping[str, float | int | None]], sigma: float | str | None) -> HeatRow:
    cells = [
        HeatCell(
            q=float(numbers["q"] or 0.0),
            taken=int(numbers["taken"] or 0),
            bonus=numbers["bonus"],
            mean=numbers.get("mean"),
            deviation=_deviation(numbers.get("effective_count"), sigma),
        )
        for numbers in arms.values()
    ]
    return HeatRow(key=key, schema=key.partition("|")[0], cells=tuple(cells))


def _deviation(effective_count: float | None, sigma: float | str | None) -> float | None:
    """Standard deviation of a shrunk mean whose returns have the deviation `sigma`."""
    if not isinstance(sigma, float | int) or not effective_count:
        return None
    return sigma / math.sqrt(effective_count)


def _biggest(rows: Sequence[HeatRow], schemas: Sequence[str]) -> tuple[HeatRow, ...]:
    """At most MAX_ROWS of `rows`, schema by schema, in each those with the most decisions first."""
    shown: list[HeatRow] = []
    for place, schema in enumerate(schemas, start=1):
        room = MAX_ROWS - len(shown) if place == len(schemas) else min(_COARSE_ROWS, MAX_ROWS - len(shown))
        mine = [row for row in rows if row.schema == schema]
        shown += sorted(mine, key=lambda row: (-row.taken, row.key))[:room]
    return tuple(shown)


def _decisions(keys: Collection[Mapping[str, Mapping[str, int]]]) -> int:
    return sum(int(cell["taken"]) for arms in keys for cell in arms.values())
