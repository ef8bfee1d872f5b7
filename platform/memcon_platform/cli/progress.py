"""What a command says on stderr while its user waits."""

from __future__ import annotations

import click

from memcon.clock import SystemClock

__all__ = ["Progress"]


class Progress:
    """Tells on stderr how long work goes on: nothing in the first second, then a line a second at most."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._next = self._clock.monotonic() + 1.0

    def __call__(self, line: str) -> None:
        """Say `line`, if it is time to."""
        now = self._clock.monotonic()
        if now >= self._next:
            self._next = now + 1.0
            click.echo(line, err=True)
