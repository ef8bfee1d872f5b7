"""Publishes a run to its place in an object store while its streams go on, from a thread of its own.

Streams, journals and blocks are written to the run's folder as in any run; a store that goes away stops none of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from pathlib import Path

from memcon.errors import MemconError
from memcon_platform.sweep.runner import Observer
from memcon_platform.trajectory import BLOCK_TASKS
from memcon_platform.trajectory.blocks import Block
from memcon_platform.trajectory.schemas import ALL_TABLES
from memcon_workers.spec import TaskEnded

__all__ = ["BlockWatch", "Publisher"]


class Publisher:
    """Hands files to `publish`, all that wait at a time, and tells with `say` when that fails for the first time.

    What could not be published waits, and is tried again with the next files. Nothing is ever raised into the run.
    """

    def __init__(self, publish: Callable[[Collection[Path]], object], say: Callable[[str], None]) -> None:
        self._publish, self._say = publish, say
        self._changed = threading.Condition()
        # In the order of their coming; a dict, since a file may come twice.
        self._waiting: dict[Path, None] = {}
        self._is_new = self._is_closed = self._is_failing = False
        # A daemon: a second Ctrl-C must not wait for a store that is slow to die.
        self._thread = threading.Thread(target=self._run, name="memcon-publisher", daemon=True)
        self._thread.start()

    def submit(self, files: Collection[Path]) -> None:
        """Publish `files` as soon as can be; returns at once."""
        with self._changed:
            self._waiting |= dict.fromkeys(files)
            self._is_new = True
            self._changed.notify()

    def stop(self) -> None:
        """Begin nothing more; what is being published goes on."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def join(self) -> None:
        """Stop, and return when what is being published has ended one way or the other."""
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        while (files := self._next()) is not None:
            try:
                self._publish(list(files))
            except MemconError as error:
                self._failed(files, error)
            else:
                self._succeeded(len(files))

    def _next(self) -> dict[Path, None] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_new or self._is_closed)
            files, self._waiting, self._is_new = self._waiting, {}, False
            return None if self._is_closed else files

    def _failed(self, files: dict[Path, None], error: MemconError) -> None:
        with self._changed:
            self._waiting = files | self._waiting
            count = len(self._waiting)
        if not self._is_failing:
            self._say(f"not published yet: {count} files wait here while the run goes on ({error})")
        self._is_failing = True

    def _succeeded(self, count: int) -> None:
        if self._is_failing:
            self._say(f"published again: {count} files that waited are there")
        self._is_failing = False


class BlockWatch:
    """An observer of a launch that submits every block of Parquet as soon as it is whole, and passes the news on."""

    def __init__(self, run_dir: Path, observer: Observer, submit: Callable[[Collection[Path]], None]) -> None:
        self._run_dir, self._observer, self._submit = run_dir, observer, submit

    def task_ended(self, task: TaskEnded) -> None:
        """Submit the block that the task has filled: it is written before its last task is told of."""
        self._observer.task_ended(task)
        if (task.ordinal + 1) % BLOCK_TASKS == 0:
            block = Block(task.cell, task.stream, task.ordinal // BLOCK_TASKS)
            paths = (block.path(self._run_dir, table) for table in ALL_TABLES)
            self._submit([path for path in paths if path.exists()])

    def cell_ended(self, cell: str) -> None:
        """Submit the last blocks of the cell's streams, which are whole though not full."""
        self._observer.cell_ended(cell)
        found = (sorted(self._run_dir.glob(f"{table}/cell={cell}/*.parquet")) for table in ALL_TABLES)
        self._submit([path for paths in found for path in paths])
