"""`memcon plugins`: what is installed to be named in a config, by which package, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from memcon import registry
from memcon.errors import MemconError
from memcon.registry import Registered
from memcon_platform.cli.arguments import json_option

__all__ = ["command"]

_UNUSABLE = "NOT USABLE: "


@click.command(name="plugins", short_help="List what a config can name, and what cannot be used.")
@click.argument("kind", required=False)
@json_option
def command(kind: str | None, *, as_json: bool) -> None:
    """Every installed plug-in in one line: kind, name, package with version, and what it is.

    One that cannot be used says what is wrong with it, and stops no other. KIND is backbone, benchmark, embedder,
    framework, memory or policy; all by default.
    """
    kinds = (kind,) if kind else registry.KINDS
    rows = [_row(entry, _error(entry)) for one in kinds for entry in registry.registered(one)]
    if kind is None:
        rows += [_row(entry, _stray(entry)) for entry in registry.strays()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for line in _lines(rows):
        click.echo(line)


def _row(entry: Registered, error: str | None) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "name": entry.name,
        "package": entry.package,
        "version": entry.version,
        "entry_point": entry.entry_point,
        "summary": "" if error else registry.plugin(entry.kind, entry.name).summary,
        "error": error,
    }


def _error(entry: Registered) -> str | None:
    # Each is imported on its own: what one package got wrong is that package's line.
    try:
        registry.plugin(entry.kind, entry.name)
    except MemconError as problem:
        return " ".join(str(problem).split())
    return None


def _stray(entry: Registered) -> str:
    kinds = ", ".join(f"memcon.{kind}" for kind in registry.KINDS)
    return f"its entry-point group memcon.{entry.kind} is no kind of plug-in, so no config finds it; allowed: {kinds}"


def _lines(rows: list[dict[str, Any]]) -> Iterable[str]:
    columns = [[row["kind"], row["name"], f"{row['package']} {row['version']}"] for row in rows]
    widths = [max(map(len, column), default=0) for column in zip(*columns, strict=True)]
    for row, texts in zip(rows, columns, strict=True):
        head = "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True))
        told = row["summary"] if row["error"] is None else _UNUSABLE + row["error"]
        yield f"{head}  {told}".rstrip()
    if unusable := sum(row["error"] is not None for row in rows):
        yield f"{unusable} of {len(rows)} cannot be used"
