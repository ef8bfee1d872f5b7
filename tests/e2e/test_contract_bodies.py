"""What an author of plug-ins does: subclass the bodies of `memcon.testing`, run plain pytest, and read what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

import memcon.testing
from support import contract_slips
from support.third_party import PROJECT, SmallProject, environment, install

# As if neither plug-in were installed; no settings of this repository either: the folder is none of it.
PLAIN = ("-p", "no:asyncio", "-p", "no:hypothesispytest", "-p", "no:schemathesis", "-p", "no:timeout", "-p", "no:xdist")

SLIPS = SmallProject(
    name="memcon-slips",
    entry_points={"policy": {"lying": "memcon_slips.slips:LYING", "unordered": "memcon_slips.slips:UNORDERED"}},
    modules={"slips": Path(contract_slips.__file__).read_text(encoding="utf-8")},
)


@dataclass(frozen=True, slots=True)
class Result:
    """What one run of pytest came to."""

    code: int
    output: str
    # "TestClass::test" -> what pytest reports of its failure; "" = it passed.
    failures: dict[str, str]
    num_skipped: int


def plain_pytest(site: Path, folder: Path, *paths: Path) -> Result:
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", *PLAIN, "-p", "no:cacheprovider", f"--junitxml={report}", "-rf"]
    done = subprocess.run(
        [*command, f"--rootdir={folder}", *map(str, paths)],
        cwd=folder,
        env={**os.environ, **environment(site), "COLUMNS": "120"},  # noqa: TID251 - the command needs ours
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    failures, skipped = {}, 0
    for case in ET.parse(report).getroot().iter("testcase"):
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        name = f"{case.attrib['classname'].rpartition('.')[2]}::{case.attrib['name']}"
        failures[name] = "" if problem is None else problem.attrib["message"] + "\n" + str(problem.text)
        skipped += case.find("skipped") is not None
    return Result(done.returncode, done.stdout + done.stderr, failures, skipped)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("packages"), SLIPS)


@pytest.fixture(scope="module")
def slips(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return plain_pytest(site, tmp_path_factory.mktemp("slips"), site / "memcon_slips" / "slips.py")


def test_the_plug_in_package_passes_its_own_tests_with_plain_pytest(site: Path, tmp_path: Path) -> None:
    tests = shutil.copytree(PROJECT / "tests", tmp_path / "tests")

    result = plain_pytest(site, tmp_path, tests)

    assert result.code == 0, result.output
    assert {name: text for name, text in result.failures.items() if text} == {}
    assert "asyncio" not in result.output
    # Tests of every kind of plug-in that the package has, and they are not skipped.
    classes = Counter(name.partition("::")[0] for name in result.failures)
    assert len(classes) == 6
    assert min(classes.values()) >= 6
    assert result.num_skipped <= 2


def test_the_bodies_without_pytest_name_the_extra() -> None:
    code = "import sys; sys.modules['pytest'] = None; import memcon.testing"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr.splitlines()[-1].endswith("pytest is not installed; run: pip install 'memcon[testing]'")


# --- what a body says about a slip ------------------------------------------------------------------------------------

MEMORY, RULE = "MemoryBackend.record", "Rule.choose"
SAID = [
    ("TestCached::test_a_commit_that_failed_leaves_no_trace", f"{MEMORY} leaves no trace when its transaction was"),
    ("TestCommitting::test_it_never_commits", f"{MEMORY} never commits: the task's end commits memory, episode and"),
    (
        "TestTalkative::test_insight_k_bounds_the_insights",
        "MemoryBackend.retrieve gives at most insight_k = 0 insights",
    ),
    ("TestPeeking::test_practice_tasks_are_other_tasks_of_the_same_kind", "Benchmark.practice_tasks gives none of the"),
    ("TestStrict::test_nonsense_is_refused_and_changes_nothing", "Environment.step takes an action that it does not"),
    (
        "TestSharing::test_calls_at_the_same_time_do_not_disturb_each_other",
        "ChatModel.complete gives each of the calls",
    ),
    (
        "TestCutting::test_all_of_the_memory_reaches_every_prompt",
        "AgentFramework.run puts all of the memory block into",
    ),
    ("TestDoubles::test_vectors_are_float32_of_the_declared_size", "Embedder.embed gives float32 of shape (len(texts)"),
    ("TestLying::test_draws_come_out_as_often_as_stated", "Rule.probabilities states how often choose gives an arm"),
    ("TestLying::test_its_config_refuses_nan", "Plugin.config refuses favour = nan, and names it"),
    (
        "TestLying::test_it_is_not_built_from_settings_that_are_not_its_own",
        "Plugin.build refuses settings with a parameter that it does not know",
    ),
    ("TestCounting::test_equal_evidence_and_draw_give_the_equal_choice", f"{RULE} gives the equal choice for equal"),
    ("TestUnordered::test_another_process_chooses_alike", f"{RULE} chooses alike in another process"),
    ("TestCounting::test_its_settings_are_those_of_a_table", "an entry point of memcon.policy named 'uncounted'"),
    (
        "TestEager::test_client_applies_an_outcome_once",
        "PolicyClient.outcomes answers an outcome that is told again as",
    ),
    ("TestAppending::test_a_partial_block_is_rewritten_in_place", "EpisodeSink.write_block replaces a block that is"),
    ("TestLate::test_there_is_a_block_at_task_start", "MemoryReader.context gives a block before any step"),
    ("TestBackwards::test_the_monotonic_time_never_goes_back", "Clock.monotonic never goes back"),
    ("TestNothingGiven::test_close_may_be_called_twice", "TestNothingGiven does not give the fixture `model`"),
]


@pytest.mark.parametrize(("test", "sentence"), SAID, ids=[name for name, _ in SAID])
def test_a_slip_fails_with_the_sentence_of_the_contract(slips: Result, test: str, sentence: str) -> None:
    failure = slips.failures[test]

    assert sentence in failure
    # The person sees it, too, and what was met.
    assert sentence in re.sub(r"\nE +", " ", slips.output)
    assert re.search(r"^E +met", failure, re.MULTILINE) or "def model(self) -> ChatModel:" in failure
    # Not the insides of the bodies: the last frame is the body's own line.
    assert "contract.py" not in failure.partition("def test_")[0]


def test_the_guide_shows_a_failure_as_it_is(slips: Result) -> None:
    page = (PROJECT.parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
    shown = [line.lstrip("E ") for line in page.splitlines() if line.startswith("E ")]
    met = [line.lstrip("E ") for line in slips.output.splitlines() if line.startswith("E ")]

    assert len(shown) == 3
    assert any(met[at : at + 3] == shown for at in range(len(met)))


def test_every_body_has_a_slip() -> None:
    shown = {name for test, _ in SAID for name in _bodies(test.partition("::")[0])}
    assert shown >= {name for name in memcon.testing.__all__ if name.endswith("Contract")}


def _bodies(test_class: str) -> list[str]:
    return [base.__name__ for base in getattr(contract_slips, test_class).__bases__]
