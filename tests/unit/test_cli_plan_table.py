"""`memcon sweep --plan` on a terminal: short, whole, and nothing lost."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from memcon_platform.cli.plan_table import ranges, render
from memcon_platform.config import CellSummary, PlanSummary, load, plan_summary

CONFIGS = Path(__file__).parents[2] / "configs"


def shown(summary: PlanSummary, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(render(summary))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def cell(policy: str, seed: int, *, stream_tasks: tuple[int, ...] = (4,), **shape: str) -> CellSummary:
    return CellSummary(
        cell_id=f"{policy} {seed}",
        label="",
        axes={"benchmark": "household", "policy": policy},
        seed=seed,
        split=shape.get("split", "replicate"),
        table_scope=shape.get("table_scope", "cell"),
        stream_tasks=stream_tasks,
        decisions=11,
    )


def plan(*cells: CellSummary) -> PlanSummary:
    return PlanSummary(run="trial", cells=cells, assumptions=())


@pytest.mark.parametrize(
    ("numbers", "text"), [([3], "3"), ([0, 1, 2], "0-2"), ([2, 0, 1, 7], "0-2, 7"), ([5, 9, 10], "5, 9-10")]
)
def test_numbers_in_a_row_are_a_range(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_the_demo_fits_a_terminal_with_every_policy_whole() -> None:
    lines = shown(plan_summary(load(CONFIGS / "demo.yaml")))

    assert max(map(len, lines)) <= 80
    assert len(lines) < 20
    (shallow, _) = (line.split() for line in lines if "fixed:retrieve_shallow" in line)
    assert shallow == ["household", "metagpt", "fixed:retrieve_shallow", "0-4", "1", "670", "1840"]


def test_seeds_share_a_row_and_what_is_the_same_is_said_once() -> None:
    lines = shown(plan(cell("ucb", 0), cell("uniform", 0), cell("ucb", 1)))

    assert lines[:2] == ["run trial", "in all cells: benchmark household"]
    assert [line.split() for line in lines[5:7]] == [
        ["ucb", "0-1", "1", "8", "22"],
        ["uniform", "0", "1", "4", "11"],
    ]


def test_streams_that_share_otherwise_are_told_apart() -> None:
    two = (4, 4)
    lines = shown(
        plan(
            cell("ucb", 0, stream_tasks=two),
            cell("ucb", 0, stream_tasks=two, table_scope="stream"),
            cell("ucb", 0, stream_tasks=two, split="partition"),
        )
    )

    assert [re.split(" {2,}", line)[1] for line in lines if line.startswith("0")] == [
        "2, 1 table",
        "2, 2 tables",
        "2 parts, 1 table",
    ]


def test_a_label_in_brackets_is_no_markup() -> None:
    assert any("domains=[bold]" in line for line in shown(plan(cell("domains=[bold]", 0), cell("ucb", 0))))
