"""`memcon report RUN`: the table in the terminal and one self-contained HTML file, from Parquet alone."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from memcon.errors import MemconError
from memcon_platform.cli.arguments import json_option, run_folder
from memcon_platform.config.plan_file import REPORT_FILE
from memcon_platform.objects import is_uri
from memcon_platform.run_store.reader_copy import put_back

__all__ = ["command", "print_report"]


@click.command(name="report", short_help="What a run found: a table here and an HTML file.")
@click.argument("run")
@json_option
def command(run: str, *, as_json: bool) -> None:
    """Success, paired differences, tokens and learning of RUN: a run's folder, its name in runs/, or its URI.

    Reads Parquet alone, prints the table and writes report.html into the run's folder, and into its object store.
    """
    folder = run_folder(run)
    print_report(folder, as_json=as_json)
    if is_uri(run):
        _put_back(run, folder)


def _put_back(uri: str, folder: Path) -> None:
    try:
        put_back(uri, folder, folder / REPORT_FILE)
    except MemconError as error:
        # The report itself is made; a run that is being driven gets its own at its end.
        click.echo(f"note: {REPORT_FILE} is not in the store: {' '.join(str(error).split())}", err=True)


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
