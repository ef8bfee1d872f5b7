"""What `memcon sweep` says at its end can be pasted."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from memcon_platform.cli.sweep import _where_to_look

SCRIPT = Path(sys.executable).with_name("mlflow")


def test_a_database_is_shown_by_a_command_with_its_path_quoted() -> None:
    uri = "sqlite:////some where/mlflow.db"

    words = shlex.split(_where_to_look(uri))

    assert words[1:] == ["ui", "--backend-store-uri", uri]


def test_a_command_that_is_in_no_search_path_is_named_by_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(SCRIPT.parents[1])

    assert _where_to_look("sqlite:///x").startswith("bin/mlflow ui ")

    monkeypatch.setenv("PATH", str(SCRIPT.parent))
    assert _where_to_look("sqlite:///x").startswith("mlflow ui ")


def test_a_server_is_shown_by_its_address() -> None:
    assert _where_to_look("http://localhost:5000") == "http://localhost:5000"
