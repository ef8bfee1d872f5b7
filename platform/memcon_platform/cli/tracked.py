"""The tracking of a launch, opened when its plan is written and closed however the launch ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from memcon_platform.config.plan import RunPlan
from memcon_platform.config.plan_file import REPORT_FILE
from memcon_platform.sweep.tracking import SweepTracking

__all__ = ["say", "tracked"]


@contextmanager
def tracked(plan: RunPlan, console: Console) -> Iterator[Callable[[RunPlan, bool], SweepTracking]]:
    """Gives what makes the launch's observer; what it holds reaches MLflow when the block ends, or is told missing."""
    opened: list[SweepTracking] = []

    def observe(written: RunPlan, resumed: bool) -> SweepTracking:
        opened.append(SweepTracking(written, resumed=resumed))
        return opened[-1]

    try:
        yield observe
    finally:
        for tracking in opened:
            end = tracking.close(plan.run_dir / REPORT_FILE)
            if end.problem or end.dropped:
                missing = f"tracking: {end.dropped} tasks did not reach MLflow ({end.problem}); {end.remedy}"
                say(console, missing, style="yellow")


def say(console: Console, text: str, style: str = "") -> None:
    """One line, whole, so that a path in it can be copied."""
    console.print(text, style=style, soft_wrap=True, highlight=False, markup=False)
