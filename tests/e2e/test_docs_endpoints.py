"""docs/endpoints.md: its commands run as they stand, its entries load, and its profiles are those of the code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from memcon import registry
from memcon_policy_server.serving.free_ports import free_ports
from memcon_workers.backbones.openai_config import MODEL_PROFILES
from support.shell import ROOT
from support.waiting import wait_until

pytest.importorskip("openai", reason="the extra `openai` is not installed; EXTRAS=all make test")

PAGE = (ROOT / "docs" / "endpoints.md").read_text(encoding="utf-8")
PORT = "8765"


def fenced(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that looks like the root of the repository; what the page writes stays in it."""
    for name in ("configs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.fixture
def port() -> str:
    """A free one in the place of the page's, which may be taken here."""
    return str(*free_ports(1))


@pytest.fixture
def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # noqa: TID251 - of a user's shell
    return {"PATH": path, "HOME": os.environ.get("HOME", "")}  # noqa: TID251 - of a user's shell


@pytest.fixture
def server(place: Path, port: str, environment: dict[str, str]) -> Iterator[None]:
    command = fenced("sh")[1].replace(PORT, port)
    said = place / "server.txt"
    with said.open("w") as out:
        process = subprocess.Popen(
            ["sh", "-c", command], cwd=place, env=environment, stdout=out, stderr=out, start_new_session=True
        )
    try:
        wait_until(lambda: "serving" in said.read_text(), within_s=60, what="the scripted server")
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


@pytest.mark.usefixtures("server")
def test_the_example_without_a_provider_runs_as_it_stands(place: Path, port: str, environment: dict[str, str]) -> None:
    script = fenced("sh")[2].replace(PORT, port)
    done = subprocess.run(
        ["sh", "-e", "-c", script], cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=170
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"the server counted (\d+) prompt tokens in (\d+) calls\nthe run recorded (\d+)", done.stdout)
    assert counted is not None
    assert counted[1] == counted[3]
    assert int(counted[2]) > 10


def read_yaml(text: str) -> Any:
    return OmegaConf.to_container(OmegaConf.create(text))


def test_the_entries_of_the_page_load() -> None:
    entries = [entry for text in fenced("yaml") for entry in read_yaml(text)["axes"]["backbone"]]
    entries += [read_yaml(text) for text in re.findall(r"`(\{name: openai.*?\})`", PAGE)]
    assert len(entries) >= 6
    for entry in entries:
        name = entry.pop("name")
        registry.configure("backbone", name, entry)


def test_the_table_of_profiles_is_the_codes() -> None:
    rows = re.findall(r"^\| `([\w.-]+)` \| `([\w.-]+)` \| .* \| (\d)", PAGE, re.MULTILINE)
    assert {name: (model, float(most)) for name, model, most in rows} == {
        name: (profile.model, profile.max_temperature) for name, profile in MODEL_PROFILES.items()
    }
