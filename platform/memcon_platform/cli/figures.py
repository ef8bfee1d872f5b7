"""How a bench prints: `name value unit` a line, ratios with "x", or JSON in the form that all benches share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

__all__ = ["print_figures"]


def print_figures(
    figures: Mapping[str, Mapping[str, Any]],
    ratios: Mapping[str, float],
    *,
    as_json: bool,
    notes: Sequence[str] = (),
) -> None:
    """Print on stdout; `notes` for people only."""
    if as_json:
        click.echo(json.dumps({"figures": figures, "ratios": ratios}, indent=2))
        return
    width = max(map(len, (*figures, *ratios)), default=0)
    for name, figure in figures.items():
        click.echo(f"{name:{width}} {figure['value']:>12} {figure['unit']}")
    for name, ratio in ratios.items():
        click.echo(f"{name:{width}} {ratio:>12} x")
    for note in notes:
        click.echo(f"- {note}")
