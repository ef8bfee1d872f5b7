"""How often a learned row's tables took each arm in each context, a state key, and where that taught too little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from memcon.errors import MemconError
from memcon.learning.state_key import KeySchema, key_schema, project, schema_of
from memcon_platform.report.measures import Context, ContextLevel
from memcon_platform.report.protocol import levels
from memcon_platform.report.samples import CellSample

__all__ = ["LEARNED_FROM", "context_levels"]

# Decisions of one table in one context below which it has learned nothing there (learning_value.md 8.3).
LEARNED_FROM = 30


def context_levels(samples: Sequence[CellSample]) -> tuple[ContextLevel, ...]:
    """The contexts of a row, its decisions' own keys first, then the coarser ones that they are pooled over.

    `samples` are those of all cells that share the row's tables. A decision of an unevaluable task is left out: it was
    cancelled and taught nothing.
    """
    pulls: dict[str, Counter[str]] = {}
    tables: set[str] = set()
    for sample in samples:
        kept = sample.evaluated[sample.decided]
        columns = [sample.decisions[name][kept].tolist() for name in ("table", "state_key", "action_id")]
        for table, key, arm in zip(*columns, strict=True):
            pulls.setdefault(key, Counter())[arm] += 1
            tables.add(table)
    if not pulls:
        return ()
    finest = _known_schema(next(iter(pulls)))
    found = [_level(finest, next(iter(pulls)).partition("|")[0], pulls, len(tables))]
    if finest is not None:
        for label in levels(samples[0].cell):
            schema = key_schema(label)
            found.append(_level(schema, schema.label, _projected(pulls, schema), len(tables)))
    return tuple(found)


def _known_schema(key: str) -> KeySchema | None:
    """The schema of a key's text; None for one that another version of memcon wrote."""
    try:
        return schema_of(key)
    except MemconError:
        return None


def _projected(pulls: Mapping[str, Counter[str]], schema: KeySchema) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for key, counts in pulls.items():
        found.setdefault(project(key, schema), Counter()).update(counts)
    return found


def _level(schema: KeySchema | None, label: str, pulls: Mapping[str, Counter[str]], num_tables: int) -> ContextLevel:
    contexts = [
        Context(
            key=key,
            pulls=dict(sorted(counts.items())),
            per_table=counts.total() / num_tables,
            learned=counts.total() / num_tables >= LEARNED_FROM,
        )
        for key, counts in pulls.items()
    ]
    return ContextLevel(
        schema=label,
        fields=tuple(field.name for field in schema.fields) if schema else (),
        num_tables=num_tables,
        contexts=tuple(sorted(contexts, key=lambda one: (-one.count, one.key))),
    )
