"""`memcon data migrate | export | compact` on a policy's journals, as a user meets them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from memcon_policy_server.journal.fold import folded
from support.shell import half_done, memcon, the_error

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return half_done(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A run that was stopped inside its first cell, to change."""
    return Path(shutil.copytree(stopped, tmp_path / "runs" / stopped.name))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A policy folder of schema version 1."""
    return Path(shutil.copytree(GOLDEN / "policy_of_schema_1", tmp_path / "serve" / "old"))


def test_an_old_policy_is_migrated_once(old: Path) -> None:
    assert "239 events migrated" in memcon("data", "migrate", "old", cwd=old.parents[1]).out
    assert json.loads(memcon("data", "migrate", old, "--json").out) == {"schema_version": 2, "migrated": [None]}


def test_an_old_policy_is_refused_with_the_command_to_run(old: Path) -> None:
    assert f"run `memcon data migrate {old}`" in the_error(memcon("data", "compact", old))


def test_a_compacted_run_verifies_and_goes_on(run: Path) -> None:
    policy = run / "policy"
    tables = folded(policy, 0, 1)[0].tables()

    compacted = json.loads(memcon("data", "compact", run, "--json").out)

    events = compacted["exported"]
    assert compacted == {"exported": events, "shards": [{"shard": 0, "dropped": events, "kept": 0}]}
    assert events > len(tables) > 0
    again = memcon("sweep", run / "config.yaml", f"root={run.parent}", "--local", "workers=1")
    assert again.code == 0, again.err
    verified = memcon("replay", "verify", run)
    assert verified.code == 0, verified.err
    assert f" events after the {events} that were compacted away, 1 tables: equal" in verified.out
    assert not verified.out.startswith("0 ")


def test_a_place_without_journals_is_named(tmp_path: Path) -> None:
    line = the_error(memcon("data", "export", "nothing", cwd=tmp_path))
    assert "nothing has no policy journal: none of nothing, nothing/policy, runs/nothing/policy, serve/noth" in line
