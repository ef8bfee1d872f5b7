"""What all shards answer, put together as one: the list of tables, one table whole, and the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["merged_metrics", "merged_tables"]

# Of a listed table: what each shard has some of.
_SUMMED = ("keys", "taken", "credited", "open", "closed", "version")


def merged_tables(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The shards' answers to GET tables as one answer; every key, decision and episode is named once."""
    tables: dict[str, dict[str, Any]] = {}
    for answer in answers:
        for name, table in answer["tables"].items():
            tables[name] = _merged(tables[name], table) if name in tables else dict(table)
    return {"num_shards": len(answers), "tables": dict(sorted(tables.items()))}


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two shards' parts of a table. Keys and decisions lie at one shard each; episodes, at some."""
    merged = dict(one)
    for name, value in other.items():
        mine = merged.get(name)
        if mine is None:
            merged[name] = value
        elif name in _SUMMED and isinstance(value, int):
            merged[name] = mine + value
        elif name == "numbers":
            merged[name] = {**mine, "keys": _in_order({**mine["keys"], **value["keys"]})}
        elif isinstance(value, Mapping) and name != "settings":
            merged[name] = _in_order({**mine, **value})
        elif isinstance(value, list):
            merged[name] = sorted({*mine, *value})
    return merged


def _in_order(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(mapping.items()))


def merged_metrics(pages: Iterable[str]) -> str:
    """Pages in Prometheus' text form as one: each family once, with the samples of all."""
    families: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for page in pages:
        name = ""
        for line in page.splitlines():
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                families.setdefault(name, [line])
            elif line.startswith("# TYPE "):
                families[name][1:] = [line]
            elif line:
                samples.setdefault(name, []).append(line)
    return "".join("\n".join([*head, *samples.get(name, [])]) + "\n" for name, head in families.items())
