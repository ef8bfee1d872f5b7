"""What goes wrong at the command line: one clear line, an exit code other than 0, and nothing written over."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.shell import SMALL, SMOKE, half_done, memcon, the_error


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for place in range(4096, len(content), 37):
        content[place] ^= 0xFF
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace_by_text(path: Path) -> None:
    path.write_text("no longer what it was\n")


def remove(path: Path) -> None:
    path.unlink()


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file of a run but the lock, which names the last driver."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "run.lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped inside its first cell; not to be changed."""
    return half_done(tmp_path_factory.mktemp("stopped"))


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A copy of the stopped run, to be damaged."""
    return shutil.copytree(stopped, tmp_path / "runs" / stopped.name)


def sweep_again(run: Path, *more: str) -> str:
    return the_error(memcon("sweep", SMOKE, "--local", *SMALL, f"root={run.parent}", *more))


# --- the output --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        line = the_error(memcon("benchmarks", "list", stdout=full))
    assert "No space left" in line


def test_a_terminal_that_knows_ascii_only_ends_no_command() -> None:
    printed = memcon("sweep", SMOKE, "--plan", environment={"PYTHONIOENCODING": "ascii"})
    assert (printed.code, printed.err) == (0, "")
    assert "2 cells" in printed.out


# --- the config --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("limt=1", ("limt", "did you mean 'limit'?")),
        ("axes.memory=[metgpt]", ("unknown memory 'metgpt'", "allowed: empty, metagpt", "did you mean 'metagpt'?")),
        ("limit=many", ("limit", "an integer", "'many'")),
        ("axes.policy=[{name: ucb, c: wide}]", ("axes.policy[0].c", "expected float", "'wide'")),
        ("axes.policy=[{name: ucb, c: .nan}]", ("axes.policy[0].c", "nan", "a finite number")),
        ("just-a-word", ("'just-a-word'", "expected key=value")),
    ],
)
def test_a_wrong_override_is_named_with_what_is_allowed(override: str, named: tuple[str, ...], tmp_path: Path) -> None:
    line = the_error(memcon("sweep", SMOKE, "--local", f"root={tmp_path / 'runs'}", override))
    assert "override" in line
    assert all(text in line for text in named), line
    assert not (tmp_path / "runs").exists()


def test_a_policy_that_plays_every_arm_belongs_to_a_study(tmp_path: Path) -> None:
    line = the_error(memcon("sweep", SMOKE, "--local", f"root={tmp_path / 'runs'}", "axes.policy=[every_arm]"))
    assert "policy 'every_arm' plays every arm of a task" in line
    assert "memcon study headroom CONFIG" in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("[metagpt]", "[metagpt"), ("not valid YAML", "line ")),
        (("[metagpt]", "[vector]"), ("unknown memory 'vector'", "allowed: empty, metagpt")),
        (("limit: 4", "reward: {failure_penalty: .nan}"), ("reward.failure_penalty", "finite")),
    ],
)
def test_a_wrong_config_is_named_with_its_place(
    change: tuple[str, str], named: tuple[str, ...], tmp_path: Path
) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(SMOKE.read_text().replace(*change))
    line = the_error(memcon("sweep", config, "--local", f"root={tmp_path / 'runs'}"))
    assert str(config) in line
    assert all(text in line for text in named), line
    assert not (tmp_path / "runs").exists()


def test_a_missing_config_is_named_with_those_beside_it() -> None:
    line = the_error(memcon("sweep", SMOKE.with_name("smok.yaml"), "--local"))
    assert "smok.yaml" in line
    assert "did you mean" in line


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    # Below a regular file nobody may write, not even the superuser.
    (tmp_path / "file").write_text("mine")
    line = the_error(memcon("sweep", SMOKE, "--local", f"root={tmp_path / 'file'}"))
    assert f"cannot write {tmp_path / 'file' / 'smoke'}" in line
    assert "set root=" in line
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("swep",), ("unknown command 'swep'", "did you mean 'sweep'?", "memcon --help")),
        (("sweep",), ("CONFIG", "memcon sweep --help")),
        (("sweep", "x.yaml", "--lmit", "3"), ("--lmit", "--limit")),
    ],
)
def test_a_wrong_command_line_says_where_its_help_is(arguments: tuple[str, ...], named: tuple[str, ...]) -> None:
    line = the_error(memcon(*arguments))
    assert all(text in line for text in named), line


# --- damaged files of a run that goes on -------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [flip, cut, empty, replace_by_text, remove])
def test_a_damaged_stream_file_is_refused_and_left_alone(damage: Callable[[Path], None], run: Path) -> None:
    (stream,) = run.glob("streams/*/000.sqlite")
    damage(stream)
    before = snapshot(run)

    line = sweep_again(run)

    assert str(stream) in line
    assert "restore it from a copy" in line
    assert snapshot(run) == before


@pytest.mark.parametrize("damage", [cut, empty, replace_by_text, remove])
def test_a_damaged_journal_is_refused_and_left_alone(damage: Callable[[Path], None], run: Path) -> None:
    journal = run / "policy" / "shard-0.sqlite"
    damage(journal)
    before = journal.read_bytes() if journal.exists() else None

    line = sweep_again(run)

    assert str(journal) in line
    assert "restore it from a copy" in line
    assert (journal.read_bytes() if journal.exists() else None) == before


def test_a_damaged_plan_is_refused_by_every_reader(run: Path) -> None:
    plan = run / "plan.json"
    plan.write_text('{"schema_version": 1, "run": ')
    before = snapshot(run)
    for arguments in (("status",), ("report",), ("data", "check"), ("track", "rebuild")):
        line = the_error(memcon(*arguments, run, "--json"))
        assert str(plan) in line, arguments
        assert "restore it from a copy" in line, arguments
    assert str(plan) in sweep_again(run)
    assert snapshot(run) == before


def test_damaged_parquet_is_named_by_its_readers(run: Path) -> None:
    (block,) = run.glob("episodes/cell=*/*.parquet")
    cut_short = block.read_bytes()[:300]
    block.write_bytes(cut_short)

    for arguments in (("report",), ("track", "rebuild"), ("data", "compare", run)):
        line = the_error(memcon(*arguments, run, "--json"))
        assert str(block) in line, arguments
    checked = memcon("data", "check", run, "--json")
    assert checked.code != 0
    found = json.loads(checked.out)
    assert not found["ok"]
    assert str(block) in found["problems"][0]
    assert str(block) in the_error(memcon("data", "check", run))
    assert block.read_bytes() == cut_short


def test_a_damaged_journal_is_found_by_verify(run: Path) -> None:
    journal = run / "policy" / "shard-0.sqlite"
    replace_by_text(journal)
    assert str(journal) in the_error(memcon("replay", "verify", run))
    printed = memcon("replay", "verify", run, "--json")
    assert printed.code != 0
    assert not json.loads(printed.out)["ok"]


# --- the wrong run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [("status",), ("report",), ("replay", "verify"), ("data", "check"), ("track", "rebuild")]
)
def test_an_unknown_run_is_named_with_those_beside_it(arguments: tuple[str, ...], stopped: Path) -> None:
    printed = memcon(*arguments, stopped.with_name("smoek"), "--json")
    line = the_error(printed)
    assert "smoek" in line
    assert f"did you mean '{stopped}'?" in line
    assert printed.out == ""


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    for arguments in (("status",), ("report",), ("replay", "verify"), ("data", "check"), ("track", "rebuild")):
        assert str(tmp_path) in the_error(memcon(*arguments, tmp_path)), arguments
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_found_by_its_name(run: Path) -> None:
    printed = memcon("status", run.name, "--json", cwd=run.parent.parent)
    assert json.loads(printed.out)["run"] == run.name


def test_changed_cells_under_the_same_name_are_refused_with_the_difference(run: Path) -> None:
    before = snapshot(run)
    line = sweep_again(run, "reward.failure_penalty=0.25")
    assert "exists with other settings" in line
    assert "reward.failure_penalty 0.5 -> 0.25" in line
    assert "run=NAME" in line
    assert snapshot(run) == before


def test_a_second_driver_of_a_run_is_refused(run: Path) -> None:
    with (run / "run.lock").open("a+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        handle.truncate(0)
        handle.write("4711")
        handle.flush()
        before = snapshot(run)
        line = sweep_again(run)
    assert f"run {run} is driven by process 4711" in line
    assert snapshot(run) == before
