"""A run is named by its folder, or by its bare name when it lies in runs/."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcon.errors import NotFoundError
from memcon_platform.cli.arguments import policy_place, run_folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with one run in runs/."""
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "demo")
    return tmp_path


def make_run(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text("{}")


def test_a_run_is_found_by_folder_and_by_bare_name() -> None:
    assert run_folder("runs/demo") == run_folder("demo") == Path("runs/demo")


def test_a_folder_here_that_is_no_run_does_not_hide_the_run_of_that_name(here: Path) -> None:
    (here / "demo").mkdir()
    assert run_folder("demo") == Path("runs/demo")


def test_a_run_here_comes_before_one_in_runs(here: Path) -> None:
    make_run(here / "demo")
    assert run_folder("demo") == Path("demo")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("dmo", r"no run folder runs/dmo; runs in runs: demo \(did you mean 'runs/demo'\?\)"),
        ("runs/dmo", r"no run folder runs/dmo; runs in runs: demo \(did you mean 'runs/demo'\?\)"),
        ("runs", r"runs holds no plan\.json, so it is no run of memcon; runs in runs: demo"),
        ("else/where", r"no run folder else/where; else holds no run"),
    ],
)
def test_what_is_no_run_is_told_with_the_runs_there_are(value: str, told: str) -> None:
    with pytest.raises(NotFoundError, match=told):
        run_folder(value)


def make_policy(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "shard-0.sqlite").write_bytes(b"")
    return folder


def test_a_policy_is_found_by_its_folder_by_its_run_and_by_either_name(here: Path) -> None:
    of_run, served = make_policy(here / "runs" / "demo" / "policy"), make_policy(here / "serve" / "live")
    for value in (of_run, of_run.parent, "demo"):
        assert policy_place(str(value)).resolve() == of_run
    for value in (served, "live"):
        assert policy_place(str(value)).resolve() == served


def test_what_has_no_journal_is_told_with_the_places_that_were_looked_at() -> None:
    with pytest.raises(NotFoundError, match=r"demo has no policy journal: none of demo, .*serve/demo holds shard-0"):
        policy_place("demo")
