"""The shipped examples of a live agent run as they stand, with only the `client` extra."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memcon.learning.exploration import UcbConfig
from support.live_examples import LIVE_AGENT, run_curl, run_live_agent
from support.served_gateway import TOKEN, LiveServer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    server = LiveServer(tmp_path / "policy")
    await server.open_table("default", UcbConfig().learning_settings())
    yield server
    await server.stop()


def test_the_example_is_short() -> None:
    assert len(LIVE_AGENT.read_text(encoding="utf-8").splitlines()) <= 50


async def test_the_live_agent_learns_and_loses_no_outcome(server: LiveServer, tmp_path: Path) -> None:
    said = await asyncio.to_thread(run_live_agent, server.url, TOKEN, 240, folder=tmp_path)

    solved = re.search(r"first third (\d+), in the last (\d+)", said)
    assert solved is not None
    assert int(solved[2]) > int(solved[1])
    tables = [(await owner.served())["tables"]["default"]["numbers"]["keys"] for owner in server.shards.owners]
    rows = [row for table in tables for row in table.values()]
    assert sum(arm["credited"] for row in rows for arm in row.values()) == 240


async def test_without_a_server_the_live_agent_ends_all_the_same(tmp_path: Path) -> None:
    said = await asyncio.to_thread(run_live_agent, "http://127.0.0.1:1", TOKEN, 3, folder=tmp_path, deadline_s=0.5)

    assert "decisions=3, fallbacks=3" in said


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_same_in_curl(server: LiveServer, tmp_path: Path) -> None:
    token_path = tmp_path / "token"
    token_path.write_text(TOKEN + "\n", encoding="ascii")

    decision, outcome, cancelled, tables = map(json.loads, await asyncio.to_thread(run_curl, server.url, token_path))

    assert decision["action_id"] == "retrieve_shallow"
    assert (outcome["status"], outcome["credit"]) == ("credited", 1.0)
    assert cancelled == {"cancelled": 0}
    assert tables["tables"]["default"]["keys"] == 1
