"""`memcon report RUN`: the table in the terminal and one self-contained HTML file, from Parquet alone."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

__all__ = ["REPORT_FILE", "command", "print_report"]

REPORT_FILE = "report.html"


@click.command(name="report")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: Path, *, as_json: bool) -> None:
    """Report the folder RUN: success, paired differences, tokens, learning; writes RUN/report.html."""
    print_report(run, as_json=as_json)


def print_report(run_dir: Path, *, as_json: bool) -> None:
    """Print the report of a run and write its HTML file.

    Raises:
        NotFoundError: there is no run, or nothing to report yet.
        DamagedFileError: a file of the run cannot be trusted.
    """
    from memcon_platform.report import build, html, json_form, terminal

    data = build(run_dir)
    path = html.write(data, run_dir / REPORT_FILE)
    if as_json:
        click.echo(json.dumps(json_form.to_json(data), indent=2))
        return
    Console().print(terminal.render(data))
    click.echo(f"report: {path}")
