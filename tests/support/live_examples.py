"""Runs the shipped examples of a live agent, as a user with only the `client` extra would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["LIVE_AGENT", "run_curl", "run_live_agent"]

_EXAMPLES = Path(__file__).parents[2] / "examples"
LIVE_AGENT = _EXAMPLES / "live_agent.py"
_CURL = _EXAMPLES / "curl.sh"
# What the `client` extra does not install.
_ABSENT = ("ray", "numpy", "msgspec", "uvicorn", "sqlalchemy", "mlflow", "pyarrow", "omegaconf", "click", "rich")
_PROGRAM = """
import runpy, sys
for name in {absent!r}:
    sys.modules[name] = None  # importing it fails as if it were not installed
from memcon_policy_server.client import SyncPolicy
connect = SyncPolicy.connect
SyncPolicy.connect = lambda url, **given: connect(url, **given | dict(deadline_s={deadline_s}))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_live_agent(url: str, token: str, num_tasks: int, *, folder: Path, deadline_s: float = 30.0) -> str:
    """What the example prints; its spool lies in `folder`.

    It waits for `deadline_s` in the place of its own half a second, in which a busy machine may not answer.
    """
    program = _PROGRAM.format(absent=_ABSENT, deadline_s=deadline_s)
    done = subprocess.run(
        [sys.executable, "-c", program, str(LIVE_AGENT), url, str(num_tasks)],
        cwd=folder,
        env={"MEMCON_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_curl(url: str, token_path: Path) -> list[str]:
    """The lines that the example prints."""
    done = subprocess.run(
        ["sh", str(_CURL), url, str(token_path)], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
