"""Provenance tells versions and commit, and nothing about the machine's owner."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

import memcon
from memcon_platform.config import provenance

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]


def git(folder: Path, *arguments: str) -> None:
    subprocess.run([*GIT, "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit that tracks the package which `memcon` seems to be."""
    package = tmp_path / "memcon"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    monkeypatch.setattr(memcon, "__file__", str(package / "__init__.py"))
    return package


def test_versions_and_platform_are_named_and_the_host_is_not() -> None:
    block = provenance()

    assert block["python"] == platform.python_version()
    assert block["memcon_version"]
    assert block["numpy"]
    assert platform.node() not in str(block)


def test_commit_and_local_changes_of_the_source_tree(repository: Path) -> None:
    clean = provenance()
    (repository / "__init__.py").write_text("changed = True\n", encoding="utf-8")
    changed = provenance()

    assert len(clean["git_commit"]) == 40
    assert (clean["git_changed"], changed["git_changed"]) == (False, True)
    assert changed["git_commit"] == clean["git_commit"]


def test_a_package_installed_inside_a_foreign_repository_claims_no_commit(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = repository.parent / "site-packages" / "memcon"
    installed.mkdir(parents=True)
    monkeypatch.setattr(memcon, "__file__", str(installed / "__init__.py"))

    assert (provenance()["git_commit"], provenance()["git_changed"]) == (None, None)


def test_no_git_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert provenance()["git_commit"] is None
