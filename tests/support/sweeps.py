"""Real sweeps in processes of their own, to be killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from memcon_platform.config import read_plan
from memcon_platform.sweep.overview import overview
from support.processes import processes_below
from support.waiting import wait_until

FRAMEWORK = "{name: lobster, history_window: all, few_shot: 0, list_actions: true, loop_stop: false}"
CONFIG = f"""
axes:
  benchmark: [household]
  framework: [{FRAMEWORK}]
  backbone: [imitator]
  memory: [metagpt]
  policy: [ucb]
  seed: [0]
embedder: hashing
tracking: {{enabled: false}}
"""


def memcon(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command `memcon` to its end."""
    command = [str(Path(sys.executable).with_name("memcon")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done


def record(*arguments: str | Path) -> Any:
    """What `memcon … --json` prints."""
    return json.loads(memcon(*arguments, "--json").stdout)


class Sweep:
    """One run: the same command, launched as often as it takes."""

    def __init__(self, folder: Path, name: str, *settings: str) -> None:
        self.run_dir = folder / "runs" / name
        config = folder / "config.yaml"
        config.write_text(CONFIG)
        self.arguments = ["sweep", str(config), f"run={name}", f"root={folder / 'runs'}", *settings]
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self, *more: str) -> subprocess.Popen[bytes]:
        """Start the command and leave it running."""
        command = [str(Path(sys.executable).with_name("memcon")), *self.arguments, *more]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        return self.process

    def finish(self, *more: str) -> None:
        """Run the command to its end."""
        code = self.launch(*more).wait()
        assert code == 0, self.log.read_text()

    def done(self) -> int:
        """Ended tasks, as `memcon status` counts them; here, since to start it takes as long as dozens of tasks."""
        if not (self.run_dir / "plan.json").exists():
            return 0
        return overview(read_plan(self.run_dir)).done

    def wait_for_tasks(self, count: int, *, within_s: float = 90) -> int:
        """Wait until `count` tasks have ended."""

        def enough() -> int | None:
            done = self.done()
            return done if done >= count else None

        return wait_until(enough, within_s=within_s, what=f"{count} tasks")

    def children(self, name: str) -> Sequence[psutil.Process]:
        """Processes below the command whose command line holds `name`."""
        assert self.process is not None
        return list(processes_below(self.process.pid, name))

    def kill(self) -> None:
        """kill -9 of the command itself."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
