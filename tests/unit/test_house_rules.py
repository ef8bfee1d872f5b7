"""Rules of the house that no linter knows: names, sizes, imports, plug-ins, contracts, the public API, requirements."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from memcon import protocols, registry, testing

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("platform", "workers", "policy_server")
PACKAGES = ("memcon", "memcon_platform", "memcon_workers", "memcon_policy_server")
MAX_LINES = 400
MAX_PUBLIC_NAMES = 15

# What `from package import *` gives: a change here is a change for whoever builds on us. Packages that are not listed
# export nothing; their modules are imported by name.
PUBLIC: dict[str, set[str]] = {
    "memcon.learning.exploration": {
        "FIXED", "NONE", "UCB", "UNIFORM", "Choice", "FixedConfig", "NoneConfig", "Rule", "UcbConfig", "UniformConfig",
        "build_rule",
    },
    "memcon.testing": {
        "AgentFrameworkContract", "BenchmarkContract", "ChatModelContract", "EmbedderContract", "EnvironmentContract",
        "LearningRuleContract", "MakeBackend", "MemoryBackendContract", "Run",
    },
    "memcon_platform.cli": {"main"},
    "memcon_platform.config": {
        "Cell", "CellSummary", "Entry", "PlanSummary", "RunPlan", "RunRecord", "RunSettings", "has_plan", "load",
        "plan_summary", "provenance", "read_plan", "read_record", "reconcile", "write_plan",
    },
    "memcon_platform.mirror": {"MANIFEST_KEY", "Manifest", "fetch_run", "publish", "read_manifest", "unpublished"},
    "memcon_platform.replay": {"VerifyReport", "verify"},
    "memcon_platform.report": {"CellResult", "GroupResult", "ReportData", "build"},
    "memcon_platform.tracking": {
        "CellInfo", "MlflowTracker", "NullTracker", "RebuildReport", "RunInfo", "TrackedTask", "Tracker", "TrackingEnd",
        "cell_summary", "infos_of", "rebuild", "task_metrics",
    },
    "memcon_platform.trajectory": {
        "BLOCK_TASKS", "SCHEMA_VERSION", "TABLES", "CheckReport", "Difference", "ParquetSink", "RunTables",
        "SinkFactory", "check", "compare", "read_run",
    },
    "memcon_policy_server.client": {"Counters", "LiveDecision", "LivePolicy", "Refusal", "SyncPolicy"},
    "memcon_workers.benchmarks.household": {"PLUGIN", "HouseholdBenchmark", "HouseholdConfig"},
    "memcon_workers.benchmarks.pddl": {"PLUGIN", "PddlBenchmark", "PddlConfig"},
}  # fmt: skip

_BANNED_NAME = re.compile(r"(.*_)?(utils?|helpers?|managers?|misc|common|v\d+)(_.*)?")
# "D27" and "D-27" are the same defect; "D102" is a rule of the linter.
_REQUIREMENT = re.compile(r"\b((?:MC|A|BE|BL|FW|HX|R|RO|RP|RT|TH)(?=-)|D)-?(\d{1,2})\b")
# Paths of some machine, hosts and addresses. Nobody's are the loopback (cut at the first backslash of a pattern),
# "HOST", and the names and addresses that are reserved for examples.
_MACHINE = re.compile(
    r"(?<![\w.~/-])/(?:root|home|Users|tmp|work|mnt|opt|srv|data)/\w"
    r"|\b(?:\d{1,3}\.){3}\d{1,3}\b(?!\.\d)"
    r"|https?://[\w.-]+"
    r"|--(?:extra-)?index-url|--find-links|--trusted-host"
)
_NOBODYS = re.compile(
    r"127\.0\.0\.1|0\.0\.0\.0|192\.0\.2\.\d+"
    r"|https?://(?:127(?:\.0\.0\.1|\.?)|HOST|localhost|ann|nowhere|slow|example\.\w+|www\.apache\.org|www\.w3\.org)?$"
)


@cache
def python_files() -> tuple[Path, ...]:
    found = [path for root in (*SOURCE_ROOTS, "tests") for path in (ROOT / root).rglob("*.py")]
    return tuple(sorted(found))


@cache
def tracked_files() -> tuple[Path, ...]:
    """What the repository holds; a source tree without git is taken whole."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        folders = (*SOURCE_ROOTS, "tests", "configs", "docs")
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    return tuple(path for path in paths if path.is_file())


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- names, sizes, imports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_a_source_root_is_no_package(root: str) -> None:
    assert (ROOT / root).is_dir()
    assert not (ROOT / root / "__init__.py").exists()


def test_the_standard_module_platform_wins_at_the_root_of_the_repository() -> None:
    code = "import platform; print(platform.__file__, platform.python_version())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    file, version = done.stdout.split()
    assert Path(file).name == "platform.py"
    assert ROOT not in Path(file).parents
    assert version.startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")


def test_no_file_is_longer_than_one_idea() -> None:
    lines = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def test_every_module_is_named_for_what_it_owns() -> None:
    parts = {part for path in python_files() for part in (*path.relative_to(ROOT).parent.parts, path.stem)}
    assert sorted(part for part in parts if _BANNED_NAME.fullmatch(part)) == []


def test_test_files_have_names_of_their_own() -> None:
    # Test folders are no packages, so that two files of one name would hide each other.
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
    # What `third_party` holds is a project of its own.
    packages = [path for path in (ROOT / "tests").rglob("__init__.py") if "third_party" not in path.parts]
    assert packages == []


def test_nothing_prints_but_the_command() -> None:
    printing = [
        f"{shown(path)}:{node.lineno}"
        for path in python_files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []


# --- plug-ins and ports ------------------------------------------------------------------------------------------


def entry_points() -> list[tuple[str, str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [(group.removeprefix("memcon."), name) for group, names in project["entry-points"].items() for name in names]


@pytest.mark.parametrize(("kind", "name"), entry_points())
def test_every_entry_point_is_a_plug_in_with_working_defaults(kind: str, name: str) -> None:
    plugin = registry.plugin(kind, name)
    assert isinstance(plugin, registry.Plugin)
    assert plugin.summary
    if (kind, name) != ("policy", "fixed"):
        # `fixed` has no default: it needs an arm.
        assert isinstance(registry.configure(kind, name, {}), plugin.config)


def test_every_kind_of_plug_in_has_an_entry_point() -> None:
    assert {kind for kind, _ in entry_points()} == set(registry.KINDS)


def ports() -> list[str]:
    named = [getattr(protocols, name) for name in protocols.__all__]
    return sorted(item.__name__ for item in named if getattr(item, "_is_protocol", False))


def contracts() -> dict[str, type]:
    modules = [
        importlib.import_module(f"memcon.testing.{item.name}") for item in pkgutil.iter_modules(testing.__path__)
    ]
    return {
        name.removesuffix("Contract"): getattr(module, name)
        for module in modules
        for name in module.__all__
        if name.endswith("Contract")
    }


def bases_in_tests() -> set[str]:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests" / "contract").glob("test_*.py")]
    return {
        base.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test")
        for base in node.bases
        if isinstance(base, ast.Name)
    }


@pytest.mark.parametrize("port", ports())
def test_every_port_has_a_contract_that_an_implementation_passes(port: str) -> None:
    contract = contracts().get(port)
    assert contract is not None, f"memcon.testing has no {port}Contract"
    assert any(name.startswith("test_") for name in vars(contract))
    assert f"{port}Contract" in bases_in_tests()


# --- the public API ----------------------------------------------------------------------------------------------


def packages() -> Iterator[str]:
    for name in PACKAGES:
        yield name
        path = importlib.import_module(name).__path__
        yield from (item.name for item in pkgutil.walk_packages(path, f"{name}.") if item.ispkg)


def modules() -> Iterator[str]:
    for name in PACKAGES:
        yield from (item.name for item in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."))


def test_the_public_api_is_as_listed() -> None:
    found: dict[str, Any] = {name: getattr(importlib.import_module(name), "__all__", None) for name in packages()}
    assert {name: set(names) for name, names in found.items() if names} == PUBLIC


@pytest.mark.parametrize("package", sorted(PUBLIC))
def test_a_package_exports_few_names(package: str) -> None:
    assert 0 < len(PUBLIC[package]) <= MAX_PUBLIC_NAMES


def test_every_exported_name_is_defined_where_it_is_exported() -> None:
    # Read, not imported: the Ray shells load half of Ray.
    for path in (path for root in SOURCE_ROOTS for path in (ROOT / root).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        exported, defined = _exports(tree), _top_level_names(tree)
        assert sorted(set(exported) - defined) == [], shown(path)
        assert len(exported) == len(set(exported)), shown(path)


def _exports(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return list(ast.literal_eval(node.value))
    return []


def _top_level_names(tree: ast.Module) -> set[str]:
    names = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


# --- requirements and the outside world --------------------------------------------------------------------------


def requirement_ids(text: str) -> set[str]:
    """Ids in `text`, ranges such as "MC-4 to MC-6" written out."""
    found = {f"{group}-{number}" for group, number in _REQUIREMENT.findall(text)}
    for group, low, high in re.findall(r"\b([A-Z]{1,2})-(\d+) (?:to|\.\.) \1-(\d+)\b", text):
        found |= {f"{group}-{number}" for number in range(int(low), int(high) + 1)}
    return found


def test_every_requirement_that_is_cited_is_written_down() -> None:
    built, _, _later = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8").partition("## Not built yet")
    listed = set()
    for line in built.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 2:
            listed |= requirement_ids(cells[1])
    cited = {
        f"{shown(path)}: {item}"
        for path in python_files()
        if path != Path(__file__).resolve()
        for item in requirement_ids(path.read_text(encoding="utf-8"))
        if item not in listed
    }
    assert sorted(cited) == []


def test_every_place_that_the_requirements_name_exists() -> None:
    text = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    names = {path.name for path in python_files()}
    missing = {name for name in re.findall(r"`(test_\w+\.py)`", text) if name not in names}
    known = set(modules()) | set(packages())
    missing |= {name for name in re.findall(r"`(memcon(?:_\w+)?(?:\.\w+)+)`", text) if name not in known}
    assert sorted(missing) == []


def test_no_tracked_file_names_a_machine_or_an_address() -> None:
    found = []
    for path in tracked_files():
        if path in {Path(__file__).resolve(), ROOT / "LICENSE"}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in _MACHINE.finditer(text):
            if not _NOBODYS.match(match[0]):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{shown(path)}:{line}: {match[0]}")
    assert found == []
