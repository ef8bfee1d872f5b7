"""How often a learned row's tables took each arm in each context, a state key, and where that taught too little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from memcon.errors import MemconError
from memcon.learning.state_key import KeySchema, key_schema, project, schema_of
from memcon_platform.report.conventions import LEARNED_FROM
from memcon_platform.report.measures import Context, ContextLevel
from memcon_platform.report.protocol import levels
from memcon_platform.report.samples import CellSample

__all__ = ["context_levels"]

# State key -> table -> arm -> decisions.
_Pulls: TypeAlias = dict[str, dict[str, Counter[str]]]


def context_levels(samples: Sequence[CellSample]) -> tuple[ContextLevel, ...]:
    """The contexts of a row, its decisions' own keys first, then the coarser ones that they are pooled over.

    `samples` are those of all cells that share the row's tables. A decision of an unevaluable task is left out: it was
    cancelled and taught nothing.
    """
    pulls: _Pulls = {}
    for sample in samples:
        kept = sample.evaluated[sample.decided]
        columns = [sample.decisions[name][kept].tolist() for name in ("table", "state_key", "action_id")]
        for table, key, arm in zip(*columns, strict=True):
            pulls.setdefault(key, {}).setdefault(table, Counter())[arm] += 1
    if not pulls:
        return ()
    num_tables = len({table for tables in pulls.values() for table in tables})
    finest = _known_schema(next(iter(pulls)))
    found = [_level(finest, next(iter(pulls)).partition("|")[0], pulls, num_tables)]
    if finest is not None:
        for label in levels(samples[0].cell):
            schema = key_schema(label)
            found.append(_level(schema, schema.label, _projected(pulls, schema), num_tables))
    return tuple(found)


def _known_schema(key: str) -> KeySchema | None:
    """The schema of a key's text; None for one that another version of memcon wrote."""
    try:
        return schema_of(key)
    except MemconError:
        return None


def _projected(pulls: _Pulls, schema: KeySchema) -> _Pulls:
    found: _Pulls = {}
    for key, tables in pulls.items():
        coarse = found.setdefault(project(key, schema), {})
        for table, counts in tables.items():
            coarse.setdefault(table, Counter()).update(counts)
    return found


def _level(schema: KeySchema | None, label: str, pulls: _Pulls, num_tables: int) -> ContextLevel:
    contexts = [_context(key, tables) for key, tables in pulls.items()]
    learned = [count for tables in pulls.values() for count in _sizes(tables) if count >= LEARNED_FROM]
    return ContextLevel(
        schema=label,
        fields=tuple(field.name for field in schema.fields) if schema else (),
        num_tables=num_tables,
        learned_share=sum(learned) / sum(one.count for one in contexts),
        contexts=tuple(sorted(contexts, key=lambda one: (-one.per_table, one.key))),
    )


def _context(key: str, tables: Mapping[str, Counter[str]]) -> Context:
    counts: Counter[str] = Counter()
    for table in tables.values():
        counts.update(table)
    return Context(
        key=key,
        tables=len(tables),
        count=counts.total(),
        per_table=counts.total() / len(tables),
        by_arm={arm: count / len(tables) for arm, count in sorted(counts.items())},
        not_learned=sum(count < LEARNED_FROM for count in _sizes(tables)) / len(tables),
    )


def _sizes(tables: Mapping[str, Counter[str]]) -> list[int]:
    """Decisions of each table."""
    return [counts.total() for counts in tables.values()]
