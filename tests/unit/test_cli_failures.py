"""What a launch prints of its failed streams: a line a reason, and each stream's own reason beside its file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from memcon.errors import ProviderError
from memcon.protocols import Completion, Message
from memcon.registry import Plugin
from memcon_platform.cli.failures import failure_lines
from memcon_platform.cli.launched import run_plan
from memcon_platform.cli.status import command
from memcon_platform.config import load
from memcon_platform.sweep.status import error_path
from memcon_platform.trajectory import compare
from memcon_workers.backbones.imitator import Imitator, ImitatorConfig
from support.plugged import plugged
from support.shell import SMALL, SMOKE

REFUSED = "endpoint 127.0.0.1:9 refuses the key of OPENAI_API_KEY;\n set another one"


def test_one_stream_is_told_as_ever() -> None:
    assert list(failure_lines([(("c0ffee", 3), "the disk\nis full")])) == [
        "stream 3 of cell c0ffee failed: the disk is full"
    ]


def test_equal_reasons_are_one_line_with_the_count_and_the_first_names() -> None:
    failures = {(f"cell{n}", n): "refused" for n in range(1200)} | {("odd", 0): "the disk is full"}

    refused, odd = failure_lines(failures.items())

    assert refused == (
        "1,200 streams failed (stream 0 of cell cell0, stream 1 of cell cell1, stream 2 of cell cell2 and 1,197 more): "
        "refused"
    )
    assert odd == "stream 0 of cell odd failed: the disk is full"


def test_a_few_are_all_named() -> None:
    (line,) = failure_lines([(("a", 0), "refused"), (("b", 0), "refused")])

    assert line == "2 streams failed (stream 0 of cell a, stream 0 of cell b): refused"


class Refused(Imitator):
    """Plays like the imitator, until its provider refuses us at the ninth call."""

    calls = 0

    async def complete(self, messages: Sequence[Message], *, seed: int) -> Completion:
        Refused.calls += 1
        if Refused.calls > 8:
            raise ProviderError(REFUSED)
        return await super().complete(messages, seed=seed)


def test_a_launch_whose_provider_turns_us_away_says_so_once_and_the_same_command_again_ends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = (*SMALL, "streams=3", "table_scope=stream", f"root={tmp_path}")
    plan, whole = load(SMOKE, [*shape, "run=shaken"]), load(SMOKE, [*shape, "run=whole"])
    names = [(cell.cell_id, stream) for cell in plan.cells for stream in range(cell.streams)]
    refusing: dict[Any, Plugin] = {("backbone", "imitator"): Plugin(config=ImitatorConfig, build=Refused)}
    shown = io.StringIO()

    with plugged(refusing):
        assert run_plan(plan, local=True, console=Console(file=shown, width=300)) == 1

    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith(f"error: {len(names)} streams failed (stream 0 of cell {names[0][0]}, ")
    assert told[0].endswith("refuses the key of OPENAI_API_KEY; set another one")
    assert shown.getvalue().count("refuses the key") == 1
    assert shown.getvalue().count("more streams fail of the same") == 1
    status = CliRunner().invoke(command, [str(plan.run_dir)]).output
    assert f"{len(names)} streams failed (stream 0 of cell {plan.cells[0].label}, " in status
    assert status.count("refuses the key") == 1
    assert {error_path(plan.run_dir, *name).read_text() for name in names} == {f"{REFUSED}\n"}
    for one in (plan, whole):
        assert run_plan(one, local=True, console=Console(quiet=True)) == 0
    assert compare(plan.run_dir, whole.run_dir) == []
