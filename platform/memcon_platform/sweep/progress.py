"""Live progress: one bar on a terminal, one plain line now and then in a log file."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.text import Text

from memcon.protocols import Clock
from memcon_workers.spec import TaskEnded

__all__ = ["Progress", "Snapshot"]

# Seconds between two lines in a log, and between two frames on a terminal.
_LINE_EVERY_S = 10.0
_FRAME_EVERY_S = 0.25
_BAR_WIDTH = 24


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """Counts of a running sweep."""

    num_cells: int
    num_tasks: int
    cells_done: int = 0
    # Ended before this launch, and in it.
    tasks_before: int = 0
    tasks_now: int = 0
    # Ended by workers that died before they could tell how.
    tasks_untold: int = 0
    success: int = 0
    unevaluable: int = 0
    tokens: int = 0
    restarts: int = 0

    @property
    def tasks_done(self) -> int:
        """Ended tasks of the plan."""
        return self.tasks_before + self.tasks_now + self.tasks_untold

    def line(self, elapsed_s: float) -> str:
        """One line: cells, tasks, rate, success so far, tokens, time left."""
        rate = self.tasks_now / elapsed_s if elapsed_s > 0 else 0.0
        left = self.num_tasks - self.tasks_done
        evaluable = self.tasks_now - self.unevaluable
        parts = [
            f"cells {self.cells_done}/{self.num_cells}",
            f"tasks {self.tasks_done}/{self.num_tasks} ({rate:.1f}/s)",
            f"success {self.success / evaluable:.0%}" if evaluable else "success -",
            f"{_short(self.tokens)} tokens",
            f"ETA {_duration(left / rate)}" if rate > 0 else "ETA -",
        ]
        if self.unevaluable:
            parts.append(f"{self.unevaluable} unevaluable")
        if self.restarts:
            parts.append(f"{self.restarts} worker restarts")
        return " · ".join(parts)


class Progress:
    """Shows a `Snapshot` as it changes."""

    def __init__(self, console: Console, clock: Clock, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._console, self._clock = console, clock
        self._start = self._shown_at = clock.monotonic()
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(self._frame(), console=console, auto_refresh=False, transient=True)
            self._live.start()

    def task_ended(self, task: TaskEnded) -> None:
        """Count one task."""
        snapshot = self.snapshot
        snapshot.tasks_now += 1
        snapshot.success += task.outcome_class == "success"
        snapshot.unevaluable += task.outcome_class == "unevaluable"
        snapshot.tokens += task.agent_prompt_tokens + task.agent_completion_tokens
        self.show()

    def note(self, text: str) -> None:
        """Say something worth a line of its own."""
        self._console.print(text, style="yellow", markup=False, highlight=False)

    def show(self, *, now: bool = False) -> None:
        """Show the counts if it is time to."""
        every = _FRAME_EVERY_S if self._live is not None else _LINE_EVERY_S
        moment = self._clock.monotonic()
        if not now and moment - self._shown_at < every:
            return
        self._shown_at = moment
        if self._live is not None:
            self._live.update(self._frame(), refresh=True)
        else:
            self._console.print(self.snapshot.line(self._elapsed()), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bar away and leave the last counts as a line."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        self.show(now=True)

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._start

    def _frame(self) -> Text:
        line = self.snapshot.line(self._elapsed())
        # The counts say all; the bar is for terminals with room for it.
        width = min(_BAR_WIDTH, self._console.width - len(line) - 2)
        filled = int(width * self.snapshot.tasks_done / max(1, self.snapshot.num_tasks))
        bar = "━" * filled + "╌" * (width - filled)
        text = Text.assemble((f"{bar} " if width > 0 else "", "cyan"), line)
        # One line on any terminal: a second one would leave traces when the bar is redrawn.
        text.truncate(self._console.width - 1, overflow="ellipsis")
        return text


def _short(count: int) -> str:
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
