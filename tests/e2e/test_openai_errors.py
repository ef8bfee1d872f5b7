"""What goes wrong between the command line and an endpoint: one clear line, no secret anywhere, and nothing used up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.openai_calls import SWEEP
from support.openai_server import KEY, ScriptedOpenAI
from support.shell import Printed, memcon, the_error

pytest.importorskip("openai", reason="the extra `openai` is not installed; EXTRAS=all make test")

WRONG = "Wq4-9d8c7b6a5f4e3d2c1b0a-Zz0"


@pytest.fixture(scope="module")
def running() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI() as server:
        yield server


@pytest.fixture
def server(running: ScriptedOpenAI) -> ScriptedOpenAI:
    running.forget()
    return running


def sweep(folder: Path, base_url: str, *, key: str = KEY, environment: dict[str, str] | None = None) -> Printed:
    """The command of all tests; `folder` holds config and run."""
    config = folder / "talk.yaml"
    config.write_text(SWEEP + "limit: 3\n")
    variables = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": base_url, "OPENAI_LOG": "debug", **(environment or {})}
    printed = memcon("sweep", config, "--local", cwd=folder, environment=variables)
    assert_no_secret(folder, printed)
    return printed


def assert_no_secret(folder: Path, printed: Printed) -> None:
    written = [path for path in folder.rglob("*") if path.is_file()]
    told = [printed.out.encode(), printed.err.encode(), *(path.read_bytes() for path in written)]
    for secret in (KEY, WRONG):
        for at in range(len(secret) - 8):
            part = secret[at : at + 8].encode()
            assert not any(part in text for text in told), part


def own_line(printed: Printed) -> str:
    """The one line that is the command's, beside what the SDK's own debug log says."""
    lines = [line for line in printed.err.splitlines() if line.startswith("error: ")]
    return the_error(Printed(code=printed.code, out=printed.out, err="\n".join(lines)))


def test_a_missing_key_names_its_variable(server: ScriptedOpenAI, tmp_path: Path) -> None:
    line = own_line(sweep(tmp_path, server.base_url, key=""))
    assert "OPENAI_API_KEY, which is not set" in line
    assert "export it" in line
    assert not (tmp_path / "runs" / "talk" / "plan.json").exists()
    assert server.requests == 0


def test_a_wrong_key_is_told_before_anything_is_begun(server: ScriptedOpenAI, tmp_path: Path) -> None:
    line = own_line(sweep(tmp_path, server.base_url, key=WRONG))
    host = server.base_url.split("/")[2]
    assert f"{host} refuses the key in OPENAI_API_KEY (401)" in line
    assert "backbone 'openai profile=gpt-4.1-mini" in line
    assert not (tmp_path / "runs" / "talk" / "plan.json").exists()
    assert server.log == []


def test_an_endpoint_that_is_away_is_told_before_anything_is_begun(tmp_path: Path) -> None:
    line = own_line(sweep(tmp_path, "http://127.0.0.1:9/v1"))
    assert "127.0.0.1:9 cannot be reached: connection refused" in line
    assert not (tmp_path / "runs" / "talk" / "plan.json").exists()


def test_a_missing_extra_is_named(server: ScriptedOpenAI, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    absent.mkdir()
    (absent / "openai.py").write_text("raise ModuleNotFoundError(\"No module named 'openai'\", name='openai')\n")
    line = own_line(sweep(tmp_path, server.base_url, environment={"PYTHONPATH": str(absent)}))
    assert "openai is not installed; run: pip install 'memcon[openai]'" in line
    assert not (tmp_path / "runs" / "talk" / "plan.json").exists()


def test_another_model_is_refused_and_after_mending_the_same_command_plays_every_task(
    server: ScriptedOpenAI, tmp_path: Path
) -> None:
    server.reports = "claude-sonnet-4-20250514"
    line = own_line(sweep(tmp_path, server.base_url))
    host = server.base_url.split("/")[2]
    assert f"{host} was asked for model 'gpt-4.1-mini' and reports 'claude-sonnet-4-20250514'" in line
    assert "expected an id that matches" in line
    assert "set reported:" in line

    server.reports = None
    assert sweep(tmp_path, server.base_url).code == 0
    status = json.loads(memcon("status", tmp_path / "runs" / "talk", "--json").out)
    assert (status["done"], status["unevaluable"], status["pending"]) == (3, 0, 0)
