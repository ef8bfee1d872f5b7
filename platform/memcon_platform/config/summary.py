"""What a plan will do, counted without running it: `memcon sweep --plan`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memcon_platform.config.plan import PLUGIN_AXES, Cell, RunPlan
from memcon_platform.config.policies import policy_learning
from memcon_platform.config.tasks import horizons

__all__ = ["CellSummary", "PlanSummary", "plan_summary"]

# Measured mean of decisions a task at task start, phase changes and stuck, with the imitator backbone: 2.75 on the
# household tasks, 2.5 on the PDDL tasks.
_DECISIONS_PER_TASK = 2.75


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """One cell of the plan in numbers."""

    cell_id: str
    label: str
    # Label of each plug-in axis, with all parameters that differ from their defaults.
    axes: Mapping[str, str]
    seed: int
    split: str
    table_scope: str
    # Tasks of each stream.
    stream_tasks: tuple[int, ...]
    # Expected policy decisions of all tasks.
    decisions: int

    @property
    def tasks(self) -> int:
        """Tasks of all streams together."""
        return sum(self.stream_tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """The whole plan in numbers."""

    run: str
    cells: tuple[CellSummary, ...]
    # One sentence each: how the expected decisions were estimated.
    assumptions: tuple[str, ...]

    @property
    def streams(self) -> int:
        """Streams of all cells."""
        return sum(len(cell.stream_tasks) for cell in self.cells)

    @property
    def tasks(self) -> int:
        """Tasks of all cells."""
        return sum(cell.tasks for cell in self.cells)

    @property
    def decisions(self) -> int:
        """Expected policy decisions of all cells."""
        return sum(cell.decisions for cell in self.cells)


def plan_summary(plan: RunPlan) -> PlanSummary:
    """Cells, streams, tasks and expected decisions of `plan`; runs nothing.

    Raises:
        ConfigError: a benchmark cannot be built.
    """
    cells = tuple(
        CellSummary(
            cell_id=cell.cell_id,
            label=cell.label,
            axes={axis: cell.entry(axis).label for axis in PLUGIN_AXES},
            seed=cell.seed,
            split=cell.split,
            table_scope=cell.table_scope,
            stream_tasks=cell.stream_tasks,
            decisions=_decisions(cell),
        )
        for cell in plan.cells
    )
    return PlanSummary(run=plan.run, cells=cells, assumptions=tuple(_assumptions(plan.cells)))


def _decisions(cell: Cell) -> int:
    if not _decides(cell):
        return 0
    if cell.control.decision_points == "start":
        return cell.num_tasks
    # Every stream of a replicated cell plays all tasks; the streams of a partitioned one play them once together.
    most = sum(horizons(cell.benchmark)[: cell.limit]) * (cell.streams if cell.split == "replicate" else 1)
    if cell.control.decision_points == "every_step":
        return most
    return min(round(_DECISIONS_PER_TASK * sum(cell.stream_tasks)), most)


def _assumptions(cells: Iterable[Cell]) -> list[str]:
    kinds = {cell.control.decision_points if _decides(cell) else "none" for cell in cells}
    sentences = {
        "events": f"decision_points events: {_DECISIONS_PER_TASK:g} decisions a task, as measured with the imitator "
        "(task start, phase changes, stuck; at least 1)",
        "every_step": "decision_points every_step: one decision a step, every task at its full length",
        "start": "decision_points start: one decision a task",
        "none": "policy none: no decision, the backend's default retrieval once a task",
    }
    return [text for kind, text in sentences.items() if kind in kinds]


def _decides(cell: Cell) -> bool:
    """The cell's policy has a table that is asked."""
    return policy_learning(cell.policy) is not None
