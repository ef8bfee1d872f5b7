"""A sweep into an object store, by the command alone: the same data as a local one, whatever is killed or cut; and the
commands of docs/storage.md.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from memcon_platform.cli.main import group
from memcon_platform.config import load
from memcon_platform.sweep.overview import overview
from support.object_server import ACCESS_KEY, BUCKET, SECRET_KEY, ObjectServer, object_server
from support.shell import ROOT, SMALL, SMOKE, memcon, the_error
from support.waiting import wait_until

STORE = f"s3://{BUCKET}/team"
PAGE = ROOT / "docs" / "storage.md"
_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


@pytest.fixture
def environment(server: ObjectServer, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    yield {**server.environment, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    server.line.restore()
    server.admit()


def sweep(run: str, *settings: str) -> list[str]:
    return ["sweep", str(SMOKE), "--local", f"run={run}", f"root={STORE}", *SMALL, *settings]


def is_equal(local: str, run: str, cwd: Path, environment: Mapping[str, str]) -> bool:
    compared = memcon("data", "compare", local, f"{STORE}/{run}", cwd=cwd, environment=environment)
    return (compared.code, compared.out.strip()) == (0, "equal")


def test_a_sweep_that_is_killed_and_then_cut_off_ends_equal_to_a_local_one(
    server: ObjectServer, environment: Mapping[str, str], tmp_path: Path
) -> None:
    more = ("limit=12",)
    local = memcon("sweep", SMOKE, "--local", "run=local", *SMALL, *more, cwd=tmp_path)
    assert local.code == 0, local.err

    # The store takes the plan and falls silent, so that the sweep cannot end before it is killed.
    server.line.hold_after(40_000)
    kill_in_the_middle(sweep("one", *more), tmp_path, environment)
    server.line.restore()
    # The store takes the plan and is gone.
    server.line.cut_after(40_000)
    cut = memcon(*sweep("one", *more), cwd=tmp_path, environment=environment)
    assert cut.code == 1
    lines = [line for line in cut.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert "the run is whole in runs/s3/" in lines[0]
    assert f"files are not in {STORE}/one yet" in lines[0]

    server.line.restore()
    done = memcon(*sweep("one", *more), cwd=tmp_path, environment=environment)
    assert done.code == 0, done.err
    assert f"2 cells in {STORE}/one (working copy runs/s3/{BUCKET}/team/one)" in done.out
    assert "nothing is left to run" in done.out
    assert is_equal("local", "one", tmp_path, environment)
    for printed in (cut, done):
        assert ACCESS_KEY not in printed.out + printed.err
        assert SECRET_KEY not in printed.out + printed.err


def test_ctrl_c_waits_for_no_store_that_is_silent_and_says_what_is_not_there(
    server: ObjectServer, environment: Mapping[str, str], tmp_path: Path
) -> None:
    # It takes the plan and falls silent.
    server.line.hold_after(30_000)
    process = started(sweep("silent", "axes.benchmark=[trivia]"), tmp_path, environment)
    try:
        wait_until(lambda: list(tmp_path.rglob("report.html")), within_s=50, what="the report")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=50)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 130
    (line,) = told.splitlines()
    said = re.fullmatch(
        rf"stopped while publishing: the run is whole in runs/s3/{BUCKET}/team/silent, and (\d+) of its (\d+) files "
        rf"are not in {STORE}/silent yet; the same command again does the rest",
        line,
    )
    assert said, line
    assert 0 < int(said[1]) < int(said[2])


def started(arguments: list[str], cwd: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """The command, on its way."""
    script = Path(sys.executable).with_name("memcon")
    return subprocess.Popen(
        [script, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},  # noqa: TID251 - a command needs the rest of it
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_in_the_middle(arguments: list[str], cwd: Path, environment: Mapping[str, str]) -> None:
    """kill -9 of the command when some of its tasks have ended."""
    plan = load(SMOKE, [*arguments[3:], f"working_root={cwd / 'runs' / 's3'}"])
    process = started(arguments, cwd, environment)
    try:
        wait_until(lambda: overview(plan).done >= 3, within_s=50, what="3 tasks")
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("refusal", "told"),
    [("dead", "it cannot be reached"), ("denied", "permission is denied"), ("bucket", "there is no such bucket")],
)
def test_a_store_that_cannot_be_used_is_one_line(
    server: ObjectServer, environment: Mapping[str, str], tmp_path: Path, refusal: str, told: str
) -> None:
    if refusal == "dead":
        server.line.cut()
    if refusal == "denied":
        server.refuse(403, "AccessDenied")
    more = ["root=s3://memcon-nowhere/team"] if refusal == "bucket" else []
    error = the_error_beside_progress(
        memcon(*sweep("refused", *more, "--json"), cwd=tmp_path, environment=environment).err
    )
    assert told in error
    assert ACCESS_KEY not in error
    assert SECRET_KEY not in error
    assert not (tmp_path / "runs").exists()
    # A reader is told the same.
    uri = f"{more[0].removeprefix('root=') if more else STORE}/refused"
    if refusal != "bucket":
        assert told in the_error(memcon("report", uri, cwd=tmp_path, environment=environment))


def the_error_beside_progress(text: str) -> str:
    """The last line; those before it say what was about to run."""
    *before, last = text.splitlines()
    assert last.startswith("error: ")
    assert all(line.startswith("run refused: ") for line in before)
    return last


def test_the_commands_of_the_page_do_what_it_says(
    environment: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In this process: a dozen commands, each of which would import everything anew.
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    blocks = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 4
    first, read, moved, freed = [[run(line) for line in block.strip().splitlines()] for block in blocks]

    assert "8/8 tasks done" in first[1]
    assert "equal" in read[1].splitlines()
    assert "bit for bit" in read[2]
    assert "fetching s3://memcon-runs/team/first" in moved[0]
    assert "nothing is left to run" in moved[0]
    assert "has no driver: nothing to free" in freed[0]


def run(line: str) -> str:
    """What a command of the page prints."""
    command, *arguments = line.split()
    assert command == "memcon"
    # Without MLflow, which takes seconds and says nothing of the page.
    quick = ["tracking.enabled=false", "embedder=hashing"] if arguments[0] == "sweep" else []
    done = CliRunner().invoke(group, [*arguments, *quick], standalone_mode=False)
    assert done.exception is None, (line, done.output)
    assert not done.return_value, (line, done.output)
    return done.output
